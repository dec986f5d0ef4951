"""`where`: which leaves take gradients in one call, by a predicate, a mask or patterns over paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.table import binding_of
from adprotocol._dynamo import run_while_tracing, trace_instead
from adprotocol._gradients import enclosing
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees import path
from adprotocol._trees import traversal as tree
from adprotocol.errors import SelectionError, kind_of

if TYPE_CHECKING:
    from adprotocol._gradients.structure import Structure


def select(structures: list[Structure], where: Any, *, several: bool = False) -> list[list[bool]]:
    """Return for each leaf of each structure whether it takes a gradient.

    Without `where` the defaults and the declarations of the classes decide. With
    `several` a mask is a tuple, one for each structure; a pattern has to match
    in one of them, and paths begin anew in each.

    Raises `SelectionError` as `adprotocol.trainable` describes.
    """
    if where is None:
        chosen = [[flag is True for flag in structure.flags()] for structure in structures]
    else:
        patterns = _patterns(where)
        if patterns is not None:
            wanted = _by_patterns(structures, patterns)
        elif _is_predicate(where):
            wanted = [_by_predicate(structure, where) for structure in structures]
        else:
            masks = _masks(where, len(structures)) if several else [where]
            wanted = [_by_mask(structure, mask) for structure, mask in zip(structures, masks, strict=True)]
        chosen = [_checked(structure, mine) for structure, mine in zip(structures, wanted, strict=True)]
    _count_once(structures, chosen)
    return chosen


def _patterns(where: Any) -> tuple[str, ...] | None:
    if isinstance(where, str):
        return (where,)
    if isinstance(where, (list, tuple, set, frozenset)) and where and all(isinstance(item, str) for item in where):
        return tuple(where)
    return None


def _is_predicate(where: Any) -> bool:
    # A mask may be a callable object as well: one of the class of the structure.
    return callable(where) and not tree.is_container(where)


def _by_patterns(structures: list[Structure], patterns: tuple[str, ...]) -> list[list[bool]]:
    known = [structure.known_paths() for structure in structures]
    found = [
        [mine.matches[pattern] if pattern in mine.matches else _match(mine, pattern) for pattern in patterns]
        for mine in known
    ]
    names = [structure.aliases() for structure in structures]
    for i, pattern in enumerate(patterns):
        matched = [True in of_structure[i] for of_structure in found]
        if not any(matched):
            matched = [bool(_aliased(aliases, pattern)) for aliases in names]
        if not any(matched):
            every = [name for mine in known for name in mine.of_leaves]
            msg = (
                f"where={pattern!r} matches no leaf; the nearest paths are {path.nearest(pattern, every)}. A pattern "
                "covers the whole path of a leaf, and * matches dots too ('layers.*' selects all below layers)"
            )
            raise SelectionError(msg)
    joined = []
    for mine, of_structure, aliases in zip(known, found, names, strict=True):
        flags = of_structure[0] if len(patterns) == 1 else [any(flags) for flags in zip(*of_structure, strict=True)]
        more = {name for pattern in patterns for name in _aliased(aliases, pattern)}
        joined.append(
            [flag or name in more for flag, name in zip(flags, mine.of_leaves, strict=True)] if more else flags
        )
    return joined


@run_while_tracing
def _matches(name: str, pattern: str) -> bool:
    import fnmatch  # noqa: PLC0415  (with re 10 ms; not at import)

    return fnmatch.fnmatchcase(name, pattern)


def _match_traced(paths: path.Paths, pattern: str) -> list[bool]:
    return [_matches(name, pattern) for name in paths.of_leaves]


@trace_instead(_match_traced)
def _match(paths: path.Paths, pattern: str) -> list[bool]:
    import fnmatch  # noqa: PLC0415
    import re  # noqa: PLC0415

    match = re.compile(fnmatch.translate(pattern)).match
    found = [match(name) is not None for name in paths.of_leaves]
    paths.matches[pattern] = found
    return found


def _aliased(aliases: list[tuple[str, str]], pattern: str) -> list[str]:
    return [name for alias, name in aliases if _matches(alias, pattern)]


def _by_predicate(structure: Structure, predicate: Any) -> list[bool]:
    found = []
    for name, leaf in zip(structure.paths, structure.leaves, strict=True):
        answer = predicate(name, leaf)
        if not _is_bool(answer):
            msg = (
                f"the predicate given as where returned {answer!r:.60}, {kind_of(answer)}, for "
                f"{path.show(name)}; it takes (path, leaf) and returns a bool"
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


def _by_mask_traced(structure: Structure, mask: Any) -> list[bool]:
    # A constant of the graph: the compiler would fold what optree says of it, and cannot hold the result.
    if not _is_built_in(mask):
        return _by_mask_whole(structure, mask)
    said = _said_by(mask)
    found: list[bool] = []
    heard = set()
    for name in structure.paths:
        for place, flag in said:
            if place in ("", name) or name.startswith(f"{place}."):
                found.append(flag)
                heard.add(place)
    if len(found) != len(structure.paths) or len(heard) != len(said):
        raise _other_structure(structure, mask, [place for place, _ in said])
    return found


def _is_built_in(mask: Any) -> bool:
    if type(mask) is dict:
        return all(_is_built_in(item) for item in mask.values())
    if type(mask) in (list, tuple):
        return all(_is_built_in(item) for item in mask)
    return mask is True or mask is False


@run_while_tracing
def _said_by(mask: Any) -> tuple[tuple[str, bool], ...]:
    flags, spec = tree.take_apart(mask)
    return tuple(zip(path.of_structure(mask, spec).of_leaves, flags, strict=True))


@trace_instead(_by_mask_traced)
def _by_mask(structure: Structure, mask: Any) -> list[bool]:
    return _by_mask_whole(structure, mask)


def _by_mask_whole(structure: Structure, mask: Any) -> list[bool]:
    given, spec = tree.take_apart(mask)
    if tree.same(spec, structure.treespec):
        # The common case, without a look at each subtree.
        flags: list[bool] = []
        for i, flag in enumerate(given):
            if flag is not True and flag is not False:
                _said(flag, structure.paths[i], structure.leaves[i])
            flags.append(flag is True or (flag is not False and flag is not None and bool(_unlabelled(flag))))
        return flags
    try:
        found = _spread(mask, structure.shown, "")
    except RecursionError as error:
        raise tree.too_deep(mask) from error
    if found is None:
        raise _other_structure(structure, mask, path.of_structure(mask, spec).of_leaves)
    return found


def _spread(mask: Any, part: Any, name: str) -> list[bool] | None:
    """Return what a mask says of each leaf of a part, in the order of the part, or None if they are not alike.

    By names: two ordered dicts may have their keys in different orders.
    """
    level = tree.one_level(mask)
    if level is None:
        return [_said(mask, name, part)] * (len(tree.leaves(part)) if tree.is_container(part) else 1)
    below = tree.one_level(part)
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


def _said(flag: Any, name: str, part: Any) -> bool:
    """Return what a mask says at one place; None says nothing, where there is nothing."""
    flag = _unlabelled(flag)
    if flag is None and part is None:
        return False
    if not _is_bool(flag):
        msg = (
            f"the mask given as where has {flag!r:.60}, {kind_of(flag)}, at {path.show(name)}; a mask "
            "holds bools, in the structure of the argument or of its upper part. For patterns give strings, for a rule "
            "a function of (path, leaf)"
        )
        raise SelectionError(msg)
    return bool(flag)


def _unlabelled(flag: Any) -> Any:
    # A mask made by a framework's tree map has labels where the model has them.
    return flag.held if isinstance(flag, NonDifferentiable) else flag


def _is_bool(answer: Any) -> bool:
    # NumPy's bool_, told by its name: NumPy may not be there.
    return isinstance(answer, bool) or (
        type(answer).__module__ == "numpy" and type(answer).__name__ in ("bool", "bool_")
    )


def _other_structure(structure: Structure, mask: Any, names: list[str]) -> SelectionError:
    paths = structure.paths
    inside = {name: any(p == name or p.startswith(f"{name}.") for p in paths) for name in names}
    unknown = [name for name, found in inside.items() if not found]
    unsaid = [p for p in paths if not any(p == name or p.startswith(f"{name}.") for name in names)]
    if unknown:
        what = f"it has {unknown[0]!r}, which the argument has not (the nearest are {path.nearest(unknown[0], paths)})"
    elif unsaid:
        what = f"it says nothing of {unsaid[0]!r}"
    else:
        what = f"it is {kind_of(mask)}, the argument {kind_of(structure.shown)}, or their nodes differ further down"
    return SelectionError(
        f"the mask given as where has another structure than the argument: {what}. Give bools in the structure of the "
        "argument, or of its upper part (one bool for all below)"
    )


def _checked(structure: Structure, wanted: list[bool]) -> list[bool]:
    """Refuse what is selected and cannot take a gradient; where there is no leaf, nothing is selected."""
    if True not in wanted:
        return wanted
    chosen = []
    for i, (want, able) in enumerate(zip(wanted, structure.capable(wanted), strict=True)):
        if want and able is None:
            leaf = structure.leaves[i]
            if leaf is not None:
                raise _incapable(structure.paths[i], leaf)
            chosen.append(False)
        else:
            chosen.append(want)
    return chosen


def _incapable(name: str, leaf: Any) -> SelectionError:
    if isinstance(leaf, NonDifferentiable):
        why = "is labelled NonDifferentiable"
    elif hasattr(leaf, "dtype"):
        kind = (
            "" if "int" in str(leaf.dtype) or "bool" in str(leaf.dtype) else ", or one that is never trained (a buffer)"
        )
        why = f"is {kind_of(leaf)} of dtype {leaf.dtype}, which has no derivative{kind}"
    else:
        why = f"is {kind_of(leaf)} ({leaf!r:.40})"
    return SelectionError(
        f"where selects {path.show(name)}, which {why} and can take no gradient; leave it out of the selection (a "
        "predicate sees the leaf: lambda path, leaf: ...)"
    )


def _count_once(structures: list[Structure], chosen: list[list[bool]]) -> None:
    """Leave a parameter with an identity selected at the first of its places only."""
    seen: set[int] = set()
    for structure, mine in zip(structures, chosen, strict=True):
        if not any(binding_of(cls).parameter_types for cls in set(map(type, structure.leaves))):
            continue
        for i, leaf in enumerate(structure.leaves):
            if mine[i]:
                kinds = binding_of(type(leaf)).parameter_types
                if kinds and isinstance(enclosing.original(leaf), kinds):
                    if id(leaf) in seen:
                        mine[i] = False
                    seen.add(id(leaf))
