"""Calls that differentiate a structure, or take it apart by what takes gradients."""
