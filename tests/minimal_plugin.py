"""The plugin that has the four required hooks and nothing else."""

from adprotocol.hookspecs import hookimpl


class Array:
    pass


class Minimal:
    @hookimpl
    def array_types(self):
        return (Array,)

    @hookimpl
    def within_gradient(self, value):
        return False

    @hookimpl
    def non_differentiable(self, value):
        return value

    @hookimpl
    def cond(self, pred, true_fun, false_fun, operands):
        return (true_fun if pred else false_fun)(*operands)
