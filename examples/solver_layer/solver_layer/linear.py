"""Linear equations whose matrix is given in blocks."""

from typing import Any

import numpy as np

from adprotocol import custom_derivative, host_function


def _like(blocks: Any, right: Any) -> Any:
    """Return arrays like the unknowns, one for each column of blocks."""
    return [np.empty(np.shape(block)[-1], right[0].dtype) for block in map(_first, zip(*blocks, strict=True))]


def _first(blocks: Any) -> Any:
    return next(block for block in blocks if block is not None)


@custom_derivative
@host_function(like=_like)
def solve(blocks: Any, right: Any) -> Any:
    """Return the solution of a system of linear equations, a vector for each column of blocks.

    Args:
        blocks: the rows of the matrix, lists of blocks: matrices; vectors, for the diagonal
            of a diagonal matrix; and None, for zeros.
        right: the right-hand side, a vector for each row of blocks.
    """
    heights = [len(part) for part in right]
    widths = [len(part) for part in _like(blocks, right)]
    matrix = np.block(
        [
            [_dense(block, (height, width)) for block, width in zip(row, widths, strict=True)]
            for row, height in zip(blocks, heights, strict=True)
        ]
    )
    return np.split(np.linalg.solve(matrix, np.concatenate(right)), np.cumsum(widths)[:-1])


def _dense(block: Any, shape: tuple[int, int]) -> Any:
    if block is None:
        return np.zeros(shape)
    return block if np.ndim(block) == 2 else np.diag(block)  # noqa: PLR2004  (a matrix)


def transposed(blocks: Any) -> Any:
    """Return the blocks of the transposed matrix."""
    return [
        [block if block is None or len(block.shape) == 1 else block.T for block in column]
        for column in zip(*blocks, strict=True)
    ]


@solve.defvjp
def _solve_vjp(cotangent: Any, x: Any, blocks: Any, _right: Any) -> Any:
    adjoint = solve(transposed(blocks), cotangent)

    def of_blocks() -> Any:
        return [
            [_of_block(block, row, column) for block, column in zip(line, x, strict=True)]
            for line, row in zip(blocks, adjoint, strict=True)
        ]

    return of_blocks, adjoint


def _of_block(block: Any, row: Any, column: Any) -> Any:
    if block is None:
        return None
    return -row * column if len(block.shape) == 1 else -row[:, None] * column


@solve.defjvp
def _solve_jvp(tangents: Any, x: Any, blocks: Any, _right: Any) -> Any:
    moved, right = tangents
    for line, changes in enumerate(moved):
        for change, column in zip(changes, x, strict=True):
            if change is not None:
                product = change * column if len(change.shape) == 1 else change @ column
                right = [*right[:line], right[line] - product, *right[line + 1 :]]
    return solve(blocks, right)
