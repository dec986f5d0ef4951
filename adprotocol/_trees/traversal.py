"""The one traversal, in plain Python: eager code runs it, and a compiler that traces Python traces it.

The binding of a class has the functions that flatten and rebuild its instances
(`adprotocol._trees.node`); everything else is a leaf, including ``None`` and
`NonDifferentiable`.
"""

from __future__ import annotations

from adprotocol._dispatch.binding import CLASS, FUNCTION, LABEL, NUMPY, OPAQUE, VIEWED, Binding
from adprotocol._dispatch.table import BINDINGS, TABLE, join, lookup
from adprotocol._trees import declaration, node
from adprotocol._trees.treespec import Viewed, build
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ADProtocolError, TreeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from adprotocol._trees.treespec import Treespec
    from adprotocol.hookspecs import View


# How deep a structure may be, whatever Python's own limit (1,000 frames, one a level): hashing a treespec takes a frame
# of C for each level.
DEEPEST = 2_000
# As many children are looked at one by one.
_FEW = 8


def binding_for(value: Any) -> Binding:
    """Return the binding of a value; a class that only a plugin knows as a container is asked for by the value."""
    binding = TABLE.get(type(value))
    if binding is None:
        binding = lookup(type(value))
        if binding.kind is OPAQUE:
            return admitted(value)
    return binding


def admitted(value: Any) -> Binding:
    """Return the binding of an object of unknown class: a node, if a plugin knows its class as one."""
    return getattr(BINDINGS, admit(value))  # type: ignore[no-any-return]


def admit(value: Any) -> str:
    """Return the name of that binding."""
    functions = node.library_functions(value)
    if functions is None:
        return lookup(type(value)).name
    TABLE[type(value)] = binding = BINDINGS.container_binding(type(value), *functions)
    return binding.name


def is_container(value: Any) -> bool:
    """Return whether the traversal flattens `value`."""
    return binding_for(value).flatten is not None


