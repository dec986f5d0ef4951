"""A structure: one argument flattened, and how to rebuild it with other leaves.

.. code-block:: text

    argument ──Flattened──> leaves, treespec, bindings, views, frozen ranges
        ^                      │
        └──fill────────────────┤   the argument of the function
    result <──with_leaves──────┘   gradients, parts

Where an object has a view (a module, as a dict from name to parameter), results
have the container of the view, and the function gets the object.
"""

from __future__ import annotations

from adprotocol._dispatch.binding import OPAQUE
from adprotocol._dispatch.registry import REGISTRY
from adprotocol._dispatch.table import BINDINGS, join
from adprotocol._trees import declaration, treespec
from adprotocol._trees.held import check_opaque
from adprotocol._trees.traversal import Flattened, sole_framework, tree_leaves, tree_unflatten
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import BackendError, TreeError
from adprotocol.messages import full_kind_of, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol.hookspecs import View

Undo = list["Callable[[], None]"]


class Structure(Flattened):
    """Hold one `argument` flattened, its views opened.

    `shown` is the treespec of results, in which a view is its container.
    `identities` are the keys of the leaves that have one, by position; `mask` tells for
    each leaf whether it is differentiated, once that is known. With `declared`, `flags`
    follows the declarations of the classes. With `is_frozen`, nothing is selected.
    """

    def __init__(
        self,
        argument: Any,
        *,
        declared: bool = False,
        is_leaf: Callable[[Any], bool] | None = None,
        is_frozen: bool = False,
    ) -> None:
        super().__init__(argument, opened=True, declared=declared, is_leaf=is_leaf)
        self.argument = argument
        self.shown = treespec.without_views(self.treespec) if self.views else self.treespec
        self.mask: list[bool] = [False] * len(self.leaves) if is_frozen else []
        self._has_opaque = self._has_foreign = False
        for binding in self.bindings.values():
            self._has_opaque |= binding.kind is OPAQUE
            self._has_foreign |= binding is BINDINGS.WITHOUT_AD
        self.identities: dict[int, Any] = identities_of(self.leaves, self.bindings)

    @property
    def paths(self) -> list[str]:
        """Return the paths of the leaves."""
        return treespec.paths(self.shown)

    def aliases(self) -> dict[str, str]:
        """Return each further path of a leaf that has several, with its first path."""
        views: list[tuple[str, View]] = []
        if any(view.aliases for _, view in self.views):
            treespec.paths(self.treespec, views=views)
        return {
            f"{prefix}.{alias}".lstrip("."): f"{prefix}.{name}".lstrip(".")
            for prefix, view in views
            for alias, name in view.aliases.items()
        }

    def check_like(self, other: Structure, call: str, name: str, other_name: str) -> None:
        """Raise `TreeError` where another structure differs; `call` was given both, by these names."""
        if not treespec.treespecs_equal(self.shown, other.shown):
            what = treespec.difference(self.shown, other.shown, name, other_name)
            raise TreeError(
                f"{call} was given structures that do not match: {what}. Pass parts of one, None for missing leaves"
            )

    def framework(self, found: Binding | None = None) -> Binding:
        """Return the binding of the one framework among the leaves and the binding already `found`.

        Raises `MixedFrameworksError` for two.
        """
        sole = BINDINGS.PLAIN if found is None else found
        for cls, binding in self.bindings.items():
            sole = join(sole, binding)
            if binding.framework is None and binding.stands_for is not None:
                own = [leaf for leaf in self.leaves if type(leaf) is cls]
                sole = sole_framework([part for leaf in own for part in binding.stands_for(leaf) or ()], sole)
        return sole

    def flags(self) -> list[bool | None]:
        """Return for each leaf whether it takes a gradient: True, False (only if selected), None (never).

        Decided by its type, its flag, its label and the declarations of the classes above it.
        """
        allowed = [True] * len(self.leaves)
        if not (self._has_opaque or self.views or self.buffers or self.frozen):
            return flags_of(self.leaves, allowed, self.bindings)
        for start, stop in self.frozen:
            allowed[start:stop] = [False] * (stop - start)
        # What a class freezes is not searched for hidden arrays.
        flags = self.capable(allowed)
        return [flag if taken else False for flag, taken in zip(flags, allowed, strict=True)] if self.frozen else flags

    def capable(self, mask: Sequence[bool]) -> list[bool | None]:
        """Return `flags` for the leaves in the mask, ignoring the declarations of classes."""
        if self._has_opaque:
            self._search_opaque(mask)
        known = [(start, tree_leaves((view.flags,))) for start, view in self.views if view.flags is not None]
        known += [(start, [None] * (stop - start)) for start, stop in self.buffers]
        if not known:
            return flags_of(self.leaves, mask, self.bindings)
        asked = list(mask)
        for start, flags in known:
            asked[start : start + len(flags)] = [False] * len(flags)
        answers: list[bool | None] = [None] * len(asked)
        if True in asked:
            answers = flags_of(self.leaves, asked, self.bindings)
        for start, flags in known:
            answers[start : start + len(flags)] = flags
        return answers

    def _search_opaque(self, mask: Sequence[bool]) -> None:
        """Refuse objects of unknown class that hide arrays: these would be frozen silently."""
        # 1 ms for a function that JAX made: once for all its places.
        searched: set[int] = set()
        for leaf, wanted in zip(self.leaves, mask, strict=True):
            if wanted and self.bindings[type(leaf)].kind is OPAQUE and id(leaf) not in searched:
                searched.add(id(leaf))
                declaration.refuse_opaque(type(leaf))
                check_opaque(leaf, (self.argument,))

    def with_leaves(self, leaves: Sequence[Any]) -> Any:
        """Return the argument, with the containers of its views, and other leaves, which may be None."""
        return tree_unflatten(self.shown, leaves, self.argument)

    def split(self) -> tuple[Any, Any]:
        """Return that with the leaves in the mask alone, and with the others alone."""
        pairs = list(zip(self.leaves, self.mask, strict=True))
        others = [None if taken else leaf for leaf, taken in pairs]
        return self.with_leaves([leaf if taken else None for leaf, taken in pairs]), self.with_leaves(others)

    def differentiated(self) -> list[Any]:
        """Return the leaves in the mask, if a framework can differentiate them."""
        for i, leaf in enumerate(self.leaves if self._has_foreign else ()):
            if self.mask[i] and self.bindings[type(leaf)] is BINDINGS.WITHOUT_AD:
                raise BackendError(
                    f"{quoted(self.paths[i])} is {full_kind_of(leaf)}, an array of a library without AD; convert it to "
                    f"an array of a framework ({', '.join(REGISTRY.known())}), or exclude it by where="
                )
        return self.selected()

    def selected(self) -> list[Any]:
        """Return the leaves in the mask."""
        if False not in self.mask:
            return self.leaves
        return [leaf for leaf, taken in zip(self.leaves, self.mask, strict=True) if taken]

    def fill(self, tracked: Iterator[Any], shared: Mapping[Any, Any], undo: Undo) -> Any:
        """Return the argument with the next of the tracked leaves in place of those in the mask.

        `shared` has, by identity, what takes the place of leaves that have one and are not in it. Viewed objects are
        filled in place, and `undo` gets their undo.
        """
        if False not in self.mask:
            if self.treespec is None:
                return next(tracked)
            leaves = [next(tracked) for _ in self.leaves]
        else:
            leaves = [next(tracked) if taken else leaf for leaf, taken in zip(self.leaves, self.mask, strict=True)]
            for i, key in self.identities.items():
                if not self.mask[i]:
                    leaves[i] = shared[key]

        def show(view: View, container: Any) -> Any:
            value, restore = view.fill(container)
            undo.append(restore)
            return value

        return tree_unflatten(self.treespec, leaves, self.argument, show)

    def fill_frozen(self, shared: Mapping[Any, Any], undo: Undo) -> Any:
        """Return the argument with constants in the place of leaves with an identity, itself if it holds only views."""
        if not [i for i, key in self.identities.items() if shared[key] is not self.leaves[i]]:
            return self.argument
        filled = self.fill(iter(()), shared, undo)
        pairs = zip(tree_leaves((filled,)), tree_leaves((self.argument,)), strict=True)
        return filled if [new for new, old in pairs if new is not old] else self.argument

    def only(self, leaves: Iterable[Any]) -> Any:
        """Return that with the next of some leaves, or of their gradients, where the mask is, and None elsewhere."""
        following = iter(leaves)
        return self.with_leaves([next(following) if taken else None for taken in self.mask])

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return a new value like the argument, with other leaves; viewed objects stay as they are."""
        return tree_unflatten(self.treespec, leaves, self.argument, lambda view, container: view.rebuild(container))


def identities_of(leaves: Sequence[Any], bindings: Mapping[type, Binding]) -> dict[int, Any]:
    """Return the keys of the leaves that have an identity, by position."""
    hooks = {cls: binding.identity for cls, binding in bindings.items() if binding.identity is not None}

    if not hooks:
        return {}
    found = [hooks[type(leaf)](leaf) if type(leaf) in hooks else None for leaf in leaves]
    return {i: key for i, key in enumerate(found) if key is not None}


def flags_of(leaves: Sequence[Any], mask: Sequence[bool], bindings: Mapping[type, Binding]) -> list[bool | None]:
    """Return what the hook ``trainable`` answers for the leaves in the mask, and None for the others."""
    hooks = {cls: binding.trainable for cls, binding in bindings.items()}
    return [hooks[type(leaf)](leaf) if wanted else None for leaf, wanted in zip(leaves, mask, strict=True)]
