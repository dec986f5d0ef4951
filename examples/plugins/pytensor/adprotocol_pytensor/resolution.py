"""Answer the questions in a graph for one gradient.

PyTensor's gradient of an operation may use all its inputs and outputs, so the
questions are answered in the graph that is differentiated, before that is done. A
question becomes True if one of its variables depends on what the gradient is taken
with respect to. Any other stays, for another gradient to answer: the result may be
differentiated again. Loops (`Scan`) and functions that were traced once
(`OpFromGraph`) are taken apart, and built again where an answer in them changed.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph, construct_nominal_fgraph
from pytensor.compile.ops import view_op
from pytensor.gradient import ZeroGrad, _node_to_pattern
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.traversal import toposort
from pytensor.ifelse import IfElse
from pytensor.scalar.basic import AND, OR, Invert
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from adprotocol.errors import UndecidableError, kind_of
from adprotocol_pytensor.ops import Armed, Guard, Prevent, WithinGradient, is_continuous

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TRUE = pt.constant(True, dtype="bool")  # noqa: FBT003
FALSE = pt.constant(False, dtype="bool")  # noqa: FBT003


def asks(op: Op) -> bool:
    """Tell whether an operation is a question or a guard, or holds one."""
    if isinstance(op, (WithinGradient, Prevent)):
        return True
    inner = _inner_graph(op)
    return inner is not None and any(asks(node.op) for node in inner.apply_nodes)


def _inner_graph(op: Op) -> Any:
    if isinstance(op, Blockwise):
        return _inner_graph(op.core_op)
    # Those of scalars (fused loops) hold no question.
    return getattr(op, "fgraph", None) if isinstance(op, HasInnerGraph) else None


def resolve(
    outputs: Sequence[Variable], wrt: Iterable[Variable], constants: Iterable[Variable] = ()
) -> dict[Variable, Variable]:
    """Return, for each variable that changes, its replacement in a graph whose gradient is taken.

    Args:
        outputs: what is differentiated.
        wrt: what it is differentiated with respect to.
        constants: what the gradient considers constant.
    """
    nodes = list(toposort(list(outputs)))
    if not any(asks(node.op) for node in nodes):
        return {}
    found = _Resolution(dict.fromkeys(constants, False) | dict.fromkeys(wrt, True), apart=(*outputs, *wrt))
    found.run(nodes)
    return found.new


def differentiated(outputs: Sequence[Variable], wrt: Sequence[Variable]) -> list[Variable]:
    """Return the values of `outputs` as a gradient with respect to `wrt` computes them.

    The graph ``y`` alone, compiled beside ``pytensor.grad(y, x)``, is that of a value
    that nobody differentiates.
    """
    new = resolve(outputs, wrt)
    return [new.get(output, output) for output in outputs]


class _Resolution:
    """Which variables carry a derivative, and what replaces those that change."""

    def __init__(self, tracked: dict[Variable, bool], apart: Iterable[Variable] = ()) -> None:
        self.tracked = tracked
        # These have a gradient of their own: what replaces them must not be a variable that the graph has already.
        self.apart = frozenset(apart)
        self.new: dict[Variable, Variable] = {}

    def run(self, nodes: Iterable[Apply]) -> None:
        for node in nodes:
            self._answer(node)

    def is_tracked(self, variable: Variable) -> bool:
        return self.tracked.get(variable, False)

    def _answer(self, node: Apply) -> None:
        flags = [self.is_tracked(variable) for variable in node.inputs]
        inputs = [self.new.get(variable, variable) for variable in node.inputs]
        if not any(flags):
            # Nothing to answer in it, and no derivative comes out of it.
            self._rebuild(node, node.op, inputs)
            return
        if isinstance(node.op, WithinGradient):
            self.new[node.outputs[0]] = TRUE
            return
        if isinstance(node.op, Prevent):
            op: Op = Armed(node.op.message)
            outs = flags
        elif asks(node.op):
            op, outs = _inner(node.op, node, flags)
        else:
            op, outs = node.op, _outputs_of(node, flags)
        for output, flag in zip(node.outputs, outs, strict=True):
            self.tracked.setdefault(output, flag and is_continuous(output))
        self._rebuild(node, op, inputs)

    def _rebuild(self, node: Apply, op: Op, inputs: list[Variable]) -> None:
        if op is node.op and all(map(_is, inputs, node.inputs)):
            return
        simpler = simplified(op, inputs)
        if simpler is not None:
            results = [simpler]
        elif op is node.op:
            results = node.clone_with_new_inputs(inputs).outputs
        else:
            results = op.make_node(*inputs).outputs
        for output, result in zip(node.outputs, results, strict=True):
            self.new[output] = view_op(result) if output in self.apart else result


def _is(one: Any, other: Any) -> bool:
    return one is other


def _outputs_of(node: Apply, flags: Sequence[bool]) -> list[bool]:
    if isinstance(node.op, ZeroGrad):
        return [False]
    pattern = _node_to_pattern(node)
    return [
        any(flag and row[place] for flag, row in zip(flags, pattern, strict=True)) for place in range(len(node.outputs))
    ]


def _inner(op: Op, node: Apply, flags: Sequence[bool]) -> tuple[Op, list[bool]]:
    """Return an operation with the questions in its inner graph answered, and which of its outputs are tracked."""
    if isinstance(op, Blockwise):
        core, outs = _inner(op.core_op, node, flags)
        if core is op.core_op:
            return op, outs
        new = copy(op)
        new.core_op = core
        return new, outs
    if isinstance(op, OpFromGraph):
        found = _inside(op, flags)
        outs = [
            inner and outer
            for inner, outer in zip(map(found.is_tracked, op.inner_outputs), _outputs_of(node, flags), strict=True)
        ]
        if op.pullback_overrides is not None or op.pushforward_overrides is not None:
            outs = _outputs_of(node, flags)
        return _with_graph(op, found), outs
    if isinstance(op, Scan):
        return _loop(op, flags)
    msg = (
        f"within_gradient was asked in the inner graph of {kind_of(op)}, and a gradient goes through it; the plugin for "
        "PyTensor opens scan, OpFromGraph and Blockwise only: ask outside, and use the answer inside"
    )
    raise UndecidableError(msg)


def _loop(op: Scan, flags: Sequence[bool]) -> tuple[Op, list[bool]]:
    places = op.get_oinp_iinp_iout_oout_mappings()
    inner_flags = [flags[places["outer_inp_from_inner_inp"][place]] for place in range(len(op.inner_inputs))]
    while True:
        found = _inside(op, inner_flags)
        outs = [found.is_tracked(output) for output in op.inner_outputs]
        following = [
            flag or any(outs[out] for out in places["inner_out_from_inner_inp"][place])
            for place, flag in enumerate(inner_flags)
        ]
        if following == inner_flags:
            break
        inner_flags = following  # what one turn of the loop makes tracked, the next one sees
    initial = places["outer_inp_from_outer_out"]
    outer = [
        any(outs[out] for out in places["inner_out_from_outer_out"][place])
        or (initial[place] != -1 and flags[initial[place]])
        for place in range(op.n_outer_outputs)
    ]
    return _with_graph(op, found), outer


def _inside(op: Any, flags: Sequence[bool]) -> _Resolution:
    found = _Resolution(dict(zip(op.inner_inputs, flags, strict=True)))
    found.run(toposort(list(op.inner_outputs)))
    return found


def _with_graph(op: Any, found: _Resolution) -> Any:
    """Return the operation with another inner graph of the same types; PyTensor has no function for it."""
    outputs = [found.new.get(output, output) for output in op.inner_outputs]
    if all(map(_is, outputs, op.inner_outputs)):
        return op
    outputs = [old.type.filter_variable(new) for old, new in zip(op.inner_outputs, outputs, strict=True)]
    new = copy(op)
    new.fgraph, *_ = construct_nominal_fgraph(list(op.inner_inputs), outputs)
    new._frozen_fgraph = new.fgraph.freeze()  # noqa: SLF001
    if isinstance(op, Scan):
        new._fn = None  # noqa: SLF001
    else:
        new.__dict__.pop("fn", None)
        new._fn = None  # noqa: SLF001
        new._lop_op_cache = {}  # noqa: SLF001
        new._rop_op_cache = None  # noqa: SLF001
    return new


def simplified(op: Op, inputs: Sequence[Variable]) -> Variable | None:
    """Return what an operation is for constant answers, None if it stays."""
    if isinstance(op, IfElse) and op.n_outs == 1 and isinstance(inputs[0], Constant):
        return inputs[1] if inputs[0].data else inputs[2]
    if isinstance(op, Guard) and isinstance(inputs[1], Constant) and inputs[1].data.all():
        return inputs[0]
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, (AND, OR, Invert)):
        return _folded(op.scalar_op, inputs)
    return None


def _folded(op: Any, inputs: Sequence[Variable]) -> Variable | None:
    known = [bool(value.data) for value in inputs if isinstance(value, Constant) and value.type.ndim == 0]
    if any(value.type.ndim or value.type.dtype != "bool" for value in inputs):
        return None
    if isinstance(op, Invert):
        return (FALSE if known[0] else TRUE) if known else None
    decisive = isinstance(op, OR)
    if decisive in known:
        return TRUE if decisive else FALSE
    rest = [value for value in inputs if not isinstance(value, Constant)]
    if not rest:
        return FALSE if decisive else TRUE
    return rest[0] if len(rest) == 1 else None


def substitute(outputs: Sequence[Variable], replacements: dict[Variable, Variable]) -> list[Variable]:
    """Return the outputs with variables replaced; what does not depend on these stays the same object."""
    new = dict(replacements)
    for node in toposort(list(outputs), blockers=list(replacements)):
        inputs = [new.get(variable, variable) for variable in node.inputs]
        if all(map(_is, inputs, node.inputs)):
            continue
        made = node.clone_with_new_inputs(inputs).outputs
        for output, result in zip(node.outputs, made, strict=True):
            new.setdefault(output, result)
    return [new.get(output, output) for output in outputs]