class Flattened:
    """Hold what one pass over a value finds: leaves, treespec, and the bindings of the leaves by class.

    Where views are opened, an object that has one (a module) is a node above its
    container; `views` holds each with the position of its first leaf. Inside a node of a
    framework's own trees, a dataclass that these see as a leaf is one, unless it holds
    an array, a float or None, or may hold one in another part; `buffers` holds the
    ranges of leaves below nodes that never take a gradient. Where declarations count,
    `frozen` holds the ranges of leaves that the classes above them freeze. A node for
    which `is_leaf` is True is a leaf that takes no gradient. With `labels`, a label is a
    node above the constant in it, and an array that is also a container (the box of a
    dict) is that container; with `elements`, an array of objects is a node above these.

    Raises `TreeError` for a structure that contains itself or is too deep.
    """

    def __init__(  # noqa: PLR0913  (what counts as a node)
        self,
        value: Any,
        *,
        opened: bool = False,
        declared: bool = False,
        is_leaf: Callable[[Any], bool] | None = None,
        labels: bool = False,
        elements: bool = False,
    ) -> None:
        binding = binding_for(value)
        is_open = (opened and binding.view is not None) or (labels and binding.kind in (LABEL, VIEWED))
        is_open = is_open or (elements and binding.kind is NUMPY)
        self.treespec: Treespec = None
        self.leaves: list[Any] = []
        self.bindings: dict[type, Binding] = {}
        self.views: list[tuple[int, View]] = []
        self.frozen: list[tuple[int, int]] = []
        self.buffers: list[tuple[int, int]] = []
        if binding.flatten is None and not is_open:
            self.leaves.append(value)
            self.bindings[type(value)] = binding
            return
        self._is_leaf = is_leaf
        self._opened = opened
        self._declared = declared
        self._labels = labels
        self._elements = elements
        # The classes that were met and declare nothing.
        self._silent: set[type] = set()
        self._in_library = False
        self._inert: list[type] = []
        try:
            self.treespec = self._visit(value, 0)
        except RecursionError as error:
            raise too_deep(value) from error
        # Only now: another instance may be opened.
        for cls in self._inert:
            self.bindings[cls] = BINDINGS.OPAQUE

    def _visit(self, value: Any, depth: int) -> Treespec:
        cls = type(value)
        binding = binding_for(value)
        if binding.flatten is None:
            return self._visit_leaf(value, binding, depth)
        if depth > DEEPEST:
            raise RecursionError
        if self._is_leaf is not None and self._is_leaf(value):
            return self._unopened(value)
        children, metadata, names = binding.flatten(value)
        start = len(self.leaves)
        outside = self._in_library
        if binding.origin is not None and self._opened:
            if outside and binding.origin == "fields" and is_inert(children):
                return self._unopened(value)
            self._in_library = outside or binding.origin != "fields"
        if self._declared and cls not in self._silent and not declaration.declares(cls):
            self._silent.add(cls)
        if self._declared and cls not in self._silent:
            specs = self._visit_declared(value, children, names, depth)
        else:
            known, leaves = self.bindings, self.leaves
            if len(children) > _FEW and set(map(type, children)) <= known.keys():
                leaves.extend(children)
                specs = [None] * len(children)
            else:
                specs = []
                for child in children:
                    # Nothing is called for a leaf of a class that was met.
                    if type(child) in known:
                        leaves.append(child)
                        specs.append(None)
                    else:
                        specs.append(self._visit(child, depth + 1))
        self._in_library = outside
        if binding.origin == "buffer":
            self.buffers.append((start, len(self.leaves)))
        return (cls, metadata, names, tuple(specs))

    def _unopened(self, value: Any) -> Treespec:
        self._inert.append(type(value))
        self.leaves.append(value)
        return None

    def _visit_leaf(self, value: Any, binding: Binding, depth: int) -> Treespec:
        cls = type(value)
        if self._opened and binding.view is not None:
            view = binding.view(value)
            self.views.append((len(self.leaves), view))
            return (Viewed, view, ("",), (self._visit(view.container, depth + 1),))
        if self._labels and binding.kind is LABEL:
            return (cls, None, ("",), (self._visit(value.value, depth + 1),))
        if self._labels and binding.kind is VIEWED and binding.view is not None:
            return self._visit(binding.view(value).container, depth + 1)
        if self._elements and binding.kind is NUMPY:
            parts = binding.stands_for(value)  # type: ignore[misc]
            if parts is not None:
                return (cls, value, tuple(range(len(parts))), tuple([self._visit(part, depth + 1) for part in parts]))
        else:  # an array of objects has the class of others
            self.bindings[cls] = binding
        self.leaves.append(value)
        return None

    def _visit_declared(self, value: Any, children: Sequence[Any], names: Sequence[Any], depth: int) -> list[Treespec]:
        trained = declaration.trainable_names(value, [str(name) for name in names])
        specs: list[Treespec] = []
        for child, name in zip(children, names, strict=True):
            start = len(self.leaves)
            specs.append(self._visit(child, depth + 1))
            if str(name) not in trained:
                self.frozen.append((start, len(self.leaves)))
        return specs


def is_inert(children: Sequence[Any]) -> bool:
    """Return whether there are only settings among the children: integers, texts and functions."""
    classes = set(map(type, tree_leaves(tuple(children))))
    return not [cls for cls in classes if cls not in (int, str, bytes) and lookup(cls).kind not in (FUNCTION, CLASS)]


def tree_flatten(tree: Any, *, labels: bool = False, elements: bool = False) -> tuple[list[Any], Treespec]:
    """Return the leaves in order, ``None`` among them, and the treespec; `labels` and `elements` are of `Flattened`."""
    flat = Flattened(tree, labels=labels, elements=elements)
    return flat.leaves, flat.treespec


def tree_leaves(values: tuple[Any, ...]) -> list[Any]:
    """Return the leaves of several values in order.

    Raises `TreeError` for a structure that contains itself or is too deep.

    >>> from adprotocol.extend import tree_leaves
    >>> tree_leaves(({"a": 1.0, "b": [2.0]}, 3))
    [1.0, 2.0, 3]
    """
    leaves: list[Any] = []
    try:
        _collect(leaves, values, set(), 0)
    except RecursionError as error:
        raise too_deep(next(filter(is_container, values))) from error
    return leaves


