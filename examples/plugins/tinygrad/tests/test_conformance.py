"""The conformance suite, as tests."""

from adprotocol.conformance import suite

test_conformance = suite("tinygrad")
