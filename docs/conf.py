"""Sphinx configuration: MyST pages, the reference by autodoc, Furo."""

import ast
import html
import os
import re
import sys
import textwrap
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.domains.python import PythonDomain

import adprotocol

sys.path.insert(0, str(Path(__file__).parent))
import generate

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["project"]

project = "adprotocol"
author = "The adprotocol authors"
copyright = "2026, The adprotocol authors"
version = release = adprotocol.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The generated parts are no pages; pages include them.
exclude_patterns = ["_build", "generated"]
# Names in single backticks in docstrings become links where they are documented.
default_role = "py:obj"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# What stands before a colon in "Returns:" is part of a sentence, not a type: the signature has the types.
napoleon_use_rtype = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"adprotocol {release}"
html_logo = html_favicon = "_static/logo.svg"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_theme_options = {
    "source_repository": PROJECT["urls"]["Source"],
    "source_branch": "main",
    "source_directory": "docs/",
}
if ".dev" in release:
    html_theme_options["announcement"] = f"These pages describe {release}, which is not released."
html_copy_source = False
html_show_sourcelink = False


# What search engines show of a page's description, in characters.
DESCRIPTION = 160


class Domain(PythonDomain):
    """Python's, but the search shows hooks, helpers and harness methods last: few readers look for them."""

    def get_objects(self):
        for name, shown, kind, page, anchor, priority in super().get_objects():
            yield name, shown, kind, page, anchor, 2 if page in {"api_plugins", "api_conformance"} else priority


def typed():
    """Return the signatures of the public functions for type checkers: for each overload arguments and result."""
    stub = Path(adprotocol.__file__).with_suffix(".pyi").read_text("utf-8")
    found = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef) and node.name in adprotocol.__all__:
            found[node.name] = [each for each in node.body if getattr(each, "name", "") == "__init__"]
    return found


TYPED = typed()
# Of more overloads than this, the first is shown, with the types of the function itself where these say more than Any.
OVERLOADS = 2


def signature(_app, _what, name, value, _options, arguments, result):
    """Show the types of the stub, where a reader sees what follows from what."""
    overloads = TYPED.get(name.removeprefix("adprotocol."))
    if not overloads:
        return arguments, result
    if len(overloads) > OVERLOADS:
        del overloads[1:]
        for argument in [*overloads[0].args.args, *overloads[0].args.kwonlyargs]:
            general = value.__annotations__[argument.arg]
            if "Any" not in general:
                argument.annotation = ast.parse(general, mode="eval").body
    lines = []
    for each in overloads:
        each.args.args = [argument for argument in each.args.args if argument.arg != "self"]
        shown = f"({ast.unparse(each.args)})" + (f" -> {ast.unparse(each.returns)}" if each.name != "__init__" else "")
        lines.append((name.rpartition(".")[2] if lines else "") + re.sub(r"\b_(?=[A-Z])", "", shown))
    arguments, _, result = "\n".join(lines).rpartition(" -> ")
    return (arguments, result) if arguments else (result, None)


def describe(_app, _page, _template, context, doctree):
    """Describe a page for search engines by its first paragraph."""
    paragraph = next(iter(doctree.findall(nodes.paragraph)), None) if doctree else None
    if paragraph is not None:
        text = textwrap.shorten(paragraph.astext(), DESCRIPTION, placeholder=" …")
        context["metatags"] += f'\n<meta name="description" content="{html.escape(text)}" />'


def setup(app):
    app.add_domain(Domain, override=True)
    app.connect("autodoc-process-signature", signature)
    app.connect("html-page-context", describe)
    app.connect("builder-inited", lambda _: generate.main())
    # Write every page, though few were read: Sphinx loses the index entries of those that it does not write
    # (Sphinx 9.0, `IndexBuilder.load`), and then the search finds other pages first.
    app.connect("env-updated", lambda _, env: env.found_docs)
