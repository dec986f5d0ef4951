"""`where`: which leaves take gradients in one call, by a predicate, a mask or patterns over paths."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.binding import Kind
from adprotocol._dispatch.table import binding_of
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees import path
from adprotocol._trees.traversal import (
    container_leaves,
    flatten_one_level,
    is_container,
    too_deep,
    tree_flatten,
    treespecs_equal,
)
from adprotocol.errors import SelectionError, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol._gradients.structure import Structure


def select(structures: list[Structure], where: Any, *, several: bool = False) -> list[list[bool]]:
    """Return for each structure a mask: for each leaf, whether it takes a gradient.

    Without `where` the defaults and the declarations of the classes decide. With
    `several` a mask is a tuple, one for each structure; a pattern has to match in
    one of them, and paths begin anew in each.

    Raises `SelectionError` as `adprotocol.trainable` describes.
    """
    if where is None:
        masks = [[flag is True for flag in structure.flags()] for structure in structures]
    else:
        patterns = _patterns(where)
        if patterns is not None:
            wanted = _by_patterns(structures, patterns)
        elif _is_predicate(where):
            wanted = [_by_predicate(structure, where) for structure in structures]
        else:
            given = _masks(where, len(structures)) if several else [where]
            wanted = [by_mask(structure, mask) for structure, mask in zip(structures, given, strict=True)]
        masks = [_checked(structure, mask) for structure, mask in zip(structures, wanted, strict=True)]
    _count_once(structures, masks)
    return masks


def _patterns(where: Any) -> tuple[str, ...] | None:
    if isinstance(where, str):
        return (where,)
    if isinstance(where, (list, tuple, set, frozenset)) and where and all(isinstance(item, str) for item in where):
        return tuple(where)
    return None


def _is_predicate(where: Any) -> bool:
    # A mask may be a callable object as well: one of the class of the structure.
    return callable(where) and not is_container(where)


def _by_patterns(structures: list[Structure], patterns: tuple[str, ...]) -> list[list[bool]]:
    known = [structure.paths for structure in structures]
    found = [
        [paths.matches[pattern] if pattern in paths.matches else match(paths, pattern) for pattern in patterns]
        for paths in known
    ]
    aliases = [structure.aliases() for structure in structures]
    for i, pattern in enumerate(patterns):
        matched = any(True in of_structure[i] for of_structure in found)
        if not matched and not any(_aliased(names, pattern) for names in aliases):
            every = [name for paths in known for name in paths.of_leaves]
            msg = (
                f"where={pattern!r} matches no leaf; the nearest paths are {path.nearest(pattern, every)}. A pattern "
                "covers the whole path of a leaf, and * matches dots too ('layers.*' selects all below layers)"
            )
            raise SelectionError(msg)
    masks = []
    for paths, of_structure, names in zip(known, found, aliases, strict=True):
        mask = of_structure[0] if len(patterns) == 1 else [any(flags) for flags in zip(*of_structure, strict=True)]
        more = {name for pattern in patterns for name in _aliased(names, pattern)}
        masks.append([flag or name in more for flag, name in zip(mask, paths.of_leaves, strict=True)] if more else mask)
    return masks


def match(paths: path.Paths, pattern: str) -> list[bool]:
    """Return which paths a pattern matches, and keep it."""
    matched = _compiled(pattern)
    paths.matches[pattern] = [matched(name) is not None for name in paths.of_leaves]
    return paths.matches[pattern]


def matches(name: str, pattern: str) -> bool:
    """Tell whether a pattern matches a path."""
    return _compiled(pattern)(name) is not None


@functools.lru_cache(maxsize=64)
def _compiled(pattern: str) -> Callable[[str], Any]:
    import fnmatch  # noqa: PLC0415  (with re 10 ms; not at import)
    import re  # noqa: PLC0415

    return re.compile(fnmatch.translate(pattern)).match


def _aliased(aliases: list[tuple[str, str]], pattern: str) -> list[str]:
    return [name for alias, name in aliases if matches(alias, pattern)]


def _by_predicate(structure: Structure, predicate: Any) -> list[bool]:
    found = []
    for name, leaf in zip(structure.paths.of_leaves, structure.leaves, strict=True):
        answer = predicate(name, leaf)
        if not _is_bool(answer):
            msg = (
                f"the predicate given as where returned {answer!r:.60}, {kind_of(answer)}, for "
                f"{path.quoted(name)}; it takes (path, leaf) and returns a bool"
            )
            raise SelectionError(msg)
        found.append(bool(answer))
    return found


def _masks(where: Any, count: int) -> list[Any]:
    if _is_bool(where):
        return [where] * count
    if not isinstance(where, (tuple, list)) or len(where) != count:
        msg = (
            f"where is {kind_of(where)}, but argnums names {count} arguments; give a tuple of {count} masks, one for "
            "each (a bool stands for a whole argument), a predicate, or patterns"
        )
        raise SelectionError(msg)
    return list(where)


def by_mask(structure: Structure, mask: Any) -> list[bool]:
    """Return what a mask says of each leaf of a structure."""
    return by_mask_of_any_class(structure, mask)


def by_mask_of_any_class(structure: Structure, mask: Any) -> list[bool]:
    """Return what a mask says, a dataclass of bools and the like included."""
    flags, treespec = tree_flatten(mask)
    if treespecs_equal(treespec, structure.treespec):
        # The common case, without a look at each subtree.
        if all(flag is True or flag is False for flag in flags):
            return flags
        paths = structure.paths.of_leaves
        return [_flag(flag, name, leaf) for flag, name, leaf in zip(flags, paths, structure.leaves, strict=True)]
    try:
        found = _spread(mask, structure.tree, "")
    except RecursionError as error:
        raise too_deep(mask) from error
    if found is None:
        raise other_structure(structure, mask, path.paths_of(mask, treespec).of_leaves)
    return found


def _spread(mask: Any, part: Any, name: str) -> list[bool] | None:
    """Return what a mask says of each leaf of a part, in the order of the part, or None if their structures differ.

    By names: two ordered dicts may have their keys in different orders.
    """
    level = flatten_one_level(mask)
    if level is None:
        return [_flag(mask, name, part)] * (len(container_leaves(part)) if is_container(part) else 1)
    below = flatten_one_level(part)
    if below is None or not (type(mask) is type(part) or (isinstance(mask, dict) and isinstance(part, dict))):
        return None
    given = dict(zip(level[1], level[0], strict=True))
    if len(given) != len(level[1]) or sorted(given) != sorted(below[1]):
        return None
    found: list[bool] = []
    for child, key in zip(*below, strict=True):
        flags = _spread(given[key], child, f"{name}.{key}" if name else key)
        if flags is None:
            return None
        found.extend(flags)
    return found


def _flag(flag: Any, name: str, part: Any) -> bool:
    """Return the bool of a mask at one place; None is allowed where the argument has None too."""
    if isinstance(flag, NonDifferentiable):
        # A mask made by a framework's tree map has labels where the model has them.
        flag = flag.held
    if flag is None and part is None:
        return False
    if not _is_bool(flag):
        msg = (
            f"the mask given as where has {flag!r:.60}, {kind_of(flag)}, at {path.quoted(name)}; a mask "
            "holds bools, in the structure of the argument or of its upper part. For patterns give strings, for a rule "
            "a function of (path, leaf)"
        )
        raise SelectionError(msg)
    return bool(flag)


def _is_bool(answer: Any) -> bool:
    # A boolean scalar of NumPy or a framework, told by its marks: none of them may be there.
    return isinstance(answer, bool) or (
        getattr(answer, "shape", None) == () and str(getattr(answer, "dtype", "")).rpartition(".")[2] == "bool"
    )


def other_structure(structure: Structure, mask: Any, names: list[str]) -> SelectionError:
    """Return the error for a mask whose leaves have the paths `names`, and the argument others."""
    paths = structure.paths.of_leaves
    inside = {name: any(p == name or p.startswith(f"{name}.") for p in paths) for name in names}
    unknown = [name for name, found in inside.items() if not found]
    uncovered = [p for p in paths if not any(p == name or p.startswith(f"{name}.") for name in names)]
    if unknown:
        what = f"it has {unknown[0]!r}, which the argument has not (the nearest are {path.nearest(unknown[0], paths)})"
    elif uncovered:
        what = f"it says nothing of {uncovered[0]!r}"
    else:
        what = f"it is {kind_of(mask)}, the argument {kind_of(structure.tree)}, or their nodes differ further down"
    return SelectionError(
        f"the mask given as where has another structure than the argument: {what}. Give bools in the structure of the "
        "argument, or of its upper part (one bool for all below)"
    )


def _checked(structure: Structure, mask: list[bool]) -> list[bool]:
    """Refuse a selected leaf that cannot take a gradient; at a None nothing is selected."""
    if True not in mask:
        return mask
    checked = []
    for i, (wanted, able) in enumerate(zip(mask, structure.capable(mask), strict=True)):
        if wanted and able is None:
            leaf = structure.leaves[i]
            if leaf is not None:
                raise _incapable(structure.paths.of_leaves[i], leaf)
            checked.append(False)
        else:
            checked.append(wanted)
    return checked


def _incapable(name: str, leaf: Any) -> SelectionError:
    if binding_of(type(leaf)).kind is Kind.LABEL:
        why = "is labelled NonDifferentiable"
    elif hasattr(leaf, "dtype"):
        kind = (
            "" if "int" in str(leaf.dtype) or "bool" in str(leaf.dtype) else ", or one that is never trained (a buffer)"
        )
        why = f"is {kind_of(leaf)} of dtype {leaf.dtype}, which has no derivative{kind}"
    else:
        why = f"is {kind_of(leaf)} ({leaf!r:.40})"
    return SelectionError(
        f"where selects {path.quoted(name)}, which {why} and can take no gradient; leave it out of the selection (a "
        "predicate sees the leaf: lambda path, leaf: ...)"
    )


def _count_once(structures: list[Structure], masks: list[list[bool]]) -> None:
    """Select a leaf that has an identity at the first of its places only."""
    seen: set[Any] = set()
    for structure, mask in zip(structures, masks, strict=True):
        if not any(binding_of(cls).identity for cls in set(map(type, structure.leaves))):
            continue
        for i, leaf in enumerate(structure.leaves):
            if mask[i]:
                identity = binding_of(type(leaf)).identity
                key = None if identity is None else identity(leaf)
                if key is not None:
                    mask[i] = key not in seen
                    seen.add(key)
