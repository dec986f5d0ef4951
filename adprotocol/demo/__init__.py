"""The demo: one model file, run under every framework that is installed.

`model` is the file to read: it imports `adprotocol` and no framework. `run` is
what ``python -m adprotocol demo`` calls.
"""
