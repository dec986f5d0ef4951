"""What pytest collects for the command: the suite with the options in `VARIABLE`, or the reason why there is none."""

import json
import os

from adprotocol.conformance._run.backend import BrokenBackend, UsageError
from adprotocol.conformance._run.pytest_plugin import FOLDER, VARIABLE
from adprotocol.conformance._run.suite import suite
from adprotocol.conformance.harness import Harness

if VARIABLE in os.environ:
    Harness.folder = os.environ[FOLDER]
    try:
        test_conformance = suite(**json.loads(os.environ[VARIABLE]))
    except (BrokenBackend, UsageError) as refused:
        refusal = refused

        def test_backend() -> None:
            """Raise the reason."""
            raise refusal
