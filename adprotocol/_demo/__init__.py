"""The demonstration: one model file, run under every framework that is installed. `model` is the file to read."""
