"""Running the suite: a backend, its cases, and what came of them."""
