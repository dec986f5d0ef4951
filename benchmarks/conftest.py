"""Fixtures: a comparison run by pytest-benchmark, and where its rows go."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import interleave
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from row import Row


@pytest.fixture
def side_by_side(benchmark: Any) -> Callable[..., interleave.Comparison]:
    """Return what times two calls in turn; to pytest-benchmark, which times one only, all of it is one round."""

    def compare(*args: Any, **kwargs: Any) -> interleave.Comparison:
        return benchmark.pedantic(interleave.compare, args=args, kwargs=kwargs, rounds=1, iterations=1)

    return compare


@pytest.fixture
def record(benchmark: Any) -> Callable[..., None]:
    """Return what puts rows into the JSON file."""

    def put(*rows: Row) -> None:
        benchmark.extra_info["rows"] = [asdict(row) for row in rows]

    return put
