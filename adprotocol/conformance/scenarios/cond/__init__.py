"""`cond`: a branch that every system understands."""
