"""Sphinx configuration: MyST pages, the reference by autodoc, Furo."""

import os
import sys
import tomllib
from pathlib import Path

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

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
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


class Domain(PythonDomain):
    """Python's, but the search shows hooks, helpers and harness methods last: few readers look for them."""

    def get_objects(self):
        for name, shown, kind, page, anchor, priority in super().get_objects():
            yield name, shown, kind, page, anchor, 2 if page in {"api_plugins", "api_conformance"} else priority


def setup(app):
    app.add_domain(Domain, override=True)
    app.connect("builder-inited", lambda _: generate.main())
    # Write every page, though few were read: Sphinx loses the index entries of those that it does not write
    # (Sphinx 9.0, `IndexBuilder.load`), and then the search finds other pages first.
    app.connect("env-updated", lambda _, env: env.found_docs)
