"""`where`: which leaves take gradients in one call, by a predicate, a mask or patterns over paths."""

from __future__ import annotations

import functools

from adprotocol._dispatch.dtype import is_inexact, kind_of_dtype
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.traversal import is_container, tree_flatten
from adprotocol._trees.treespec import LEAF, count_leaves, difference, text, treespecs_equal
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import SelectionError
from adprotocol.messages import add_note, kind_of, nearest, quoted, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adprotocol._gradients.structure import Structure
    from adprotocol._trees.treespec import Treespec


def select(structures: list[Structure], where: Any, *, strict: bool = True) -> None:
    """Set the mask of each structure: for each leaf, whether it takes a gradient.

    Without `where` the defaults and the declarations of the classes decide. Of
    several structures a mask is a tuple of masks, one for each; a pattern must
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
            masks = _by_patterns(structures, patterns, strict=strict)
        elif callable(where) and not is_container(where):  # a mask may be of a class that can be called
            masks = [_by_predicate(structure, where) for structure in structures]
        else:
            given = [where] if len(structures) == 1 else _masks(where, len(structures))
            masks = list(map(_by_mask, structures, given))
        for structure, mask in zip(structures, masks, strict=True):
            structure.mask = _checked(structure, mask) if strict else mask


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


def _by_patterns(structures: list[Structure], patterns: tuple[str, ...], *, strict: bool) -> list[list[bool]]:
    paths = [tuple(structure.paths) for structure in structures]
    masks = [[False] * len(names) for names in paths]
    for pattern in patterns:
        matched = []
        for structure, names in zip(structures, paths, strict=True):
            aliases = structure.aliases()
            first = {name for name, hit in zip(aliases.values(), matches(tuple(aliases), pattern), strict=True) if hit}
            matched.append([hit or name in first for name, hit in zip(names, matches(names, pattern), strict=True)])
        if strict and any(sign in pattern for sign in "*?["):
            matched = _passed_over(structures, matched)
        for mask, selected in zip(masks, matched, strict=True):
            mask[:] = [old or new for old, new in zip(mask, selected, strict=True)]
        if not any(True in selected for selected in matched):
            every = [name for names in paths for name in names]
            msg = (
                f"where={pattern!r} matches no leaf; the nearest paths are {nearest(pattern, every)}. A pattern "
                "must match the whole path of a leaf, and * matches dots too ('layers.*' selects every leaf below "
                "layers)"
            )
            if any(name.startswith(f"{pattern}.") for name in every):
                msg += f". Here write {pattern + '.*'!r}"
            if pattern in every:
                escaped = pattern.replace("[", "[[]")
                msg += f". A bracket begins a set of characters; for that path write {escaped!r}"
            raise SelectionError(msg)
    return masks


def _passed_over(structures: list[Structure], matched: list[list[bool]]) -> list[list[bool]]:
    """Return what a pattern with a wildcard matched, without the leaves that cannot take a gradient, if others can."""
    able = [
        [wanted and flag is not None for wanted, flag in zip(selected, structure.capable(selected), strict=True)]
        for structure, selected in zip(structures, matched, strict=True)
    ]
    return able if any(True in selected for selected in able) else matched


def matches(names: tuple[str, ...], pattern: str) -> tuple[bool, ...]:
    """Return for each path whether a pattern matches it."""
    return _matches(names, pattern)


# 0.3 µs for each path, in every call with the same structure.
@functools.lru_cache(maxsize=16)
def _matches(names: tuple[str, ...], pattern: str) -> tuple[bool, ...]:
    import fnmatch  # noqa: PLC0415  (with re 10 ms; not at import)

    return tuple([fnmatch.fnmatchcase(name, pattern) for name in names])


def _by_predicate(structure: Structure, predicate: Any) -> list[bool]:
    answers = []
    for name, leaf in zip(structure.paths, structure.leaves, strict=True):
        try:
            answer = predicate(name, leaf)
        except TypeError as error:
            hint = _by_name(structure, predicate)
            add_note(error, f"A where predicate is called with (path, leaf): write lambda path, leaf: ...{hint[1:]}")
            raise
        if not _is_bool(answer):
            raise SelectionError(
                f"the where predicate returned {shown(answer)}, {kind_of(answer)}, for {quoted(name)}; return a bool"
            )
        answers.append(bool(answer))
    return answers


def _masks(where: Any, count: int) -> list[Any]:
    if _is_bool(where):
        return [where] * count
    if not isinstance(where, (tuple, list)) or len(where) != count:
        raise SelectionError(
            f"where is {kind_of(where)}, but argnums names {count} arguments; give a tuple of {count} masks, one for "
            "each (a bool covers a whole argument), a predicate, or patterns"
        )
    return list(where)


def _by_mask(structure: Structure, mask: Any) -> list[bool]:
    """Return the mask's bool for each leaf of a structure."""
    flags, treespec = tree_flatten(mask)
    if treespecs_equal(treespec, structure.shown) and all(flag is True or flag is False for flag in flags):
        return flags  # the common case, without a visit of each subtree
    try:
        return _spread(treespec, flags, structure.shown, iter(structure.leaves), "")
    except SelectionError as error:
        raise SelectionError(f"{error}{_by_name(structure, mask)}") from None


