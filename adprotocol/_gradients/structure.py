"""A structure: one argument taken apart, and what it takes to put other leaves in.

.. code-block:: text

    argument ──take_apart──> leaves, treespec ──views──> leaves, treespec   (what paths and results show)
        ^                                                     │
        └── what the function gets <──fill── other leaves <───┘

Where an object is shown by a view (a torch module as a dict), the result has
the container, and the function gets the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.table import binding_of, sole_framework
from adprotocol._gradients import enclosing
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees import declaration, path
from adprotocol._trees import traversal as tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol.view import View

Undo = list["Callable[[], None]"]


class Structure:
    """Hold one argument taken apart.

    ``shown`` is the argument with containers in place of the objects that views
    show; ``leaves`` and ``treespec`` are those of ``shown``.
    """

    __slots__ = ("_argument", "_outer", "_outer_spec", "_views", "_watch", "leaves", "shown", "treespec")

    def __init__(self, argument: Any) -> None:
        self._argument = argument
        self._watch = declaration.watching()
        self._outer, self._outer_spec = tree.take_apart(
            argument, sees=None if self._watch is None else self._watch.sees
        )
        # By position among the outer leaves, with what is shown taken apart in
        # turn: a box of a list may hold boxes of lists.
        self._views: dict[int, tuple[View, Structure]] = {}
        if any(binding_of(cls).view is not None for cls in set(map(type, self._outer))):
            self._show()
        else:
            self.shown, self.leaves, self.treespec = argument, self._outer, self._outer_spec
            path.check(self.shown, self.treespec)

    def _show(self) -> None:
        containers: list[Any] = []
        self.leaves = []
        for i, leaf in enumerate(self._outer):
            view = binding_of(type(leaf)).view
            if view is None:
                containers.append(leaf)
                self.leaves.append(leaf)
            else:
                shown = view(leaf)
                inner = Structure(shown.container)
                self._views[i] = (shown, inner)
                containers.append(inner.shown)
                self.leaves.extend(inner.leaves)
        self.shown = tree.rebuild(self._outer_spec, containers, self._argument)
        self.treespec = tree.take_apart(self.shown)[1]
        path.check(self.shown, self.treespec)

    @property
    def paths(self) -> list[str]:
        """Return the path of each leaf."""
        return path.of_structure(self.shown, self.treespec).of_leaves

    def known_paths(self) -> path.Paths:
        """Return the paths with what patterns matched before."""
        return path.of_structure(self.shown, self.treespec)

    def aliases(self) -> list[tuple[str, str]]:
        """Return the further paths of leaves that have several, each with the first."""
        if not any(view.aliases for view, _ in self._views.values()):
            return []
        prefixes = path.of_structure(self._argument, self._outer_spec).of_leaves
        return [
            (f"{prefixes[i]}.{alias}".lstrip("."), f"{prefixes[i]}.{name}".lstrip("."))
            for i, (view, _) in self._views.items()
            for alias, name in view.aliases.items()
        ]

    def framework(self, found: Binding) -> Binding:
        """Return the binding of the one framework among the leaves and what was `found`.

        Raises `MixedFrameworksError` for two.
        """
        for cls in dict.fromkeys(map(type, (*self._outer, *self.leaves))):
            found = sole_framework(found, binding_of(cls))
            if cls is NonDifferentiable:
                for leaf in labelled(self.leaves):
                    found = sole_framework(found, binding_of(type(leaf)))
        return found

    def flags(self) -> list[bool | None]:
        """Return for each leaf whether it takes a gradient: True, False (only if selected), None (never).

        As its type, its flag, the declarations of the classes above it and
        labels say, in the order of `leaves`.
        """
        if self._watch is not None and not self._watch.found:
            return self.capable([True] * len(self.leaves))
        found: list[bool | None] = []
        views = iter(self._views.values())
        declares = declaration.declaring()
        try:
            _collect(self._argument, declares, views, found, frozen=False)
        except RecursionError as error:
            raise tree.too_deep(self._argument) from error
        return found

    def capable(self, wanted: Sequence[bool]) -> list[bool | None]:
        """Return as `flags` does for the leaves that are wanted, without looking at what classes declare."""
        if not self._views:
            return [_flag(leaf) if want else None for leaf, want in zip(self.leaves, wanted, strict=True)]
        found: list[bool | None] = []
        for i, leaf in enumerate(self._outer):
            if i in self._views:
                found.extend(_view_flags(*self._views[i]))
            else:
                found.append(_flag(leaf) if wanted[len(found)] else None)
        return found

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """Return the structure as it is shown, with other leaves."""
        result = tree.rebuild(self.treespec, leaves, self.shown)
        # A treespec made in a graph is Dynamo's, whichever function is left to run after the graph.
        if type(self.treespec).__module__.startswith("optree"):
            path.check_rebuilt(self.shown, self.treespec, result, leaves)
        return result

    def filled(self, leaves: Sequence[Any], undo: Undo) -> Any:
        """Return the argument with other leaves; objects are the same, to be restored by calling what `undo` gets."""
        if not self._views:
            return tree.rebuild(self.treespec, leaves, self.shown)
        outer: list[Any] = []
        start = 0
        for i in range(len(self._outer)):
            if i not in self._views:
                outer.append(leaves[start])
                start += 1
                continue
            view, inner = self._views[i]
            count = len(inner.leaves)
            value, restore = view.fill(inner.filled(leaves[start : start + count], undo))
            undo.append(restore)
            outer.append(value)
            start += count
        return tree.rebuild(self._outer_spec, outer, self._argument)


def labelled(leaves: Sequence[Any]) -> list[Any]:
    """Return what the labels among the leaves hold."""
    return tree.flatten(tuple(leaf.held for leaf in leaves if type(leaf) is NonDifferentiable))


def _collect(
    node: Any,
    declares: Callable[[Any], bool],
    views: Any,
    found: list[bool | None],
    *,
    frozen: bool,
) -> None:
    for leaf in tree.take_apart(node, declares)[0]:
        declared = declares(leaf)
        level = tree.one_level(leaf) if declared else None
        if declared and level is None and binding_of(type(leaf)).key == "opaque":
            declaration.refuse_opaque(leaf)
        if level is not None:
            children, names = level
            chosen = declaration.trainable_names(leaf, names)
            for child, name in zip(children, names, strict=True):
                _collect(child, declares, views, found, frozen=frozen or name not in chosen)
            continue
        if binding_of(type(leaf)).view is not None:
            found.extend(False if frozen else flag for flag in _view_flags(*next(views)))
        else:
            # What a class freezes is not looked into: it may hide arrays.
            found.append(False if frozen else _flag(leaf))


def _view_flags(view: View, inner: Structure) -> list[bool | None]:
    return inner.flags() if view.flags is None else tree.leaves(view.flags)


def _flag(leaf: Any) -> bool | None:
    return binding_of(type(leaf)).trainable(enclosing.original(leaf))
