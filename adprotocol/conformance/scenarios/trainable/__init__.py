"""`trainable`, `partition` and `combine`: which leaves of a structure take gradients."""
