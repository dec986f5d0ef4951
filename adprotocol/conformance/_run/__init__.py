"""Running the suite: a backend, its cases and their results."""
