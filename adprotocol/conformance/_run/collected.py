"""What pytest collects for the command: the suite with the options in `VARIABLE`, or the reason why there is none."""

import json
import os
import sys

from adprotocol.conformance._run.backend import BrokenBackend, UsageError, backend_of, refuse_other_files
from adprotocol.conformance._run.pytest_plugin import FOLDER, VARIABLE
from adprotocol.conformance._run.suite import function_of
from adprotocol.conformance.harness import Harness

if VARIABLE in os.environ:
    Harness.folder = os.environ[FOLDER]
    options = json.loads(os.environ[VARIABLE])
    # pytest has put the folder of this package in front of it, where a release may hide a working copy.
    sys.path[:], expected = options.pop("path"), options.pop("files")
    try:
        backend = backend_of(options.pop("backend"), options.pop("device"))
        refuse_other_files(backend, expected)
        test_conformance = function_of(backend, **options)
    except (BrokenBackend, UsageError) as refused:
        refusal = refused

        def test_backend() -> None:
            """Raise the reason."""
            raise refusal