def _collect(leaves: list[Any], values: Collection[Any], known: set[type], depth: int) -> None:
    """Add the leaves among the values; `known` are the classes met whose instances are leaves."""
    if depth > DEEPEST:
        raise RecursionError
    for value in values:
        if type(value) in known:
            leaves.append(value)
            continue
        binding = binding_for(value)
        if binding.contents is None:
            leaves.append(value)
            if binding.kind is not OPAQUE:
                known.add(type(value))
            continue
        parts = binding.contents(value)[0]
        if known.issuperset(map(type, parts)):
            leaves.extend(parts)
        else:
            _collect(leaves, parts, known, depth + 1)


def leaves_by_class(values: Collection[Any]) -> list[tuple[Binding, Collection[Any]]]:
    """Return the leaves of several values in groups of one class, each with its binding, for a question about all."""
    classes = set(map(type, values))
    if len(classes) == 1:
        binding = lookup(next(iter(classes)))
        if binding.contents is None and binding.kind is not OPAQUE:
            return [(binding, values)]
    leaves = tree_leaves(tuple(values))
    return [(lookup(cls), [leaf for leaf in leaves if type(leaf) is cls]) for cls in dict.fromkeys(map(type, leaves))]


def sole_framework(values: Collection[Any], sole: Binding) -> Binding:
    """Return the binding of the one framework among the leaves of some values and the binding `sole`.

    The values in labels and object arrays count too.

    Raises `MixedFrameworksError` for two frameworks.
    """
    for value in values:
        binding = lookup(type(value))
        if binding.framework is not None:
            sole = binding if sole.framework is None else join(sole, binding)
        elif binding is not BINDINGS.PLAIN:
            try:
                parts = (value,) if binding.contents is None else binding.contents(value)[0]
                for inner, leaves in leaves_by_class(parts):
                    sole = join(sole, inner)
                    if inner.framework is None and inner.stands_for is not None:
                        for leaf in leaves:
                            sole = sole_framework(inner.stands_for(leaf) or (), sole)
            except RecursionError as error:  # an object array that contains itself
                raise too_deep(value) from error
    return sole


def tree_unflatten(
    treespec: Treespec, leaves: Sequence[Any], tree: Any, show: Callable[[View, Any], Any] | None = None
) -> Any:
    """Return a structure like `tree`, whose treespec is `treespec`, with other leaves."""
    try:
        return build(treespec, iter(leaves), show)
    except ADProtocolError:  # of a view
        raise
    # A user's constructor may raise anything when given other leaves.
    except Exception as error:
        if show is not None:
            tree_unflatten(treespec, leaves, tree)
            raise  # the error is of what fills a viewed object
        raise TreeError(
            f"the {type(tree).__qualname__} given to adprotocol has a node that cannot be rebuilt from its leaves "
            f"({type(error).__name__}: {error}); let its unflatten function accept any leaf, None included (set the "
            "attributes instead of calling a constructor that checks them), or pass the arrays themselves"
        ) from error


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a container, or a single leaf, with `function` applied to every leaf.

    >>> from adprotocol.extend import tree_map
    >>> tree_map(lambda leaf: 2.0 * leaf, {"w": 1.0, "b": [2.0]})
    {'w': 2.0, 'b': [4.0]}
    """
    leaves, treespec = tree_flatten(tree)
    return tree_unflatten(treespec, [function(leaf) for leaf in leaves], tree)


def too_deep(tree: Any) -> TreeError:
    """Return the error for a structure that contains itself or is too deep."""
    return TreeError(
        f"the {type(tree).__qualname__} given to adprotocol contains itself, or is nested deeper than the recursion "
        f"limit (sys.setrecursionlimit) and {DEEPEST:,} levels. Break the cycle, or pass the arrays themselves"
    )
