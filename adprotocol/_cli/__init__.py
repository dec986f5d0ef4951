"""The command line: `info` and `doctor`."""
