"""The scenarios, one module for each theme; each module enters its own when it is imported."""
