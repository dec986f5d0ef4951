"""The written reports: Jinja2 templates over a `Digest`.

`report.jinja` says what stands where, by the macros of `html.jinja` or `md.jinja`.
Whatever a template prints is cleaned, put on one line and escaped, for HTML or for
Markdown, unless a filter has already made it safe: no template can forget to.
"""

from __future__ import annotations

import functools
import html
import re
from typing import TYPE_CHECKING

from adprotocol.conformance._reports import digest, looks
from adprotocol.conformance._reports.digest import Digest
from adprotocol.conformance._reports.words import blocks, clean, cut, line, some
from adprotocol.conformance._run import result as results
from adprotocol.conformance._run.backend import need

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
    return environment("html").get_template("report.html.jinja").render(digest=Digest(report))


def to_markdown(report: Report) -> str:
    """Return the report as a Markdown document for GitHub, MyST and CommonMark with tables."""
    return environment("md").get_template("report.jinja").render(digest=Digest(report)).rstrip() + "\n"


def matrix_to_html(matrix: Matrix) -> str:
    """Return a fragment of HTML: one table, with its style, a heading for each group of rows and the state in words."""
    return str(environment("html").get_template("html.jinja").module.matrix(matrix))  # type: ignore[attr-defined]


def matrix_to_markdown(matrix: Matrix) -> str:
    """Return a legend and tables: for one backend one table with a column for each hook, else a table for each hook."""
    return str(environment("md").get_template("md.jinja").module.matrix(matrix))  # type: ignore[attr-defined]


def need_jinja2() -> None:
    """Raise `UsageError` with the remedy if Jinja2 is not installed."""
    need("jinja2", "reports in HTML and Markdown need Jinja2")


@functools.cache
def environment(form: str) -> Environment:
    """Return the environment in which templates write HTML, or Markdown ("md")."""
    need_jinja2()
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    def safe(function: Callable[..., str]) -> Callable[..., Markup]:
        # What is safe already stays as it is.
        return lambda value, *args: value if isinstance(value, Markup) else Markup(function(value, *args))  # noqa: S704

    is_html = form == "html"
    escaped = escape_html if is_html else escape_markdown
    escape = safe(lambda value: escaped(f"{value:g}" if isinstance(value, float) else str(value)))
    made = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        finalize=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    outcomes = {
        name: getattr(results, name) for name in ("WRONG", "CRASHED", "FAIL", "EXPECTED", "PASS", "NOT_APPLICABLE")
    }
    made.globals |= outcomes | {"OUTCOMES": results.OUTCOMES, "digests": digest, "looks": looks, "form_name": form}
    shown = _code_html if is_html else code
    made.filters |= {
        "block": safe(_pre if is_html else fenced),
        "code": safe(shown),
        "codes": safe(lambda ids: ", ".join(map(shown, ids))),
        "prose": safe(_paragraphs if is_html else _prose),
        "spans": safe(_spans_html if is_html else _spans),
        "title": safe(_spans_html if is_html else lambda text: _prose(line(text))),
        "words": safe(lambda value: _words(line(str(value)))) if is_html else escape,
        "summary": safe(_spans_html),
        "slug": safe(_slug),
        "lines": safe(lambda text: html.escape(clean(text))),
        "cut": cut,
        "line": line,
        "some": safe(lambda names: some(names, code)),
        "spent": digest.spent,
        "blocks": blocks,
    }
    return made


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


def _pre(text: str, language: str = "") -> str:
    styled = ' class="repro"' * (language == "python")
    return f"<pre{styled}>{_words(text.rstrip())}</pre>"


def _code_html(text: str) -> str:
    return f"<code>{_words(line(text))}</code>"


def _spans_html(text: str) -> str:
    return _prose_html(line(text))


def _paragraphs(markdown: str) -> str:
    return "\n".join(f"<p>{_prose_html(paragraph)}</p>" for paragraph in markdown.split("\n\n"))


def _prose_html(markdown: str) -> str:
    """Return an author's Markdown as HTML: its code spans, and the rest as it is written."""
    return _SPAN.sub(r"<code>\2</code>", _words(markdown))
