"""Structures: nodes, leaves, paths, and the fields that classes declare trainable."""
