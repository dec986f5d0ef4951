"""The gradient of a model of which parts are frozen, beside code written by hand that closes over them."""

from __future__ import annotations

import functools
import statistics
from itertools import pairwise

import frameworks
import models
import numpy as np
import pytest
from interleave import in_turn, long_call, paired
from row import Row, duration, size

SECONDS = 8.0
AT_MOST = 1.1
# What the time may seem to rise by between two shares that cost nearly the same.
NOISE = 1.05


def mapped(function, tree):
    return {name: mapped(function, leaf) if isinstance(leaf, dict) else function(leaf) for name, leaf in tree.items()}


def check(ours, by_hand):
    """Compare values and gradients; ours has None for what is frozen, the other nothing."""
    (value, gradient), (expected, gradients) = ours, by_hand
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for name, group in gradient.items():
        found = group if isinstance(group, dict) else {name: group}
        if name not in gradients:
            assert set(found.values()) == {None}
            continue
        given = gradients[name] if isinstance(group, dict) else {name: gradients[name]}
        for field, leaf in found.items():
            np.testing.assert_allclose(leaf, given[field], rtol=1e-4, atol=1e-6)


def measure(model, framework):
    """Return the times of ours and of what is written by hand for each share in turn, and the memory of each."""
    with framework.precision():
        parameters = mapped(framework.array, model.parameters)
        loss = functools.partial(model.loss, data=mapped(framework.array, model.data), framework=framework)
        calls, memory = [], []
        for share in model.frozen:
            ours = framework.ours(loss, model.patterns(share))
            by_hand = framework.by_hand(loss, model.trained(share), parameters)
            check(ours(parameters), by_hand(parameters))
            for side in (ours, by_hand):
                calls.append(long_call(framework.timed(side), parameters))
                memory.append(framework.memory(side, parameters))
        return in_turn(calls, seconds=SECONDS), memory


def rows(model, framework, measured):
    times, sizes = measured
    for i, share in enumerate(model.frozen):
        found = paired(times[2 * i], times[2 * i + 1])
        ours, by_hand = sizes[2 * i : 2 * i + 2]
        memory = max(ours[kind] / by_hand[kind] for kind in by_hand)
        yield Row(
            f"{model.name}, {framework.name}, {share} % frozen" + (" but for a scalar" if share == 100 else ""),
            f"{duration(found.ours)}, {_listed(ours)}",
            f"by hand: {duration(found.reference)}, {_listed(by_hand)}",
            f"{found.ratio:.2f}, memory {memory:.2f}",
            f"≤ {AT_MOST:g} both",
            max(found.ratio, memory) <= AT_MOST,
            found.noise,
        )
    ours, by_hand = _fall(times[::2]), _fall(times[1::2])
    yield Row(
        f"  of the time at 0 %, at {', '.join(map(str, model.frozen))} % frozen",
        ", ".join(f"{part:.0%}" for part in ours),
        f"by hand: {', '.join(f'{part:.0%}' for part in by_hand)}",
        target="falls",
        met=all(later < NOISE * earlier for earlier, later in pairwise(ours)) and ours[-1] < ours[0],
    )


def _listed(memory):
    return ", ".join(f"{kind} {size(count)}" for kind, count in memory.items())


def _fall(times):
    return [statistics.median(a / b for a, b in zip(mine, times[0], strict=True)) for mine in times]


@pytest.mark.parametrize("framework", frameworks.FRAMEWORKS, ids=lambda framework: framework.name)
@pytest.mark.parametrize("make", [models.mlp, models.gp])
def test_frozen(benchmark, record, make, framework):
    model = make()
    measured = benchmark.pedantic(measure, args=(model, framework), rounds=1)
    record(*rows(model, framework, measured))
