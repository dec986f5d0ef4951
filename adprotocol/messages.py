"""Words of error messages: how they name a class, a path, or a value, and which names are near."""

from __future__ import annotations

from adprotocol._typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def with_article(name: str) -> str:
    """Return a name with its article, as messages write it."""
    sound = name.lower()
    vowel = sound.startswith((*"aeiou", "ndarray")) and not sound.startswith(("uint", "ufunc", "uni", "use"))
    return f"{'an' if vowel else 'a'} {name}"


def kind_of(value: object) -> str:
    """Return the name of the class of a value with its article."""
    return with_article(type(value).__qualname__)


def full_name(cls: type) -> str:
    """Return the name of a class with its module."""
    return f"{cls.__module__}.{cls.__qualname__}"


def full_kind_of(value: object) -> str:
    """Return the name of the class of a value with its module and article."""
    return with_article(full_name(type(value)))


def quoted(path: str) -> str:
    """Return a path as error messages show it."""
    return repr(path) if path else "the value itself"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the names most similar to `name`, for an error message."""
    some: Sequence[str] = list(names)[:1000]
    if not some:
        return "none"
    import difflib  # noqa: PLC0415  (for errors only)

    like = difflib.get_close_matches(name, some, n=5, cutoff=0.3) or some[:5]
    return ", ".join(map(quoted, like))


def shown(value: object, limit: int = 60) -> str:
    """Return the first characters of the ``repr`` of a user's value, which may refuse what is in its fields now."""
    try:
        return repr(value)[:limit]
    except Exception:  # noqa: BLE001
        return f"<{type(value).__qualname__}>"


def one_line(error: BaseException, limit: int | None = 400) -> str:
    """Return the kind and message of an error on one line, cut at `limit` characters."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error of the user's, if its class allows it."""
    try:  # noqa: SIM105  (contextlib is not imported at first use)
        error.add_note(note)
    except AttributeError:  # of a frozen error
        pass
