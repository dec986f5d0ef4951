"""The hooks that users call, one module each, and the bindings for values of no framework."""