def _by_name(structure: Structure, where: Any) -> str:
    """Say how to write as paths what was given in place of a mask: some leaves, or True at some names."""
    given = type(structure)(list(where) if hasattr(where, "__next__") else where)
    own = {id(leaf): path for path, leaf in zip(structure.paths, structure.leaves, strict=True)}
    names = [own[id(leaf)] for leaf in given.leaves if id(leaf) in own and hasattr(leaf, "dtype")]
    for path in [path for path, flag in zip(given.paths, given.leaves, strict=True) if flag is True]:
        below = any(name.startswith(f"{path}.") for name in structure.paths)
        names += [path] * (path in structure.paths) + [f"{path}.*"] * below
    return f". To select these by name write where={names}" if names else ""


def _spread(upper: Treespec, flags: list[Any], treespec: Treespec, leaves: Iterator[Any], path: str) -> list[bool]:
    """Return a bool for each leaf of a subtree, given those of its upper part: each covers all leaves below it."""
    if upper is None:
        part = [next(leaves) for _ in range(count_leaves(treespec))]
        return [_flag(flags[0], path, part[0] if treespec is None else part)] * len(part)
    cls, _, upper_names, upper_children = upper
    below, _, names, children = treespec or LEAF
    # Children are matched by name: two ordered dicts may have their keys in different orders.
    following = iter(flags)
    given = {
        text(name): (child, [next(following) for _ in range(count_leaves(child))])
        for name, child in zip(upper_names, upper_children, strict=True)
    }
    is_alike = below is not None and (cls is below or (issubclass(cls, dict) and issubclass(below, dict)))
    if not is_alike or given.keys() != set(map(text, names)):
        raise SelectionError(
            "the where mask does not match the structure of the argument: "
            f"{difference(upper, treespec, 'the mask', 'the argument', path)}. Give bools in the structure of the "
            "argument, or of its upper part (one bool covers all leaves below it)"
        )
    spread: list[bool] = []
    for name, child in zip(map(text, names), children, strict=True):
        spread += _spread(*given[name], child, leaves, f"{path}.{name}" if path else name)
    return spread


def _flag(flag: Any, name: str, part: Any) -> bool:
    """Return the bool that a mask holds at one place; None is allowed where the argument has None too."""
    if isinstance(flag, NonDifferentiable):
        # A mask made by a framework's tree map has labels where the model has them.
        flag = flag.held
    if flag is None and part is None:
        return False
    if not _is_bool(flag):
        raise SelectionError(
            f"the where mask holds {shown(flag)}, {kind_of(flag)}, at {quoted(name)}; a mask holds bools, shaped as "
            "the argument or its upper part. Give strings to select by pattern, or a function of (path, leaf)"
        )
    return bool(flag)


def _is_bool(answer: Any) -> bool:
    # A boolean scalar of NumPy or a framework, recognised by its marks: none of them may be imported.
    return isinstance(answer, bool) or (
        getattr(answer, "shape", None) == () and str(getattr(answer, "dtype", "")).rpartition(".")[2] == "bool"
    )


def _checked(structure: Structure, mask: list[bool]) -> list[bool]:
    """Refuse selected leaves that cannot take a gradient; selecting a None has no effect."""
    if True not in mask:
        return mask
    capable = structure.capable(mask)
    for i, (wanted, able) in enumerate(zip(mask, capable, strict=True)):
        if wanted and able is None and structure.leaves[i] is not None:
            given, remedy = incapable(structure.leaves[i])
            raise SelectionError(
                f"where selects {quoted(structure.paths[i])}, which is {given} and cannot take a gradient; {remedy}, "
                "or leave it out of the selection (a predicate can look at the leaf: lambda path, leaf: ...)"
            )
    return [wanted and able is not None for wanted, able in zip(mask, capable, strict=True)]


def incapable(leaf: Any) -> tuple[str, str]:
    """Say what a leaf is that cannot take a gradient, and how it would."""
    dtype = getattr(leaf, "dtype", None)
    given = f"{kind_of(leaf)} ({shown(leaf, 40)})" if dtype is None else f"{kind_of(leaf)} of dtype {dtype}"
    if isinstance(leaf, NonDifferentiable):
        return given, "give its value without the label"
    if isinstance(leaf, int) or kind_of_dtype(dtype) in ("int", "bool"):
        return given, "convert it to floating point"
    if dtype is not None and is_inexact(dtype):
        return given, "make it a parameter, which a buffer is not"
    return given, "give a floating-point array or number in its place"
