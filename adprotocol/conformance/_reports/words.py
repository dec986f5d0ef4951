"""Text fit to show: messages hold whatever a framework wrote, and control characters must not reach a terminal."""

from __future__ import annotations


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


def cut(text: str, limit: int = 160) -> str:
    """Return text cut to a length, for a list; it stands in full elsewhere."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def seconds(value: float) -> str:
    """Return a time in seconds to one decimal, or in whole milliseconds."""
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
