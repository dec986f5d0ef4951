"""Reports on a run: what they say (`entries`), and how (`written` in Python, `page` by a Jinja2 template)."""
