"""The conformance suite."""

from adprotocol.conformance import ConformanceTests


class TestConformance(ConformanceTests):
    """Each scenario is a test."""

    harness = "tensorflow"
