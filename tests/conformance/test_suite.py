"""The suite on toyad: every scenario in a few seconds, and the first to see that a change broke the core."""

import pytest
from small import ToyHarness, toy

from adprotocol.conformance import suite

with toy():
    test_conformance = suite(ToyHarness)


@pytest.fixture(autouse=True, scope="module")
def plugin():
    with toy():
        yield
