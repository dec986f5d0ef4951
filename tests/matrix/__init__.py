"""Releases of the frameworks, an environment for each: the conformance suite and the plugin's tests."""
