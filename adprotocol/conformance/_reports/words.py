"""Text fit to show: messages hold whatever a framework wrote, and control characters must not reach a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

# How many ids stand for all in a list.
_SHOWN = 3


def clean(text: str) -> str:
    """Return text with unprintable characters as escapes; newlines and tabs stay."""
    return "".join(
        character
        if character in "\n\t" or character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        for character in text.replace("\r\n", "\n")
    )


def line(text: str) -> str:
    """Return text, cleaned, on one line."""
    return " ".join(clean(text).split())


def encodable(stream: TextIO, text: str) -> str:
    """Return text with the escapes of signs that a stream cannot write, such as a pipe in the C locale."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def some(names: Sequence[str]) -> str:
    """Return the first few of some names, which stand for all, and how many are left."""
    left = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(line, names[:_SHOWN])) + left
