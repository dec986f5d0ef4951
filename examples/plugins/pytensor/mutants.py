"""The plugin for PyTensor, broken on purpose: see `mutation`, which runs the mutants and says how to."""

# ruff: noqa: ANN001, ANN202, ARG001  (reaches into the plugin)

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation import COND, CONSTANT, GRADIENT, GUARD, QUERY, TRAINABLE, Mutants

MUTANTS = Mutants("pytensor", __file__)
mutant = MUTANTS.mutant


@mutant(QUERY)
def answered_questions_are_closed() -> None:
    """A gradient answers False to the questions that are not its own, so a gradient of it cannot answer them."""
    from adprotocol_pytensor import resolution
    from adprotocol_pytensor.ops import WithinGradient
    from adprotocol_pytensor.simplification import FALSE

    answer = resolution.Resolution._answer

    def closing(self, node):
        answer(self, node)
        if isinstance(node.op, WithinGradient) and self.only is None:
            self.new.setdefault(node.outputs[0], FALSE)

    resolution.Resolution._answer = closing


@mutant(QUERY)
def one_turn_of_a_loop() -> None:
    """What one turn of a loop makes tracked the next one does not see."""
    from adprotocol_pytensor import resolution

    def once(self, op, flags):
        places = op.get_oinp_iinp_iout_oout_mappings()
        found = self._inside(
            op, [flags[places["outer_inp_from_inner_inp"][one]] for one in range(len(op.inner_inputs))]
        )
        initial = places["outer_inp_from_outer_out"]
        outer = [
            any(found.flags[out] for out in places["inner_out_from_outer_out"][place])
            or (initial[place] != -1 and flags[initial[place]])
            for place in range(op.n_outer_outputs)
        ]
        return found.operation(), outer

    resolution.Resolution._loop = once


@mutant(QUERY)
def calls_answer_for_all_results() -> None:
    """All results of a called function are tracked if one of its arguments is."""
    from adprotocol_pytensor import resolution

    traced = resolution.Resolution._traced

    def every(self, op, node, flags):
        made, outs = traced(self, op, node, flags)
        return made, [any(flags) for _ in outs]

    resolution.Resolution._traced = every


@mutant(QUERY)
def first_value_of_a_question() -> None:
    """Of several values the first decides."""
    import adprotocol_pytensor as plugin

    within = plugin.within_gradient_op
    plugin.within_gradient_op = lambda value, *_: within(value)


@mutant(QUERY)
def gradients_kept_in_called_functions() -> None:
    """A called function whose questions are answered keeps the derivative rule that it had before."""
    from adprotocol_pytensor import resolution

    operation = resolution._Inside.operation

    def kept(self):
        made = operation(self)
        if made is not self.op and hasattr(self.op, "_lop_op_cache"):
            made._lop_op_cache, made._rop_op_cache = self.op._lop_op_cache, self.op._rop_op_cache
        return made

    resolution._Inside.operation = kept


@mutant(QUERY)
def rules_of_the_user_are_inner() -> None:
    """A gradient that a derivative rule takes by itself answers no question."""
    from adprotocol_pytensor import interception
    from adprotocol_pytensor.resolution import Resolution, resolve

    def resolved(outputs, wrt, constants=(), *, direct=False):
        if interception._INNER.get():
            return Resolution({}, direct=False)
        return resolve(outputs, wrt, constants or (), direct=direct)

    interception._resolved = resolved


@mutant(QUERY, COND)
def and_is_or() -> None:
    """Two answers joined with & are joined with |."""
    from adprotocol_pytensor import ops

    ops.Answer.__and__ = ops.Answer.__or__


@mutant(QUERY)
def empty_is_plain() -> None:
    """No derivative comes through a variable without elements."""
    import adprotocol_pytensor as plugin

    is_continuous = plugin.is_continuous
    plugin.is_continuous = lambda value: is_continuous(value) and 0 not in getattr(value.type, "shape", ())


@mutant(CONSTANT)
def constants_lost_in_a_batch() -> None:
    """What is constant in a function is none in its batched form."""
    from adprotocol_pytensor.ops import Stop, apart
    from pytensor.graph.replace import _vectorize_node

    @_vectorize_node.register(Stop)
    def _(_op, _node, batched):
        return apart.make_node(batched)


@mutant(GUARD)
def guards_lost_in_a_batch() -> None:
    """What is guarded in a function is not in its batched form."""
    from adprotocol_pytensor.ops import Prevent, apart
    from pytensor.graph.replace import _vectorize_node

    @_vectorize_node.register(Prevent)
    def _(_op, _node, batched):
        return apart.make_node(batched)


