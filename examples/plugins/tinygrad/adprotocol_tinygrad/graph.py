"""Whether a derivative runs through a tensor: its graph of UOps, read as `Tensor.gradient` will read it.

tinygrad has no tape and no switch. It differentiates a graph afterwards, with respect
to whatever tensor is named. So what can be named is looked for in the graph: a live
floating-point tensor with storage of its own whose flag `is_param` is on, or an argument
that a call of this plugin differentiates. A node of the graph is

- TRACKED, if a derivative can reach such a source from it;
- CONSTANT, if what it depends on was made constant, by ``detach``, a comparison or a flag
  that is off;
- OPEN, if it depends on neither. A live tensor with an open node, such as the random
  numbers from which a layer starts, is a source itself; without one it is a literal.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import TYPE_CHECKING

from tinygrad import dtypes
from tinygrad.function import _function
from tinygrad.tensor import Tensor, all_tensors
from tinygrad.uop.ops import Ops, UOp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

OPEN, CONSTANT, TRACKED = range(3)

# The numbers of what the calls of a derivative under way differentiate, and the buffers of what of it is realised.
numbers: set[int] = set()
realised: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()
# Buffers that hold a realised constant: the graph that told so is gone.
constants: weakref.WeakSet[UOp] = weakref.WeakSet()

# `Tensor.gradient` passes nothing on to the sources of these, whatever they depend on.
_BLOCKED = frozenset({Ops.BITCAST, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
# Where only the first source carries a derivative: the others are shapes.
_VIEWS = frozenset({Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP})


def carries_floats(tensor: Tensor) -> bool:
    """Return whether tinygrad differentiates with respect to a tensor: floats that have a device and a width."""
    return tensor.is_floating_point() and not tensor.uop.is_virtual and tensor.dtype not in dtypes.weaks


def is_tracked(tensor: Tensor) -> bool:
    """Return whether an operation applied to a tensor would be differentiated."""
    return carries_floats(tensor) and Walk().status(tensor.uop) == TRACKED


def is_source(tensor: Tensor) -> bool:
    """Return whether a tensor is what others are computed from: a variable, not the result of an operation."""
    if number_of(tensor.uop) is not None or not carries_floats(tensor):
        return False
    if storage(tensor.uop) is not None:
        return storage(tensor.uop) not in constants
    return Walk().of_sources(tensor.uop) == OPEN


def storage(uop: UOp) -> UOp | None:
    """Return the buffer of a node that has one of its own, None for the result of an operation."""
    if not uop.has_buffer_identity(after_ok=True):
        return None
    while uop.src and uop.op is not Ops.BUFFER:
        uop = uop.src[0]
    return uop if uop.op is Ops.BUFFER else None


class Walk:
    """Find the status of nodes, each once; for one question, as tensors and their flags change between two."""

    def __init__(self, found: dict[UOp, int] | None = None, *, sources: bool = True) -> None:
        self.sources = sources
        self.flags: dict[UOp, bool] = {}
        self.found: dict[UOp, int] = found or (dict.fromkeys(_ruled(), CONSTANT) if sources else {})

    def status(self, root: UOp) -> int:
        """Return OPEN, CONSTANT or TRACKED."""
        self.visit((root,))
        return self.found[root]

    def visit(self, roots: Iterable[UOp]) -> None:
        """Find the status of all that the roots are computed from, which is the cheaper the fewer calls it is."""
        order: dict[UOp, None] = {}
        stack = [(root, False) for root in roots]
        while stack:
            node, entered = stack.pop()
            if entered:
                order[node] = None
            elif node not in order and node not in self.found:
                stack.append((node, True))
                stack.extend((source, False) for source in _followed(node))
        if self.sources and order:
            self.flags.update(_flags(order))
        for node in order:
            self.found[node] = self._of(node)

    def of_sources(self, node: UOp) -> int:
        """Return the status of a node by what it is computed from, whichever tensors it belongs to."""
        self.visit(_followed(node))
        decided = _decided(node)
        return self._computed(node) if decided is None else decided

    def _of(self, node: UOp) -> int:
        decided = _decided(node)
        if decided is not None:
            return decided
        computed = self._computed(node)
        flag = self.flags.get(node)
        if flag is None or computed == TRACKED:
            return computed
        if storage(node) in constants:
            return CONSTANT
        if not flag:
            return CONSTANT
        # A variable may store what was computed from constants, as after the step of an optimizer.
        return TRACKED if computed == OPEN or (node.op is Ops.AFTER and storage(node) is not None) else computed

    def _computed(self, node: UOp) -> int:
        if node.op in _BLOCKED:
            return OPEN if self._most(node.src) == OPEN else CONSTANT
        if node.op is Ops.WHERE:
            chosen = self._most(node.src[1:])
            return CONSTANT if chosen == OPEN and self.found[node.src[0]] != OPEN else chosen
        if node.op is Ops.GETTUPLE and node.src[0].op is Ops.FUNCTION:
            return self._of_result(node.src[0], node.arg)
        if node.op is Ops.AFTER and any(source.op is Ops.STORE for source in node.src[1:]):
            # What was there before is overwritten.
            return self._most(source.src[1] for source in node.src[1:] if source.op is Ops.STORE)
        return self._most(_followed(node))

    def _most(self, nodes: Iterable[UOp]) -> int:
        return max((self.found[node] for node in nodes), default=OPEN)

    def _of_result(self, call: UOp, index: int) -> int:
        """Follow a result of a function of `tinygrad.function` through its body."""
        if call.arg.grad_fxn is not None:
            return self._most(_followed(call))
        body, *given = call.src
        result = body.src[index]
        parameters = {
            node: self.found[given[node.arg.slot]]
            for node in result.toposort()
            if node.op is Ops.PARAM and node.arg.slot < len(given)
        }
        return Walk(parameters, sources=False).status(result)


def _decided(node: UOp) -> int | None:
    """Return the status of a node that no source of it can change."""
    if number_of(node) is not None:
        return TRACKED
    return CONSTANT if node in constants or node.op is Ops.DETACH else None


def _followed(node: UOp) -> tuple[UOp, ...]:
    """Return the sources of a node that matter for its status."""
    if _decided(node) is not None:
        return ()
    if node.op in _VIEWS:
        return node.src[:1]
    if node.op is Ops.GETTUPLE and node.src[0].op is Ops.FUNCTION:
        return node.src[0].src[1:]
    if node.op is Ops.GETTUPLE and node.src[0].op is Ops.TUPLE:
        return (node.src[0].src[node.arg],)
    if node.op in {Ops.FUNCTION, Ops.CALL}:
        return node.src[1:]
    if node.op is Ops.AFTER and any(source.op is Ops.STORE for source in node.src[1:]):
        return tuple(part for source in node.src[1:] for part in (source.src[1:2] if source.op is Ops.STORE else ()))
    if node.op in {Ops.BUFFER, Ops.PARAM}:
        return ()
    return node.src


def _flags(nodes: Collection[UOp]) -> dict[UOp, bool]:
    """Return which of the nodes belong to live tensors, each with its flag: off if that of any tensor is."""
    flags: dict[UOp, bool] = {}
    for reference in list(all_tensors):
        tensor = reference()
        if tensor is not None and tensor.uop in nodes and carries_floats(tensor):
            flags[tensor.uop] = tensor.is_param and flags.get(tensor.uop, True)
    return flags


def _ruled() -> list[UOp]:
    """Return the arguments of the functions under way that have a gradient rule of their own.

    tinygrad runs such a function on the tensors themselves, and puts its rule in the place of their derivatives when
    it has returned; only the frames of these calls tell until then.
    """
    found: list[UOp] = []
    frame = sys._getframe() if _function.depth else None
    while frame is not None:
        if frame.f_code is _function.__call__.__code__ and frame.f_locals["self"].grad_fxn is not None:
            found += frame.f_locals.get("call_uops", ())
        frame = frame.f_back
    return found


_counted = itertools.count()


def fresh(tensor: Tensor) -> tuple[Tensor, int]:
    """Return the same value with a node that nothing else has, through which derivatives pass, and its number."""
    # A graph of tinygrad has each node once, so that a plain operation would give the node that the function's own
    # operation gives; the argument, of which tinygrad makes nothing here, makes it another.
    number = next(_counted)
    return Tensor(UOp(Ops.CONTIGUOUS_BACKWARD, src=(tensor.uop,), arg=("adprotocol", number))), number


def number_of(node: UOp) -> int | None:
    """Return the number of an argument of a call under way, None for any other node."""
    if not numbers:
        return None
    # By its number, as the same argument has another node in the body of a function that closes over it.
    number = node.arg[1] if node.op is Ops.CONTIGUOUS_BACKWARD and node.arg is not None else realised.get(node)
    return number if number in numbers else None


def numbers_in(uop: UOp) -> set[int]:
    """Return the numbers of the arguments to which a derivative of a graph leads."""
    found = map(number_of, passed(uop)) if numbers else ()
    return {number for number in found if number is not None}


def passed(uop: UOp) -> Iterable[UOp]:
    """Return the nodes of a graph that no ``detach`` and no comparison keeps derivatives from."""
    return uop.toposort(gate=lambda node: node.op is not Ops.DETACH and node.op not in _BLOCKED)


def inlined(uop: UOp, own: set[int]) -> UOp:
    """Return a graph without the functions of tinygrad that close over arguments.

    Such a function takes buffers as its inputs, whatever was computed from them it keeps in its body, and
    `Tensor.gradient` finds no argument there: the derivative would be zero.
    """
    while True:
        replaced: dict[UOp, UOp] = {}
        for node in uop.toposort(enter_calls=False):
            if (
                node.op is not Ops.GETTUPLE
                or node.src[0].op is not Ops.FUNCTION
                or node.src[0].arg.grad_fxn is not None
            ):
                continue
            body, *given = node.src[0].src
            if not numbers_in(body).isdisjoint(own):
                parameters = {
                    part: given[part.arg.slot] for part in body.toposort(enter_calls=False) if part.op is Ops.PARAM
                }
                replaced[node] = body.src[node.arg].substitute(parameters, walk=True)
        if not replaced:
            return uop
        uop = uop.substitute(replaced, walk=True)
