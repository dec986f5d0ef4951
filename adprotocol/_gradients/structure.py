"""A structure: one argument flattened, and how to rebuild it with other leaves.

.. code-block:: text

    argument ──tree_flatten──> leaves, treespec ──views──> leaves, treespec   (as paths and results show it)
        ^                                                       │
        └──────── argument of the function  <──fill── leaves <──┘

Where an object has a view (a module, as a dict from name to parameter), results
have the container of the view, and the function gets the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.binding import OPAQUE
from adprotocol._dispatch.table import BINDINGS, binding_of, join, sole_framework
from adprotocol._trees import declaration, node, path
from adprotocol._trees.opaque import check_opaque
from adprotocol._trees.traversal import (
    container_leaves,
    flatten_one_level,
    too_deep,
    tree_flatten,
    tree_unflatten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol.view import View

Undo = list["Callable[[], None]"]


class Structure:
    """Hold one `argument` flattened.

    `tree` is the argument with each object that has a view replaced by the container
    of the view. `leaves` and `treespec` belong to `tree`. `bindings` are those of the
    leaves, by class; `identities` the keys of the leaves that have one, by position.
    """

    __slots__ = (
        "_declares",
        "_outer",
        "_outer_spec",
        "_views",
        "argument",
        "bindings",
        "identities",
        "leaves",
        "tree",
        "treespec",
    )  # fmt: skip

    def __init__(self, argument: Any) -> None:
        self.argument = argument
        known = node.known_libraries()
        self._outer, self._outer_spec, self._declares = declaration.flatten_declaring(argument)
        # By position among the outer leaves, with the flattened container of the view: a box of a list may hold boxes
        # of lists.
        self._views: dict[int, tuple[View, Structure]] = {}
        self.bindings = {cls: binding_of(cls) for cls in dict.fromkeys(map(type, self._outer))}
        if node.known_libraries() != known:
            # A leaf was the first of its framework, whose trees may know a class above it.
            self._outer, self._outer_spec, self._declares = declaration.flatten_declaring(argument)
        if [binding for binding in self.bindings.values() if binding.view is not None]:
            self._expand_views()
        else:
            self.tree, self.leaves, self.treespec = argument, self._outer, self._outer_spec
        path.check_paths(self.tree, self.treespec)
        self.identities = self._identify()

    def _identify(self) -> dict[int, Any]:
        if not [binding for binding in self.bindings.values() if binding.identity is not None]:
            return {}
        found: dict[int, Any] = {}
        for i, leaf in enumerate(self.leaves):
            identity = self.bindings[type(leaf)].identity
            key = None if identity is None else identity(leaf)
            if key is not None:
                found[i] = key
        return found

    def _expand_views(self) -> None:
        containers: list[Any] = []
        self.leaves = []
        for i, leaf in enumerate(self._outer):
            view = self.bindings[type(leaf)].view
            if view is None:
                containers.append(leaf)
                self.leaves.append(leaf)
            else:
                found = view(leaf)
                inner = Structure(found.container)
                self.bindings.update(inner.bindings)
                self._views[i] = (found, inner)
                containers.append(inner.tree)
                self.leaves.extend(inner.leaves)
        self.tree = tree_unflatten(self._outer_spec, containers, self.argument)
        self.treespec = tree_flatten(self.tree)[1]

    @property
    def paths(self) -> path.Paths:
        """Return the paths of the leaves, with the results of earlier pattern matches."""
        return path.paths_of(self.tree, self.treespec)

    def aliases(self) -> list[tuple[str, str]]:
        """Return each further path of a leaf that has several, with its first path."""
        if not any(view.aliases for view, _ in self._views.values()):
            return []
        prefixes = path.paths_of(self.argument, self._outer_spec).of_leaves
        return [
            (f"{prefixes[i]}.{alias}".lstrip("."), f"{prefixes[i]}.{name}".lstrip("."))
            for i, (view, _) in self._views.items()
            for alias, name in view.aliases.items()
        ]

    def framework(self, found: Binding | None = None) -> Binding:
        """Return the binding of the one framework among the leaves and the binding already `found`.

        Raises `MixedFrameworksError` for two.
        """
        sole = BINDINGS.PLAIN if found is None else found
        for cls, binding in self.bindings.items():
            sole = join(sole, binding)
            if binding.held is not None:
                held = binding.held([leaf for leaf in self.leaves if type(leaf) is cls])
                sole = sole_framework(held, sole) if held else sole
        return sole

    def flags(self) -> list[bool | None]:
        """Return for each leaf whether it takes a gradient: True, False (only if selected), None (never).

        Decided by its type, its flag, its label and the declarations of the classes
        above it; in the order of `leaves`.
        """
        if not self._declares:
            return self.capable([True] * len(self.leaves))
        found: list[bool | None] = []
        views = iter(self._views.values())
        try:
            _collect(self.argument, declaration.declaring(), views, found, self.argument, frozen=False)
        except RecursionError as error:
            raise too_deep(self.argument) from error
        return found

    def capable(self, mask: Sequence[bool]) -> list[bool | None]:
        """Return `flags` for the leaves in the mask, ignoring the declarations of classes."""
        if not self._views:
            return self._capable_leaves(mask)
        found: list[bool | None] = []
        for i, leaf in enumerate(self._outer):
            if i in self._views:
                found.extend(_view_flags(*self._views[i]))
            else:
                found.append(_flag(leaf, self.argument) if mask[len(found)] else None)
        return found

    def _capable_leaves(self, mask: Sequence[bool]) -> list[bool | None]:
        bindings = self.bindings
        if not [binding for binding in bindings.values() if binding.kind is OPAQUE]:
            return [
                bindings[type(leaf)].trainable(leaf) if wanted else None
                for leaf, wanted in zip(self.leaves, mask, strict=True)
            ]
        # An object of unknown class is searched for arrays, 1 ms for a function that JAX made: once for all its places.
        searched: dict[int, bool | None] = {}
        found: list[bool | None] = []
        for leaf, wanted in zip(self.leaves, mask, strict=True):
            binding = bindings[type(leaf)]
            if not wanted:
                found.append(None)
            elif binding.kind is not OPAQUE:
                found.append(binding.trainable(leaf))
            else:
                if id(leaf) not in searched:
                    searched[id(leaf)] = _flag(leaf, self.tree)
                found.append(searched[id(leaf)])
        return found

    def with_leaves(self, leaves: Sequence[Any]) -> Any:
        """Return `tree` with other leaves, which may be None."""
        result = tree_unflatten(self.treespec, leaves, self.tree)
        path.check_keeps_none(self.tree, self.treespec, result, leaves)
        return result

    def fill(self, leaves: Sequence[Any], undo: Undo) -> Any:
        """Return the argument with other leaves; viewed objects are filled in place, and `undo` gets their undo."""
        if not self._views:
            return tree_unflatten(self.treespec, leaves, self.tree)

        def show(view: View, inner: Structure, part: Sequence[Any]) -> Any:
            value, restore = view.fill(inner.fill(part, undo))
            undo.append(restore)
            return value

        return self._with_views(leaves, show)

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return a new value like the argument, with other leaves; viewed objects stay as they are."""
        if not self._views:
            return tree_unflatten(self.treespec, leaves, self.tree)
        return self._with_views(leaves, lambda view, inner, part: view.rebuild(inner.rebuild(part)))

    def _with_views(self, leaves: Sequence[Any], show: Callable[[View, Structure, Sequence[Any]], Any]) -> Any:
        outer: list[Any] = []
        start = 0
        for i in range(len(self._outer)):
            if i not in self._views:
                outer.append(leaves[start])
                start += 1
                continue
            view, inner = self._views[i]
            count = len(inner.leaves)
            outer.append(show(view, inner, leaves[start : start + count]))
            start += count
        return tree_unflatten(self._outer_spec, outer, self.argument)


