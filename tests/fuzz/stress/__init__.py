"""Many threads, tasks and processes at once, each of which checks what it computes against closed forms."""
