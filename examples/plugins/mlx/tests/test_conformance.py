"""The conformance suite, as tests."""

from adprotocol.conformance import ConformanceTests


class TestConformance(ConformanceTests):
    """One test for each scenario."""

    harness = "mlx"
