"""Tests of the tests: random mutants of the library, each run against the tests nearest to it."""
