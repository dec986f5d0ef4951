from adprotocol.conformance import ConformanceTests


class TestConformance(ConformanceTests):
    harness = "tinygrad"