def _collect(  # noqa: PLR0913  (`whole` is for messages)
    node: Any,
    declares: Callable[[Any], bool],
    views: Any,
    found: list[bool | None],
    whole: Any,
    *,
    frozen: bool,
) -> None:
    for leaf in tree_flatten(node, declares)[0]:
        declared = declares(leaf)
        level = flatten_one_level(leaf) if declared else None
        if declared and level is None and binding_of(type(leaf)).kind is OPAQUE:
            declaration.refuse_opaque(leaf)
        if level is not None:
            children, names = level
            trained = declaration.trainable_names(leaf, names)
            for child, name in zip(children, names, strict=True):
                _collect(child, declares, views, found, whole, frozen=frozen or name not in trained)
            continue
        if binding_of(type(leaf)).view is not None:
            found.extend(False if frozen else flag for flag in _view_flags(*next(views)))
        else:
            # Frozen fields are not searched for hidden arrays.
            found.append(False if frozen else _flag(leaf, whole))


def _view_flags(view: View, inner: Structure) -> list[bool | None]:
    return inner.flags() if view.flags is None else container_leaves(view.flags)


def _flag(leaf: Any, whole: Any) -> bool | None:
    binding = binding_of(type(leaf))
    if binding.kind is OPAQUE:
        # Arrays that it hides would be frozen silently.
        check_opaque(leaf, (whole,))
    return binding.trainable(leaf)
