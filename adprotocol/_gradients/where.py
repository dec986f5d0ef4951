"""`where`: which leaves take gradients in one call, by a predicate, a mask or patterns over paths."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.binding import LABEL
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.traversal import binding_for, is_container, too_deep, tree_flatten
from adprotocol._trees.treespec import count_leaves, paths, text, treespecs_equal
from adprotocol.errors import SelectionError, kind_of, nearest, quoted, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol._gradients.structure import Structure
    from adprotocol._trees.treespec import Treespec


# By treespec and pattern. Treespecs hold the static fields of the structures they describe, so few are kept.
KEEP = 32
_MATCHES: dict[tuple[Treespec, str], list[bool]] = {}


def select(structures: list[Structure], where: Any, *, several: bool = False, strict: bool = True) -> None:
    """Set the mask of each structure: for each leaf, whether it takes a gradient.

    Without `where` the defaults and the declarations of the classes decide. With
    `several` a mask is a tuple of masks, one for each structure; a pattern must
    match in at least one of them, and paths start again in each. Without `strict`
    leaves that cannot take a gradient may be selected.

    Raises `SelectionError` as `adprotocol.trainable` describes.
    """
    if where is None:
        for structure in structures:
            structure.mask = [flag is True for flag in structure.flags()]
    else:
        patterns = _patterns(where)
        if patterns is not None:
            masks = _by_patterns(structures, patterns)
        elif _is_predicate(where):
            masks = [_by_predicate(structure, where) for structure in structures]
        else:
            given = _masks(where, len(structures)) if several else [where]
            masks = [_by_mask(structure, mask) for structure, mask in zip(structures, given, strict=True)]
        if strict:
            masks = [_checked(structure, mask) for structure, mask in zip(structures, masks, strict=True)]
        for structure, mask in zip(structures, masks, strict=True):
            structure.mask = list(mask)  # what a pattern matches is kept


def select_once(structures: list[Structure]) -> None:
    """Leave a leaf with an identity selected at its first place only."""
    seen: set[Any] = set()
    for structure in structures:
        for i, key in structure.identities.items():
            if structure.mask[i]:
                structure.mask[i] = key not in seen
                seen.add(key)


def _patterns(where: Any) -> tuple[str, ...] | None:
    if isinstance(where, str):
        return (where,)
    if isinstance(where, (list, tuple, set, frozenset)) and where and all(isinstance(item, str) for item in where):
        return tuple(where)
    return None


def _is_predicate(where: Any) -> bool:
    # A mask may be callable too: it may be of the class of the structure.
    return callable(where) and not is_container(where)


def _by_patterns(structures: list[Structure], patterns: tuple[str, ...]) -> list[list[bool]]:
    aliases = [structure.aliases() for structure in structures]
    masks = [[False] * len(structure.leaves) for structure in structures]
    for pattern in patterns:
        is_matched = False
        for i, structure in enumerate(structures):
            mask = match(structure.shown, pattern)
            first = {name for alias, name in aliases[i] if matches(alias, pattern)}
            if first:
                mask = [flag or name in first for flag, name in zip(mask, structure.paths, strict=True)]
            is_matched |= True in mask
            masks[i] = mask if pattern is patterns[0] else list(map(operator.or_, masks[i], mask))
        if not is_matched:
            every = [name for structure in structures for name in structure.paths]
            msg = (
                f"where={pattern!r} matches no leaf; the nearest paths are {nearest(pattern, every)}. A pattern "
                "must match the whole path of a leaf, and * matches dots too ('layers.*' selects every leaf below "
                "layers)"
            )
            if pattern in every:
                escaped = pattern.replace("[", "[[]")
                msg += f". A bracket begins a set of characters; for that path write {escaped!r}"
            raise SelectionError(msg)
    return masks


def match(treespec: Treespec, pattern: str) -> list[bool]:
    """Return which leaves a pattern selects by their paths: 0.4 µs a leaf, so those of the last calls are kept."""
    try:
        selected = _MATCHES.get((treespec, pattern))
    # Static fields that cannot be hashed or compared (arrays).
    except Exception:  # noqa: BLE001
        return match_anew(treespec, pattern)
    if selected is None:
        selected = match_anew(treespec, pattern)
        if len(_MATCHES) >= KEEP:
            _MATCHES.clear()
        _MATCHES[treespec, pattern] = selected
    return selected


def match_anew(treespec: Treespec, pattern: str) -> list[bool]:
    """Return `match` without what is kept."""
    return [matches(name, pattern) for name in paths(treespec)]


def matches(name: str, pattern: str) -> bool:
    """Tell whether a pattern matches a path."""
    return _compiled(pattern)(name) is not None


@functools.lru_cache(maxsize=64)
def _compiled(pattern: str) -> Callable[[str], Any]:
    import fnmatch  # noqa: PLC0415  (with re 10 ms; not at import)
    import re  # noqa: PLC0415

    return re.compile(fnmatch.translate(pattern)).match


def _by_predicate(structure: Structure, predicate: Any) -> list[bool]:
    answers = []
    for name, leaf in zip(structure.paths, structure.leaves, strict=True):
        try:
            answer = predicate(name, leaf)
        except TypeError as error:
            error.add_note("A where predicate is called with (path, leaf): write lambda path, leaf: ...")
            raise
        if not _is_bool(answer):
            msg = (
                f"the where predicate returned {shown(answer)}, {kind_of(answer)}, for {quoted(name)}; it must "
                "take (path, leaf) and return a bool"
            )
            raise SelectionError(msg)
        answers.append(bool(answer))
    return answers


def _masks(where: Any, count: int) -> list[Any]:
    if _is_bool(where):
        return [where] * count
    if not isinstance(where, (tuple, list)) or len(where) != count:
        msg = (
            f"where is {kind_of(where)}, but argnums names {count} arguments; give a tuple of {count} masks, one for "
            "each (a bool covers a whole argument), a predicate, or patterns"
        )
        raise SelectionError(msg)
    return list(where)


def _by_mask(structure: Structure, mask: Any) -> list[bool]:
    """Return the mask's bool for each leaf of a structure."""
    flags, treespec = tree_flatten(mask)
    if treespecs_equal(treespec, structure.shown) and all(flag is True or flag is False for flag in flags):
        return flags  # the common case, without a visit of each subtree
    try:
        found = _spread(mask, structure.shown, iter(structure.leaves), "")
    except RecursionError as error:
        raise too_deep(mask) from error
    if found is None:
        raise _other_structure(structure, mask, paths(treespec))
    return found


