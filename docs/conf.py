"""Sphinx configuration: MyST pages, the reference by autodoc, Furo."""

import sys
from pathlib import Path

import adprotocol

sys.path.insert(0, str(Path(__file__).parent))
import generate

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
html_title = f"adprotocol {release}"
html_copy_source = False
html_show_sourcelink = False


def setup(app):
    app.connect("builder-inited", lambda _: generate.main())
