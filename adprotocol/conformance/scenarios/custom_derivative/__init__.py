"""Scenarios of `custom_derivative`."""
