"""The four hooks, a module each, and what they do with values of no framework."""
