"""What PyTensor does not allow the plugin to do right."""

from __future__ import annotations

from adprotocol.extend import Divergence

WRONG = "wrong"

NO_BOOL = Divergence(
    name="no-bool",
    title="The answer is never a bool",
    remedy="Branch on the answer with adprotocol.cond",
    scenarios=("within_gradient/a-bool-*",),
    text="""\
A graph of PyTensor is built first and differentiated later, so `within_gradient` of a floating-point variable is a
boolean scalar of the graph, everywhere. `if within_gradient(x)` raises `UndecidableError`; branch with `cond`. Integer
and boolean variables are False at once.
""",
)

CONSTANTS_STAY_OPEN = Divergence(
    name="constants-stay-open",
    title="Constants and results stay open",
    remedy="Branch on the answer with adprotocol.cond",
    text="""\
The answer is a staged scalar for a constant and for the result of a gradient too: PyTensor differentiates with respect
to any variable, a constant included, and `graph_replace` may put another variable in its place. A `False` given at once
would be wrong there.
""",
)

UNUSED_GUARD = Divergence(
    name="unused-guard",
    title="A guard whose result is not used",
    remedy="Use the value that prevent_gradient returns",
    outcome=WRONG,
    scenarios=("prevent_gradient/container-in-gradient",),
    text="""\
`prevent_gradient(x, message)` raises when a gradient is taken through the variable that it returns. If that is dropped,
it is in no graph, and nothing raises. Use the value that it returns.
""",
)

KEPT_VALUES = Divergence(
    name="kept-values",
    title="What a function puts aside",
    remedy="Return the value as auxiliary output of adprotocol.value_and_grad",
    outcome=WRONG,
    scenarios=("within_gradient/parameter-that-is-read",),
    text="""\
While the function of a gradient runs, the graph is built; it is differentiated when the function has returned. A graph
that the function puts aside, in a list of its caller, is in no gradient, and its questions evaluate to False. Return
it, as auxiliary output of `adprotocol.value_and_grad`.
""",
)

EQUALITY = Divergence(
    name="equality",
    title="`==` compares objects",
    remedy="Compare with pytensor.tensor.eq",
    outcome=WRONG,
    scenarios=(
        "non_differentiable/label-comparison-and-indexing",
        "cond/product-with-a-break",
        "cond/product-with-a-break@grad=pullback",
    ),
    text="""\
`x == y` of two variables of PyTensor is a Python bool: whether they are one object. So is that of a label. Neither is a
predicate for `cond`; write `pytensor.tensor.eq(x, y)`. The other comparisons are elementwise.
""",
)

RESULTS_ARE_GRAPHS = Divergence(
    name="results-are-graphs",
    title="A gradient is a graph",
    remedy="Evaluate it with pytensor.function or eval",
    outcome=WRONG,
    scenarios=("value_and_grad/framework-of-arguments",),
    text="""\
`grad` of a model of constants gives a `TensorVariable`, which is not of the class of a constant: it is to be compiled.
""",
)

NO_FLOAT = Divergence(
    name="no-float",
    title="No `float` of a variable",
    remedy="Evaluate it first",
    text="PyTensor refuses `float(x)` of any variable, a constant included; the scenario calls it. Evaluate it first.",
)

COPIES = Divergence(
    name="copies-beside-a-gradient",
    title="Copies of a value beside its gradient",
    remedy="Return adprotocol_pytensor.differentiated(value, wrt)",
    outcome=WRONG,
    text="""\
A function that returns a gradient and the value of which it was taken, or updates by the gradient, computes one and the
same value: `pytensor.function([x], [y, pytensor.grad(y, x)])` gives `y` as it is differentiated, and
`pytensor.function([x], y)` as it is when nobody differentiates. This goes by the identity of variables. A copy of
either, made by `clone_replace` or `graph_replace` between the gradient and the function, is another program: its
questions are answered for it alone. Ask for the value by `adprotocol.value_and_grad`, or by
`adprotocol_pytensor.differentiated([y], [x])`, before you copy.
""",
)

INTEGER_INPUTS = Divergence(
    name="integer-inputs",
    title="Integer inputs",
    remedy="Cast the input to a float, and differentiate with respect to that",
    outcome=WRONG,
    text="""\
PyTensor takes gradients with respect to an integer input, as if it were real. `within_gradient` of an integer is False
there as everywhere; what is computed from it in floating point answers True.
""",
)

COMPILED = Divergence(
    name="compiled-graphs",
    title="Graphs taken out of a compiled function",
    remedy="Differentiate the graph that was given to pytensor.function",
    outcome=WRONG,
    text="""\
Compiling answers the questions that no gradient has answered, with False. `function.maker.fgraph` holds the result; its
outputs, differentiated afterwards, have no question left. Differentiate the graph that the function was made of. The
rewrites that may come before a gradient (`rewrite_graph` with `canonicalize`, `stabilize`, `specialize`) leave the
questions open.
""",
)

INNER_GRAPHS = Divergence(
    name="inner-graphs",
    title="Inner graphs of other operations",
    remedy="Ask outside, and use the answer inside",
    text="""\
The plugin answers in the inner graphs of `scan`, `OpFromGraph` and `Blockwise`. A question in another (an optimiser of
`pytensor.tensor.optimize`) raises `UndecidableError` when a gradient goes through it.
""",
)

DIVERGENCES: tuple[Divergence, ...] = (
    NO_BOOL,
    CONSTANTS_STAY_OPEN,
    UNUSED_GUARD,
    KEPT_VALUES,
    EQUALITY,
    RESULTS_ARE_GRAPHS,
    NO_FLOAT,
    COPIES,
    INTEGER_INPUTS,
    COMPILED,
    INNER_GRAPHS,
)
