"""Plugins beside each other, and classes that `register_structure` makes known."""
