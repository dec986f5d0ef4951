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
from weakref import WeakKeyDictionary

from pytensor.compile.builders import OpFromGraph, construct_nominal_fgraph
from pytensor.gradient import ZeroGrad, _node_to_pattern
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.traversal import toposort
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise

from adprotocol.errors import UndecidableError
from adprotocol.messages import kind_of
from adprotocol_pytensor.ops import Armed, Prevent, WithinGradient, apart, is_continuous
from adprotocol_pytensor.simplification import TRUE, passed_on, simplified

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

# For a question that was built again, and stayed open, the one that was asked.
_ORIGINS: WeakKeyDictionary[Variable, Variable] = WeakKeyDictionary()


def asks(op: Op) -> bool:
    """Return whether an operation is a question or a guard, or holds one."""
    if isinstance(op, (WithinGradient, Prevent)):
        return True
    if isinstance(op, Blockwise):
        return asks(op.core_op)
    # Not `fgraph`, which compiling rewrites in place: the questions in it may be gone.
    return isinstance(op, HasInnerGraph) and _in(getattr(op, "_frozen_fgraph", None) or op.fgraph)


def _in(graph: Any) -> bool:
    return any(asks(node.op) for node in graph.apply_nodes)


def resolve(
    outputs: Sequence[Variable],
    wrt: Iterable[Variable],
    constants: Iterable[Variable] = (),
    *,
    direct: bool = False,
    only: Container[Variable] | None = None,
) -> Resolution:
    """Answer the questions in a graph whose gradient is taken.

    Args:
        outputs: what is differentiated.
        wrt: what it is differentiated with respect to.
        constants: what the gradient considers constant.
        direct: whether it is a push-forward by the rules of the operations, not a pullback.
        only: the questions, and the operations that hold some, to answer; None for all.
    """
    found = Resolution(dict.fromkeys(constants, False) | dict.fromkeys(wrt, True), direct=direct)
    found.apart = frozenset((*outputs, *wrt))
    found.only = only
    nodes = list(toposort(list(outputs)))
    if any(asks(node.op) for node in nodes):
        found.run(nodes)
    return found


def differentiated(outputs: Sequence[Variable], wrt: Sequence[Variable]) -> list[Variable]:
    """Return the values of `outputs` as a gradient with respect to `wrt` computes them.

    The graph ``y`` alone, compiled beside ``pytensor.grad(y, x)``, is that of a value
    that nobody differentiates.
    """
    new = resolve(outputs, wrt).new
    return [new.get(output, output) for output in outputs]


