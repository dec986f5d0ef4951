"""Reports on a run: what they say (`digest`, `matrix`), and how (`text` in Python, the rest by Jinja2 templates)."""