def _spread(mask: Any, treespec: Treespec, leaves: Iterator[Any], name: str) -> list[bool] | None:
    """Return the mask's bool for each leaf of a subtree, in the subtree's order, or None if the structures differ.

    Children are matched by name: two ordered dicts may have their keys in different orders.
    """
    flatten = binding_for(mask).flatten
    if flatten is None:
        part = [next(leaves) for _ in range(count_leaves(treespec))]
        return [_flag(mask, name, part[0] if treespec is None else part)] * len(part)
    if treespec is None:
        return None
    cls, _, names, children = treespec
    if not (type(mask) is cls or (isinstance(mask, dict) and issubclass(cls, dict))):
        return None
    parts, _, names_of_parts = flatten(mask)
    given = dict(zip(map(text, names_of_parts), parts, strict=True))
    keys = list(map(text, names))
    if sorted(given) != sorted(keys):
        return None
    found: list[bool] = []
    for child, key in zip(children, keys, strict=True):
        flags = _spread(given[key], child, leaves, f"{name}.{key}" if name else key)
        if flags is None:
            return None
        found.extend(flags)
    return found


def _flag(flag: Any, name: str, part: Any) -> bool:
    """Return the bool that a mask holds at one place; None is allowed where the argument has None too."""
    if isinstance(flag, NonDifferentiable):
        # A mask made by a framework's tree map has labels where the model has them.
        flag = flag.held
    if flag is None and part is None:
        return False
    if not _is_bool(flag):
        msg = (
            f"the where mask holds {shown(flag)}, {kind_of(flag)}, at {quoted(name)}; a mask holds bools, in the "
            "structure of the argument or of its upper part. Give strings to select by pattern, or a function of "
            "(path, leaf)"
        )
        raise SelectionError(msg)
    return bool(flag)


def _is_bool(answer: Any) -> bool:
    # A boolean scalar of NumPy or a framework, recognised by its marks: none of them may be imported.
    return isinstance(answer, bool) or (
        getattr(answer, "shape", None) == () and str(getattr(answer, "dtype", "")).rpartition(".")[2] == "bool"
    )


def _other_structure(structure: Structure, mask: Any, names: list[str]) -> SelectionError:
    """Return the error for a mask whose leaves, at the paths `names`, do not match those of the argument."""
    paths = structure.paths
    inside = {name: any(p == name or p.startswith(f"{name}.") for p in paths) for name in names}
    unknown = [name for name, found in inside.items() if not found]
    uncovered = [p for p in paths if not any(p == name or p.startswith(f"{name}.") for name in names)]
    if unknown:
        what = f"it has {unknown[0]!r}, which the argument lacks (the nearest are {nearest(unknown[0], paths)})"
    elif uncovered:
        what = f"it has no entry for {uncovered[0]!r}"
    else:
        what = f"it is {kind_of(mask)}, the argument {kind_of(structure.tree)}, or their nodes differ further down"
    return SelectionError(
        f"the where mask does not match the structure of the argument: {what}. Give bools in the structure of the "
        "argument, or of its upper part (one bool covers all leaves below it)"
    )


def _checked(structure: Structure, mask: list[bool]) -> list[bool]:
    """Refuse selected leaves that cannot take a gradient; selecting a None has no effect."""
    if True not in mask:
        return mask
    checked = []
    for i, (wanted, able) in enumerate(zip(mask, structure.capable(mask), strict=True)):
        if wanted and able is None:
            leaf = structure.leaves[i]
            if leaf is not None:
                raise _incapable(structure.paths[i], leaf)
            checked.append(False)
        else:
            checked.append(wanted)
    return checked


def _incapable(name: str, leaf: Any) -> SelectionError:
    if lookup(type(leaf)).kind is LABEL:
        why = "is labelled NonDifferentiable"
    elif hasattr(leaf, "dtype"):
        kind = (
            "" if "int" in str(leaf.dtype) or "bool" in str(leaf.dtype) else ", or one that is never trained (a buffer)"
        )
        why = f"is {kind_of(leaf)} of dtype {leaf.dtype}, which has no derivative{kind}"
    else:
        why = f"is {kind_of(leaf)} ({shown(leaf, 40)})"
    return SelectionError(
        f"where selects {quoted(name)}, which {why} and cannot take a gradient; leave it out of the selection (a "
        "predicate can look at the leaf: lambda path, leaf: ...)"
    )
