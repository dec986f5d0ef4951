"""The harness of PyTensor: graphs are built, differentiated and nested, and evaluated only by `to_numpy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.gradient import disconnected_grad, pullback, pushforward, zero_grad
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import graph_inputs
from pytensor.ifelse import ifelse
from pytensor.link.vm import VMLinker
from pytensor.scan import until

from adprotocol import NonDifferentiable
from adprotocol.conformance import Harness
from adprotocol.extend import tree_leaves, tree_map
from adprotocol_pytensor import differentiated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Python's virtual machine, which is lazy and compiles nothing; `OpFromGraph(inline=True)` needs its one rewrite.
EVALUATE = Mode(VMLinker(use_cloop=False, c_thunks=False), RewriteDatabaseQuery(include=["inline_ofg_expansion"]))

# The bound of a loop with a condition.
STEPS = 1000


def as_variable(value: Any, dtype: Any = None) -> Any:
    """Return a variable; Python numbers become constants of the default dtypes, not of the smallest that fits."""
    return value if isinstance(value, Variable) else pt.constant(np.asarray(value, dtype))


def flatten(tree: Any) -> tuple[list[Any], Any, Callable[[Sequence[Any]], Any]]:
    """Return the leaves of a container, its structure and what rebuilds it; PyTensor has no containers of its own."""
    leaves = tree_leaves((tree,))
    labelled = tuple(isinstance(leaf, NonDifferentiable) for leaf in leaves)
    bare = [leaf.held if isinstance(leaf, NonDifferentiable) else leaf for leaf in leaves]

    def build(new: Sequence[Any]) -> Any:
        pairs = zip(labelled, new, strict=True)
        following = iter([NonDifferentiable(leaf) if label else leaf for label, leaf in pairs])
        return tree_map(lambda _: next(following), tree)

    return bare, (tree_map(lambda _: None, tree), labelled), build


class Counted(ViewOp):
    """An identity whose pullback counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def pullback(self, _inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        """Count a run, and pass the cotangent on."""
        self.runs += 1
        return cotangents


class PyTensorHarness(Harness):
    """Describe PyTensor."""

    name = "pytensor"
    tolerance = 1e-9
    absent = {  # noqa: RUF012  (as the base class declares it)
        "checkpoint": "PyTensor has checkpoints in scan only (scan_checkpoints)",
        "no_grad": "PyTensor has no switch: a gradient is asked for by name",
        "module": "PyTensor has no modules",
        "variable": "PyTensor differentiates a graph by what is named; nothing is tracked before",
        "backward": "PyTensor's gradients are graphs, which no variable keeps",
        "node": "PyTensor has no registry of containers",
        "devices": "PyTensor computes on the CPU",
        "evaluate": "the inputs of a graph have no values while it is built",
    }

    def array(self, value: Any) -> Any:
        """Return a constant."""
        return as_variable(value)

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """Compile and run the graph."""
        if not isinstance(array, Variable):
            return np.asarray(array)
        if isinstance(array, Constant):
            return np.asarray(array.data)
        # The mode for the inner functions of OpFromGraph.
        with pytensor.config.change_flags(mode="FAST_COMPILE"):
            return np.asarray(pytensor.function([], array, mode=EVALUATE)())

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient."""

        def gradient(x: Any, *others: Any) -> Any:
            return self._differentiated(fun, x, others)[1]

        return gradient

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the value, as the gradient computes it, and the gradient."""
        return lambda x, *others: self._differentiated(fun, x, others)

    def _differentiated(self, fun: Callable[..., Any], x: Any, others: Sequence[Any]) -> tuple[Any, Any]:
        x = as_variable(x)
        made = x.type()
        value = as_variable(fun(made, *others))
        gradient = pytensor.grad(value, made, disconnected_inputs="ignore")
        return tuple(graph_replace([*differentiated([value], [made]), gradient], {made: x}, strict=False))

    def _by_pullback(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        def gradient(x: Any, *others: Any) -> Any:
            x = as_variable(x)
            made = x.type()
            value = as_variable(fun(made, *others))
            found = pullback(value, made, pt.ones_like(value), disconnected_inputs="ignore")
            return graph_replace([found], {made: x}, strict=False)[0]

        return gradient

    @property
    def variants(self) -> dict[str, dict[str, Callable[..., Any]]]:
        """Add the pullback, the push-forward by the rule of each operation, zeros, and rules for each input."""
        return {
            "grad": {"pullback": self._by_pullback},
            "jvp": {"direct": self._jvp_direct},
            "stop_gradient": {"zero": zero_grad},
            "custom_rule": {"listed": self._listed_rule},
        }

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Return the value, as the push-forward computes it, and the derivative, by two pullbacks."""
        return self._jvp(fun, primal, tangent)

    def _jvp_direct(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        return self._jvp(fun, primal, tangent, use_op_pushforward=True)

    def _jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any, **options: Any) -> tuple[Any, Any]:
        primal = as_variable(primal)
        made = primal.type()
        value = as_variable(fun(made))
        found = pushforward(value, made, as_variable(tangent), disconnected_outputs="ignore", **options)
        return tuple(graph_replace([*differentiated([value], [made]), found], {made: primal}, strict=False))

    def jit(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Trace the function once into an `OpFromGraph` that is inlined when a graph is compiled."""
        return _traced(fun, inline=True)

    def compile(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Trace the function once into an `OpFromGraph` that is compiled on its own."""
        return _traced(fun, inline=False)

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Vectorize the graph of the function."""

        def batched(*args: Any) -> Any:
            leaves, _, rebuild = flatten(args)
            leaves = list(map(as_variable, leaves))
            cores = [pt.tensor(dtype=leaf.type.dtype, shape=leaf.type.shape[1:]) for leaf in leaves]
            results, _, build = flatten(fun(*rebuild(cores)))
            results = list(map(as_variable, results))
            size = leaves[0].shape[0]
            stacked = vectorize_graph(results, dict(zip(cores, leaves, strict=True)))
            return build(
                [
                    new if new.type.ndim > old.type.ndim else pt.alloc(new, size, *new.shape)
                    for old, new in zip(results, stacked, strict=True)
                ]
            )

        return batched

    def scan(self, fun: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
        """Loop by `pytensor.scan`."""
        carried, _, rebuild = flatten(carry)
        sequences, _, rows = flatten(xs)
        built: list[Any] = []

        def step(*args: Any) -> list[Any]:
            new, y = fun(rebuild(args[len(sequences) :]), rows(args[: len(sequences)]))
            ys, _, build = flatten(y)
            built.append((len(ys), build))
            return list(map(as_variable, [*flatten(new)[0], *ys]))

        # A first run says how many ys there are.
        step(*[as_variable(x)[0] for x in sequences], *map(as_variable, carried))
        count, build = built[-1]
        found = pytensor.scan(
            step,
            sequences=list(map(as_variable, sequences)),
            outputs_info=[*map(as_variable, carried), *[None] * count],
            mode=EVALUATE,
            return_list=True,
            return_updates=False,
        )
        return rebuild([states[-1] for states in found[: len(carried)]]), build(found[len(carried) :])

    def while_loop(self, continues: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
        """Loop by `pytensor.scan` with `until`, which runs the body once before it asks, and takes a bound."""
        start = list(map(as_variable, state))

        def body(*args: Any) -> tuple[list[Any], Any]:
            new = list(map(as_variable, step(tuple(args))))
            return new, until(pt.invert(continues(tuple(new))))

        loop = pytensor.scan(
            body,
            outputs_info=start,
            n_steps=STEPS,
            mode=EVALUATE,
            return_list=True,
            return_updates=False,
        )
        goes = continues(tuple(start))
        return tuple(ifelse(goes, states[-1], first) for states, first in zip(loop, start, strict=True))

    def stop_gradient(self, array: Any) -> Any:
        """Return a constant for derivatives."""
        return disconnected_grad(array)

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Return an `OpFromGraph` with a pullback of its own."""

        def rule(inputs: Any, _outputs: Any, cotangents: Any) -> list[Any]:
            return [cotangents[0] * derivative(inputs[0])]

        def tangent(inputs: Any, tangents: Any) -> list[Any]:
            return [tangents[0] * derivative(inputs[0])]

        def apply(x: Any) -> Any:
            x = as_variable(x)
            made = x.type()
            return OpFromGraph([made], [as_variable(fun(made))], inline=True, pullback=rule, pushforward=tangent)(x)

        return apply

    def _listed_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        def rule(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
            return cotangents[0] * derivative(inputs[0])

        def tangent(inputs: Any, tangents: Any) -> Any:
            return tangents[0] * derivative(inputs[0])

        def apply(x: Any) -> Any:
            x = as_variable(x)
            made = x.type()
            return OpFromGraph([made], [as_variable(fun(made))], inline=True, pullback=[rule], pushforward=[tangent])(x)

        return apply

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Count how often the pullback of an identity is used."""
        counted = Counted()
        return counted, lambda: counted.runs

    def abstract(self, fun: Callable[..., Any], *arrays: Any) -> None:
        """Build the graph, which holds dtypes and shapes alone."""
        fun(*[as_variable(array).type() for array in arrays])

    def parameter(self, value: Any, *, trains: bool) -> Any:
        """Return a shared variable; the plugin reads the tag."""
        made = pytensor.shared(np.asarray(value))
        made.tag.trainable = trains
        return made

    def assign(self, parameter: Any, value: Any) -> None:
        """Set the value of the shared variable."""
        parameter.set_value(np.asarray(value))

    def set_flag(self, parameter: Any, *, trains: bool) -> None:
        """Set the tag that the plugin reads."""
        parameter.tag.trainable = trains

    def parameter_grad(self, fun: Callable[[], Any], parameter: Any) -> Any:
        """Return the gradient with respect to a shared variable."""
        return pytensor.grad(as_variable(fun()), parameter, disconnected_inputs="ignore")

    def threads(self) -> bool:
        """Graphs are built and compiled in any thread."""
        return True

    def sum(self, array: Any) -> Any:
        """Return the sum of all elements."""
        return array.sum()

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Select by elements."""
        return pt.switch(mask, x, y)

    def dtypes(self) -> tuple[str, ...]:
        """Name the floating dtypes."""
        return ("float64", "float32")

    def cast(self, array: Any, dtype: str) -> Any:
        """Return the array in another dtype."""
        return array.astype(dtype)

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name functions of PyTensor."""
        return {
            "larger": lambda v: pt.maximum(pt.minimum(v, 9.0), 0.5),
            "exp": pt.exp,
            "matmul": lambda v: v @ pt.ones((2, 3)),
            "reshape": lambda v: v.reshape((2, 1)),
            "transpose": lambda v: v[None].T,
            "concatenate": lambda v: pt.concatenate([v, v]),
            "max": pt.max,
            "sort": pt.sort,
            "cumsum": pt.cumsum,
            "take": lambda v: v[np.array([1, 0])],
            "set": lambda v: pt.zeros_like(v)[0].set(v[1]),
            "complex": lambda v: pt.complex(v, pt.zeros_like(v)),
        }


def _traced(fun: Callable[..., Any], *, inline: bool) -> Callable[..., Any]:
    """Return the function as an `OpFromGraph`, traced once for all arguments of one structure and the same types."""
    made: dict[Any, Any] = {}

    def call(*args: Any) -> Any:
        leaves, structure, rebuild = flatten(args)
        key = structure, *(leaf.type if isinstance(leaf, Variable) else leaf for leaf in leaves)
        if key not in made:
            inputs = [leaf.type() if isinstance(leaf, Variable) else leaf for leaf in leaves]
            made[key] = _trace(fun(*rebuild(inputs)), [x for x in inputs if isinstance(x, Variable)], inline=inline)
        return made[key]([leaf for leaf in leaves if isinstance(leaf, Variable)])

    return call


def _trace(result: Any, inputs: list[Any], *, inline: bool) -> Callable[[list[Any]], Any]:
    results, _, build = flatten(result)
    places = [place for place, leaf in enumerate(results) if isinstance(leaf, Variable)]
    outputs = [results[place] for place in places]
    if not outputs:
        return lambda _: result
    closed_over = [
        root
        for root in dict.fromkeys(graph_inputs(outputs))
        if root not in inputs and not isinstance(root, Constant) and not hasattr(root, "get_value")
    ]
    op = OpFromGraph([*inputs, *closed_over], outputs, inline=inline, on_unused_input="ignore")

    def run(arrays: list[Any]) -> Any:
        leaves = list(results)
        for place, value in zip(places, op(*arrays, *closed_over, return_list=True), strict=True):
            leaves[place] = value
        return build(leaves)

    return run
