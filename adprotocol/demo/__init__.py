"""The demo: two model files, run under every framework that is installed.

`model` and `kernels` are the files to read: they import `adprotocol` and no
framework. `training` shows what is done with gradients of a structure. `run` is
what ``python -m adprotocol demo`` calls.
"""
