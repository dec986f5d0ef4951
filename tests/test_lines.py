"""The parts of the library stay within their budgets."""

import pytest
from lines import BUDGETS, code_lines, sizes

MODULE = '''"""A docstring
of two lines."""

import os  # code, with a comment

# A comment.


def path():
    """Return it."""
    return """
    a string of three lines"""
'''


def test_comments_docstrings_and_blank_lines_are_no_code():
    assert code_lines(MODULE) == 4


@pytest.fixture(scope="module")
def counts():
    return sizes()


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.part)
def test_a_part_is_within_its_budget(budget, counts):
    assert 0 < counts[budget.part] <= budget.limit, "delete as much as you add"