@mutant(GUARD)
def guards_in_loops_lost() -> None:
    """A guard in a loop or a called function is none."""
    from adprotocol_pytensor import resolution

    answer = resolution.Resolution._answer

    def unguarded(self, node):
        if isinstance(self, resolution._Inside) and isinstance(node.op, resolution.Prevent):
            flags = [self.is_tracked(variable) for variable in node.inputs]
            self.tracked.setdefault(node.outputs[0], flags[0])
            self._rebuild(node, node.op, [self.new.get(variable, variable) for variable in node.inputs])
        else:
            answer(self, node)

    resolution.Resolution._answer = unguarded


@mutant(GUARD)
def guards_pass_pushforwards() -> None:
    """A guard does not raise where a push-forward is taken by the rules of the operations."""
    from adprotocol_pytensor import ops

    ops.Armed.pushforward = lambda _self, _inputs, _outputs, tangents: list(tangents)


@mutant(COND)
def only_operands_guarded() -> None:
    """A NaN of the branch not taken comes back from what it closes over."""
    from adprotocol_pytensor import branching

    from adprotocol.extend import tree_leaves

    stage = branching._stage
    given = []

    def staged(pred, true_fun, false_fun, operands):
        given.append(tree_leaves(operands))
        try:
            return stage(pred, true_fun, false_fun, operands)
        finally:
            given.pop()

    def of_operands(results, mask, start):
        guards = {
            leaf: branching.guard(leaf, mask)
            for leaf in given[-1]
            if isinstance(leaf, branching.Variable)
            and not isinstance(leaf, branching.Constant)
            and branching.is_continuous(leaf)
        }
        return branching.substitute(results, guards)

    branching._stage, branching._guarded = staged, of_operands


@mutant(COND)
def masks_multiply() -> None:
    """The derivative of the branch not taken is multiplied by zero."""
    from adprotocol_pytensor import ops

    ops._masked = lambda mask, derivative, _value: derivative * mask.astype(derivative.dtype)


@mutant(COND)
def tangents_of_branches_multiply() -> None:
    """The same in the push-forward of a cond alone."""
    from adprotocol_pytensor import ops

    def pushforward(self, inputs, outputs, tangents):
        pred, *values = inputs
        found = [
            ops._zeros(value, value.dtype) if ops.is_disconnected(tangent) else tangent
            for value, tangent in zip(values, tangents[1:], strict=True)
        ]
        mask = pred.astype(found[0].dtype)
        return [mask * found[0] + (1 - mask) * found[1]]

    ops.Branch.pushforward = pushforward


@mutant(COND)
def batches_of_predicates_choose_by_the_last_axis() -> None:
    """A predicate with a batch axis is broadcast along the last axis of the results."""
    import pytensor.tensor as pt
    from adprotocol_pytensor import ops
    from pytensor.graph.replace import _vectorize_node

    before = ops._branch_of_a_batch

    @_vectorize_node.register(ops.Branch)
    def _(op, node, pred, if_true, if_false):
        if pred.type.ndim:
            return pt.switch(pred, if_true, if_false).owner
        return before(op, node, pred, if_true, if_false)


@mutant(GRADIENT)
def auxiliary_output_unanswered() -> None:
    """In the auxiliary output the answer is False."""
    import adprotocol_pytensor as plugin

    differentiated = plugin.differentiated
    plugin.differentiated = lambda outputs, wrt: [*differentiated(outputs[:1], wrt), *outputs[1:]]


@mutant(GRADIENT)
def value_unanswered() -> None:
    """In the value that is returned beside the gradient the answer is False."""
    import adprotocol_pytensor as plugin

    def plain(original, fun, leaves, once):
        values = []

        def noting(inputs):
            outputs, others = fun(inputs)
            values.append((outputs[0], inputs))
            return outputs, others

        _, others, pull = original(noting, leaves, once)
        value, inputs = values[0]
        if isinstance(value, plugin.Variable):
            value = plugin.substitute([value], dict(zip(inputs, leaves, strict=True)))[0]
        return [value], others, pull

    MUTANTS.replace("vjp", plain)


@mutant(GRADIENT, TRAINABLE)
def shared_of_one_name() -> None:
    """Shared variables with the same name are one leaf, those without a name too."""
    from pytensor.compile.sharedvalue import SharedVariable

    MUTANTS.replace("identity", lambda _, value: (value.name,) if isinstance(value, SharedVariable) else None)


@mutant(GRADIENT, TRAINABLE)
def shared_are_places() -> None:
    """A shared variable at two places is two leaves."""
    MUTANTS.replace("identity", lambda _, _value: None)


@mutant(GRADIENT, TRAINABLE)
def tags_ignored() -> None:
    """Every shared variable takes a gradient."""
    import adprotocol_pytensor as plugin

    MUTANTS.replace("trainable", lambda _, value: True if plugin.is_continuous(value) else None)


if __name__ == "__main__":
    sys.exit(MUTANTS.main())
