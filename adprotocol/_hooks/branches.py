"""The two branches of a `cond` whose predicate is not known yet: run, compared, and their result put together.

A framework's control flow takes only arrays, the same from both branches. So a
plugin gives it the arrays in the results; the structures around them, and what is no
array, are compared and put back here.
"""

from __future__ import annotations

from adprotocol._dispatch.dtype import dtype_name, holds
from adprotocol._dispatch.shape import may_be_equal, sizes
from adprotocol._trees.traversal import tree_flatten
from adprotocol._trees.treespec import build, children_of, is_label, same_constant, same_node
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import BranchMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from adprotocol._trees.treespec import Treespec

NUMBERS = (bool, int, float, complex)

# The structure of a result, and for each leaf whether it is lifted into the framework's control flow, with its type or
# number if it is, else with itself. No array, which must not outlive a trace.
Returned = tuple["Treespec", tuple[tuple[bool, Any], ...]]


# No named tuple, whose class takes 1 ms to make when the package is imported.
class ArrayType:
    """What the arrays of two branches must have in common; a shape, or a size in it, that is not known yet is None."""

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: Any, shape: tuple[Any, ...] | None) -> None:
        self.dtype, self.shape = dtype, shape

    def __str__(self) -> str:
        shown = "..." if self.shape is None else ",".join("?" if size is None else str(size) for size in self.shape)
        return f"{dtype_name(self.dtype)}[{shown}]"


class Branches:
    """Run and compare two branches of which a staged or batched predicate chooses one.

    A plugin runs both, by `run_true` and `run_false`, where its framework wants it, gives the framework the two lists
    of arrays, and returns `result` of the list that comes out. Between, `compare` refuses what does not match, for
    a framework that would not. A subclass may say what is an array (`type_of`), what an array of NumPy becomes
    (`converted`) and which types match (`agree`).

    >>> import numpy as np
    >>> from adprotocol.extend import Branches
    >>> true_fun, false_fun = lambda x: {"y": 2.0 * x, "name": "n"}, lambda x: {"y": -x, "name": "n"}
    >>> branches = Branches(np.ndarray, true_fun, false_fun, (np.ones(2),))
    >>> pairs = zip(branches.run_true(), branches.run_false())
    >>> [(str(one), str(other)) for one, other in branches.compare()]
    [('float64[2]', 'float64[2]')]
    >>> branches.result([np.where([True, False], one, other) for one, other in pairs])
    {'y': array([ 2., -1.]), 'name': 'n'}

    Args:
        arrays: the class of the framework's arrays, or several.
        true_fun: the branch for True, called with the operands.
        false_fun: the branch for False.
        operands: anything; what is given to both.

    Raises:
        BranchMismatchError: from `compare` and `result`, if the branches return what does not match.
    """

    # How an error begins that shows results which do not match.
    subject: str = "the branches of a staged or batched cond must return equal structures, shapes and dtypes"

    def __init__(
        self,
        arrays: type | tuple[type, ...],
        true_fun: Callable[..., Any],
        false_fun: Callable[..., Any],
        operands: tuple[Any, ...] = (),
    ) -> None:
        self.arrays: Any = arrays
        self.true_fun: Callable[..., Any] = true_fun
        self.false_fun: Callable[..., Any] = false_fun
        self.operands = operands
        # Once the branches have run, each is a `Returned`.
        self.of_true: Any = None
        self.of_false: Any = None

    def flattened(self, if_true: Any, if_false: Any) -> tuple[list[Any], list[Any]]:
        """Return the arrays and numbers in the results of the branches, which ran elsewhere."""
        return self._flattened(if_true, taken=True), self._flattened(if_false, taken=False)

    def run_true(self) -> list[Any]:
        """Run the branch for True, and return the arrays and numbers in its result."""
        return self._flattened(self.true_fun(*self.operands), taken=True)

    def run_false(self) -> list[Any]:
        """Run the branch for False, and return the arrays and numbers in its result."""
        return self._flattened(self.false_fun(*self.operands), taken=False)

    def _flattened(self, result: Any, *, taken: bool) -> list[Any]:
        parts, structure = tree_flatten(result, labels=True)
        leaves = [self.converted(leaf) for leaf in parts]
        described = tuple([self._described(leaf) for leaf in leaves])
        self.keep((structure, described), taken=taken)
        return [leaf for leaf, (lifted, _) in zip(leaves, described, strict=True) if lifted]

    def _described(self, leaf: Any) -> tuple[bool, Any]:
        kind = self.type_of(leaf)
        return (isinstance(leaf, NUMBERS), leaf) if kind is None else (True, kind)

    def keep(self, returned: Returned, *, taken: bool) -> None:
        """Remember what a branch returned, besides its arrays."""
        if taken:
            self.of_true = returned
        else:
            self.of_false = returned

    def converted(self, leaf: Any) -> Any:
        """Return what stands for a leaf of a result: an array, for one of NumPy that the framework does not take."""
        return leaf

    def type_of(self, leaf: Any) -> Any:
        """Return the type of an array, None for any other leaf; errors show it by `str`."""
        if not isinstance(leaf, self.arrays):
            return None
        return ArrayType(getattr(leaf, "dtype", None), sizes(leaf))

    @property
    def remedy(self) -> str:
        """Say what to do where the branches do not match."""
        return "Make them equal (broadcast, cast, or return zeros of the same shape)"

    def agree(self, one: Any, other: Any) -> bool:
        """Return whether two branches may return these at one place: types, or any two Python numbers."""
        if isinstance(one, NUMBERS):
            return isinstance(other, NUMBERS) or _takes(other, one)
        if isinstance(other, NUMBERS):
            return _takes(one, other)
        return bool(one.dtype == other.dtype) and may_be_equal(one.shape, other.shape)

    def compare(self) -> list[tuple[Any, Any]]:
        """Return for each array the type, or number, that each branch returned; raise if the branches do not match."""
        _, leaves, others = self._matched()
        pairs = [(one, other) for (lifted, one), (_, other) in zip(leaves, others, strict=True) if lifted]
        if not all(self.agree(one, other) for one, other in pairs):
            raise self.mismatch()
        return pairs

    def result(self, arrays: Iterable[Any]) -> Any:
        """Return the arrays in the structure that both results have, which are compared but for the arrays."""
        structure, leaves, _ = self._matched()
        chosen = iter(arrays)
        return build(structure, iter([next(chosen) if lifted else constant for lifted, constant in leaves]))

    def _matched(self) -> tuple[Treespec, Any, Any]:
        (structure, leaves), (other, others) = self.of_true, self.of_false
        common = common_structure(structure, other)
        if common is NotImplemented or not all(map(_matches, leaves, others)):
            raise self.mismatch()
        return common, leaves, others

    def show(self, kind: Any) -> str:
        """Return a type, or a Python number, as errors show it."""
        return str(kind)

    def mismatch(self) -> BranchMismatchError:
        """Return the error that shows what both branches returned."""
        if_true, if_false = (
            show_result(structure, iter([self.show(leaf) if lifted else f"{leaf!r:.60}" for lifted, leaf in leaves]))
            for structure, leaves in (self.of_true, self.of_false)
        )
        return BranchMismatchError(f"{self.subject}: true_fun returned {if_true}, false_fun {if_false}. {self.remedy}")