class Resolution:
    """Which variables carry a derivative, and what replaces those that change.

    Attributes:
        new: the replacement for each variable that changes.
        answered: the questions that became True, and the results of operations in which one did.
    """

    def __init__(self, tracked: dict[Variable, bool], *, direct: bool) -> None:
        self.tracked = tracked
        self.direct = direct
        # These have a gradient of their own: what replaces them must not be a variable that the graph has already.
        self.apart: frozenset[Variable] = frozenset()
        self.only: Container[Variable] | None = None
        self.answered: set[Variable] = set()
        self.new: dict[Variable, Variable] = {}

    def run(self, nodes: Iterable[Apply]) -> None:
        """Answer the questions of these nodes, given in topological order."""
        for node in nodes:
            self._answer(node)

    def is_tracked(self, variable: Variable) -> bool:
        """Return whether the derivative of a variable is not zero by its place in the graph."""
        return self.tracked.get(variable, False)

    def _answer(self, node: Apply) -> None:
        flags = [self.is_tracked(variable) for variable in node.inputs]
        inputs = [self.new.get(variable, variable) for variable in node.inputs]
        if not any(flags):
            # Nothing to answer in it, and no derivative comes out of it.
            self._rebuild(node, node.op, inputs)
            return
        asked = asks(node.op) and (self.only is None or any(output in self.only for output in node.outputs))
        if asked and isinstance(node.op, WithinGradient):
            self.new[node.outputs[0]] = TRUE
            self._note(node)
            return
        if asked and isinstance(node.op, Prevent):
            op: Op = Armed(node.op.message)
            outs = flags
        elif asked:
            op, outs = self._inner(node.op, node, flags)
        else:
            op, chosen = node.op, passed_on(node.op, inputs)
            outs = _outputs_of(node, flags) if chosen is None else [flags[place] for place in chosen]
        for output, flag in zip(node.outputs, outs, strict=True):
            self.tracked.setdefault(output, flag and is_continuous(output))
        self._rebuild(node, op, inputs)

    def _rebuild(self, node: Apply, op: Op, inputs: list[Variable]) -> None:
        if op is not node.op:
            self._note(node)
        elif all(map(_is, inputs, node.inputs)):
            return
        simpler = simplified(op, inputs)
        if simpler is not None:
            results = simpler
        elif op is node.op:
            results = node.clone_with_new_inputs(inputs).outputs
        else:
            results = op.make_node(*inputs).outputs
        for output, result in zip(node.outputs, results, strict=True):
            self.new[output] = apart(result) if output in self.apart else result
            if asks(node.op) and not isinstance(result, Constant):
                _ORIGINS[result] = _ORIGINS.get(output, output)

    def _note(self, node: Apply) -> None:
        self.answered.update(node.outputs)
        self.answered.update(_ORIGINS[output] for output in node.outputs if output in _ORIGINS)

    def _inner(self, op: Op, node: Apply, flags: Sequence[bool]) -> tuple[Op, list[bool]]:
        """Return an operation with the questions in its inner graph answered, and which of its outputs are tracked."""
        if isinstance(op, Blockwise):
            core, outs = self._inner(op.core_op, node, flags)
            if core is op.core_op:
                return op, outs
            new = copy(op)
            new.core_op = core
            return new, outs
        if isinstance(op, OpFromGraph):
            return self._traced(op, node, flags)
        if isinstance(op, Scan):
            return self._loop(op, flags)
        msg = (
            f"within_gradient was asked in the inner graph of {kind_of(op)}, and a gradient goes through it; the "
            "plugin for PyTensor opens scan, OpFromGraph and Blockwise only: ask outside, and use the answer inside"
        )
        raise UndecidableError(msg)

    def _traced(self, op: OpFromGraph, node: Apply, flags: Sequence[bool]) -> tuple[Op, list[bool]]:
        outs = _outputs_of(node, flags)
        rules = op.pushforward_overrides if self.direct else op.pullback_overrides
        if rules is None:
            found = self._inside(op, flags)
            outs = [inner and outer for inner, outer in zip(found.flags, outs, strict=True)]
        elif isinstance(rules, list):
            # One rule for each input (in a push-forward, output); None stands for the derivative of the inner graph.
            ruled = [None not in rules] * len(flags) if self.direct else [rule is not None for rule in rules]
            ruled += [False] * (len(flags) - len(ruled))  # shared variables
            found = self._inside(op, [flag and not rule for flag, rule in zip(flags, ruled, strict=True)])
        else:
            return op, outs  # nothing is differentiated inside
        return found.operation(), outs

    def _loop(self, op: Scan, flags: Sequence[bool]) -> tuple[Op, list[bool]]:
        places = op.get_oinp_iinp_iout_oout_mappings()
        inner_flags = [flags[places["outer_inp_from_inner_inp"][place]] for place in range(len(op.inner_inputs))]
        while True:
            found = self._inside(op, inner_flags)
            outs = found.flags
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
        return found.operation(), outer

    def _inside(self, op: Any, flags: Sequence[bool]) -> _Inside:
        inputs = list(op._frozen_fgraph.inputs)
        return _Inside(op, dict(zip(inputs, flags, strict=True)), direct=self.direct)


class _Inside(Resolution):
    """The same for the inner graph of an operation."""

    def __init__(self, op: Any, tracked: dict[Variable, bool], *, direct: bool) -> None:
        super().__init__(tracked, direct=direct)
        self.op = op
        self.inputs = list(tracked)
        outputs = op._frozen_fgraph.bind(dict(zip(self.inputs, self.inputs, strict=True)))
        self.run(toposort(outputs))
        self.flags = list(map(self.is_tracked, outputs))
        self.outputs = [self.new.get(output, output) for output in outputs]

    def operation(self) -> Any:
        """Return the operation with its questions answered; PyTensor has no function to change an inner graph."""
        op: Any = self.op
        if not self.new and _in(op.fgraph):
            return op
        outputs = [kind.type.filter_variable(out) for kind, out in zip(op.inner_outputs, self.outputs, strict=True)]
        new = copy(op)
        new.fgraph, *_ = construct_nominal_fgraph(self.inputs, outputs)
        new._frozen_fgraph = new.fgraph.freeze()
        new._fn = None
        if isinstance(op, OpFromGraph):
            new._lop_op_cache = {}
            new._rop_op_cache = None
            if op.pullback_overrides is None:
                # Found for the graph before: with the answers some inputs may come to nothing.
                new._connection_pattern = None
        return new


def _is(one: Any, other: Any) -> bool:
    return one is other


def _outputs_of(node: Apply, flags: Sequence[bool]) -> list[bool]:
    if isinstance(node.op, ZeroGrad):
        return [False]
    pattern = _node_to_pattern(node)
    return [
        any(flag and row[place] for flag, row in zip(flags, pattern, strict=True)) for place in range(len(node.outputs))
    ]


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
