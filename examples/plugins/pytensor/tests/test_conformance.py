"""The conformance suite, as tests."""

from adprotocol.conformance import ConformanceTests


class TestConformance(ConformanceTests):
    harness = "pytensor"
