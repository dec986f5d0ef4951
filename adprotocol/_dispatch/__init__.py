"""Dispatch: the plugins, and the table from types to the functions that serve them."""
