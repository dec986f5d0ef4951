"""Sphinx configuration: MyST pages, the reference by autodoc, Furo."""

import adprotocol

project = "adprotocol"
author = "The adprotocol authors"
copyright = "2026, The adprotocol authors"
version = release = adprotocol.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# Names in single backticks in docstrings become links where they are documented.
default_role = "py:obj"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"adprotocol {release}"
html_copy_source = False
html_show_sourcelink = False