def _matches(leaf: tuple[bool, Any], other: tuple[bool, Any]) -> bool:
    (lifted, one), (other_lifted, two) = leaf, other
    return lifted == other_lifted and (lifted or one is two or (type(one) is type(two) and same_constant(one, two)))


def _takes(kind: Any, number: complex) -> bool:
    return kind.shape in ((), None) and holds(kind.dtype, number)


def common_structure(one: Treespec, other: Treespec) -> Any:
    """Return the structure that two results have in common, or NotImplemented if their structures differ.

    A label stays where both have one; a label against a plain value is the constant that it holds.
    """
    if is_label(one) is not is_label(other):
        return common_structure(*(children_of(spec)[0] if is_label(spec) else spec for spec in (one, other)))
    if one is None or other is None:
        return None if one is other else NotImplemented
    if not same_node(one, other):
        return NotImplemented
    cls, metadata, names, children = one
    common = [common_structure(*pair) for pair in zip(children, children_of(other), strict=True)]
    return NotImplemented if NotImplemented in common else (cls, metadata, names, tuple(common))


def show_result(structure: Treespec, leaves: Iterator[str]) -> str:
    """Return a result as error messages show it, given its leaves as text."""
    if structure is None:
        return next(leaves)
    cls, metadata, names, children = structure
    texts = [show_result(child, leaves) for child in children]
    if cls is list:
        return f"[{', '.join(texts)}]"
    if cls is tuple:
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if cls is dict:
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in zip(names, texts, strict=True)) + "}"
    fields = ", ".join(f"{name}={text}" if name else text for name, text in zip(names, texts, strict=True))
    # Metadata of more than the names: static fields, which may be what differs.
    static = "" if metadata is None or metadata == names else f" with {metadata!r:.200}"
    return f"{cls.__qualname__}({fields}){static}"
