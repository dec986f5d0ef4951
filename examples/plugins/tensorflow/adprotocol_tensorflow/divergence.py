"""What TensorFlow does not allow the plugin to do right."""

from __future__ import annotations

from adprotocol.extend import Divergence

FIRST_RUN = Divergence(
    name="recompute-first-run",
    title="Inside of `tf.recompute_grad`",
    remedy=(
        "Compile the function, tf.recompute_grad(tf.function(f)), or ask outside and pass the answer as an argument"
    ),
    scenarios=(
        "within_gradient/asking-changes-nothing-grad-of-checkpoint",
        "within_gradient/checkpoint-closes-over-tracked",
        "prevent_gradient/grad-of-checkpoint",
    ),
    text="""\
`tf.recompute_grad(f)` runs `f` twice: first with all recording stopped, then, in the backward pass, under a tape of
its own that follows every argument. So that both runs agree, the answer for an argument is True in the first run if any
argument is differentiated. Whether a value is computed from the arguments is not known in the first run of eager code,
where nothing is recorded. That is an `UndecidableError`, if something is differentiated at all. In a traced function
the program tells.

TensorFlow has no derivative for tensors that the function closes over, and no forward mode; a tape or an accumulator
that is opened inside gives zeros in the first run.
""",
)

FORWARD_OVER_REVERSE = Divergence(
    name="forward-over-reverse-of-cond",
    title="Forward mode over reverse mode of `tf.cond`",
    remedy="Branch outside of the compiled function, where the answer is a bool, or use reverse mode twice",
    scenarios=("within_gradient/jvp-of-grad-of-jit",),
    text="""\
A `tf.autodiff.ForwardAccumulator` around a tape around a traced function with `tf.cond` in it raises a `TypeError`
about the dtype `variant`, without adprotocol too: what a branch keeps for its derivative has no tangent.
""",
)

COMPILED_IN_LOOP = Divergence(
    name="compiled-cond-in-loop",
    title="`tf.cond` compiled by XLA in a loop that is differentiated",
    remedy="Compile the whole loop, or nothing in it, with jit_compile=True",
    scenarios=("within_gradient/grad-of-scan-of-compile", "cond/grad-of-scan-of-compile"),
    text="""\
The derivative of a `tf.while_loop` around a function with `jit_compile=True` that has a `tf.cond` in it raises
`InvalidArgumentError`, without adprotocol too: XLA does not know `OptionalFromValue`, by which a branch keeps values
for its derivative.
""",
)

VECTORIZED_STRUCTURES = Divergence(
    name="vectorized-structures",
    title="Structures as results of `tf.vectorized_map`",
    remedy="Return a tuple, list or dict from the vectorised function, and make the structure outside",
    scenarios=("plugins/registered-structure-under-vmap",),
    text="""\
`tf.vectorized_map` takes any structure, but of those with the methods of `tf.nest` it returns only what has a length.
Another raises `TypeError: object of type ... has no len()`.
""",
)

PYTHON = Divergence(
    name="py-function",
    title="Inside of `tf.py_function`",
    remedy="Ask outside, and pass the answer as an argument",
    text="""\
`tf.py_function` runs Python code in a program, and follows its arguments by a tape of its own once the program has been
differentiated, in later plain calls too. The answer there is an `UndecidableError`, where it is not False for certain.
""",
)

GRAPHS = Divergence(
    name="graphs-of-tensorflow-1",
    title="Graphs of TensorFlow 1",
    remedy="Use tf.function",
    text="""\
In a `tf.Graph` that is no `tf.function` the derivative is added after the program is built, and nothing calls it
through Python. The answer there is an `UndecidableError`.
""",
)

KERAS = Divergence(
    name="keras-trainable",
    title="`trainable = False` of Keras",
    remedy="Ask about layer.trainable_variables, which leaves the frozen out",
    outcome="wrong",
    text="""\
Keras keeps its flag to itself: the `tf.Variable` in a frozen `keras.Variable` stays trainable, and a tape follows it
when it is read. So the answer about it is True: TensorFlow does compute its derivative. Ask about
`layer.trainable_variables`.
""",
)

UNCONNECTED = Divergence(
    name="unconnected-operand",
    title="An operand that the branch taken does not use",
    remedy='Pass unconnected_gradients="zero" to tape.gradient, or differentiate by adprotocol.grad',
    text="""\
Where the predicate of `cond` is known, an operand that the branch taken does not use is not connected with the result.
TensorFlow then returns None, as for everything that is not connected, unless `tape.gradient` is told otherwise.
""",
)

DIVERGENCES: tuple[Divergence, ...] = (
    FIRST_RUN,
    FORWARD_OVER_REVERSE,
    COMPILED_IN_LOOP,
    VECTORIZED_STRUCTURES,
    PYTHON,
    GRAPHS,
    KERAS,
    UNCONNECTED,
)
