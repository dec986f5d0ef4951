"""Scenarios of `host_function`."""
