"""The command line: `info` and `doctor`."""

import adprotocol._public  # noqa: F401  (the bindings and marks)
