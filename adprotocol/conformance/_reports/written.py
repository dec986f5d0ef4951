"""The written reports: Jinja2 templates over a `Digest` or a `Matrix`.

Whatever a template prints is cleaned, put on one line and escaped, for HTML or for
Markdown, unless a filter has already made it safe: no template can forget to.
"""

from __future__ import annotations

import functools
import html
import re
from typing import TYPE_CHECKING, Any

from adprotocol.conformance._reports import digest, layout, looks
from adprotocol.conformance._reports.digest import Digest
from adprotocol.conformance._reports.words import blocks, clean, cut, line, seconds, some
from adprotocol.conformance._run import result as results
from adprotocol.conformance._run.backend import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment

    from adprotocol.conformance._reports.matrix import Matrix
    from adprotocol.conformance._run.result import Report


# Where a long word may be broken; `clean` leaves none in a text.
_BREAK = "\u200b"
# After what, in parts longer than what. The last is for what is no word, such as a hash.
_JOINTS = ((r"[/-](?=.)", 0), (r"\W(?=\w)", 20), (r"_(?=\w)", 30), (r".{30}(?=.)", 40))
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


def to_html(report: Report) -> str:
    """Return the report as one HTML page that takes nothing from elsewhere: to open, to send, to publish.

    Scripts only filter and copy; without them the page holds the same.
    """
    return _render("report.html", digest=Digest(report))


def to_markdown(report: Report) -> str:
    """Return the report as a Markdown document for GitHub, MyST and CommonMark with tables."""
    return _render("report.md", digest=Digest(report))


def matrix_to_html(matrix: Matrix) -> str:
    """Return a fragment of HTML: one table, with its style, a heading for each group of rows and the state in words."""
    return _render("matrix.html", matrix=matrix)


def matrix_to_markdown(matrix: Matrix) -> str:
    """Return a legend and tables: for one backend one table with a column for each hook, else a table for each hook."""
    return _render("matrix.md", matrix=matrix)


def matrix_to_svg(matrix: Matrix) -> str:
    """Return a picture for light and dark, with the reasons as tooltips."""
    return _render("matrix.svg", matrix=matrix)


def _render(name: str, **data: Any) -> str:
    kind = "md" if name.endswith(".md") else "html"
    return _environment(kind).get_template(f"{name}.jinja").render(**data)


def need_jinja2() -> None:
    """Raise `UsageError` with the remedy if Jinja2 is not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415  (an optional dependency)
    except ImportError as error:
        msg = "reports in HTML and Markdown need Jinja2, which is not installed: pip install 'adprotocol[conformance]'"
        raise UsageError(msg) from error


@functools.cache
def _environment(kind: str) -> Environment:
    need_jinja2()
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    def safe(function: Callable[..., str]) -> Callable[..., Markup]:
        return lambda *args: Markup(function(*args))  # noqa: S704  (the function escapes)

    escape = escape_html if kind == "html" else escape_markdown

    def finalize(value: Any) -> Markup:
        if isinstance(value, Markup):
            return value
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return Markup(escape(text))  # noqa: S704  (escaped)

    environment = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {
        **{name: getattr(results, name) for name in ("WRONG", "FAIL", "EXPECTED", "PASS", "OUTCOMES")},
        "digests": digest,
        "layout": layout,
        "looks": looks,
    }
    environment.filters |= {
        "block": safe(_pre if kind == "html" else fenced),
        "code": safe(_code_html if kind == "html" else code),
        "prose": safe(_prose_html if kind == "html" else _prose),
        "spans": safe(_spans_html if kind == "html" else _spans),
        "words": safe(_words if kind == "html" else escape_markdown),
        "html": safe(lambda text: html.escape(line(text), quote=False)),
        "html_prose": safe(_prose_html),
        "slug": safe(_slug),
        "lines": safe(lambda text: html.escape(clean(text))),
        "cut": cut,
        "line": line,
        "seconds": seconds,
        "some": safe(lambda names: some(names, code)),
        "spent": digest.spent,
        "blocks": blocks,
    }
    return environment


def escape_html(text: str) -> str:
    """Return text on one line, escaped for HTML."""
    return html.escape(line(text))


def escape_markdown(text: str) -> str:
    """Return text on one line in which neither Markdown nor HTML finds markup, inside a table or outside."""
    return _escaped(line(text))


def _escaped(text: str) -> str:
    safe = re.sub(r"[\\`*_\[\]|~$#]", r"\\\g<0>", text)
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """Return text as a code span for a Markdown table, or escaped if no span there can hold it."""
    text = line(text)
    return escape_markdown(text) if not text or "`" in text or "|" in text or "\\" in text else f"`{text}`"


def fenced(text: str, language: str = "") -> str:
    """Return text as a Markdown block of code, whatever fences it holds."""
    text = clean(text).rstrip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _prose(markdown: str) -> str:
    """Return an author's Markdown as it is, but for HTML, which could swallow what follows."""
    parts = re.split(r"(`[^`]+`)", clean(markdown))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def _spans(text: str) -> str:
    """Return text on one line with its code spans, and the rest escaped."""
    text, end, parts = line(text), 0, []
    for span in _SPAN.finditer(text):
        parts += [_escaped(text[end : span.start()]), code(span[2])]
        end = span.end()
    return "".join([*parts, _escaped(text[end:])])


def _slug(heading: str) -> str:
    """Return the anchor that GitHub and MyST give a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _words(text: str) -> str:
    """Return text as HTML in which a long word may be broken where it has a joint, and only there."""
    text = re.sub(r"\S{21,}", _jointed, clean(text))
    return html.escape(text).replace(_BREAK, "<wbr>")


def _jointed(word: re.Match[str]) -> str:
    text = word[0]
    for joint, longest in _JOINTS:
        parts = text.split(_BREAK)
        text = _BREAK.join(re.sub(joint, rf"\g<0>{_BREAK}", part) if len(part) > longest else part for part in parts)
    return text


def _pre(text: str, kind: str = "") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f"<pre{styled}>{_words(text.rstrip())}</pre>"


def _code_html(text: str) -> str:
    return f"<code>{_words(line(text))}</code>"


def _spans_html(text: str) -> str:
    return _prose_html(line(text))


def _prose_html(markdown: str) -> str:
    """Return an author's Markdown as HTML: its code spans, and the rest as it is written."""
    return _SPAN.sub(r"<code>\2</code>", _words(markdown))
