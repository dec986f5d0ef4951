"""The reports on a run."""
