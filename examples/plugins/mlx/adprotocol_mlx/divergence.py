"""The rules that MLX does not allow this plugin to keep, as data: the hook `divergences` lists them."""

from adprotocol.extend import Divergence

FURTHER_ARGUMENTS = Divergence(
    name="further-arguments",
    title="Further arguments of grad",
    remedy="Ask about the parameters, close over the data, or pass all that is differentiated as the first argument",
    scenarios=(
        "within_gradient/second-argument",
        "within_gradient/second-argument-of-jit",
        "prevent_gradient/container-under-jit",
    ),
    text="""\
`mx.grad` puts traced copies in the place of all its arguments, those outside of `argnums` too, and nothing shows Python
which of them are differentiated. A value that depends on the first argument with arrays is True. One that depends on
further ones alone, such as the data of `mx.grad(loss)(parameters, data)`, raises `UndecidableError`. Ask about the
parameters, close over the data, or pass all that is differentiated as the first argument. `adprotocol.grad`, `mx.vjp`
and `mx.jvp` copy what they differentiate and nothing else.
""",
)

FIRST_ARGUMENT = Divergence(
    name="first-argument",
    title="A first argument that grad does not differentiate",
    remedy="Let what is differentiated be the first argument",
    outcome="wrong",
    text="""\
For the same reason the first argument with arrays is True if `argnums` or `argnames` leaves it out. Let what is
differentiated be the first argument.
""",
)

AFTER_INNER_DERIVATIVE = Divergence(
    name="after-inner-derivative",
    title="After an inner derivative, inside mx.vjp or mx.jvp",
    remedy="Ask before the inner derivative, or let mx.grad be the outer one",
    text="""\
An inner derivative that closes over a value of an outer one makes MLX forget that the value is differentiated outside.
(A second inner derivative with respect to it, or an evaluation, then gives wrong outer derivatives, without a question
too.) If the outer one is `mx.grad` or `mx.value_and_grad`, the answer is still found. If it is `mx.vjp` or `mx.jvp`, or
the question is asked in a vjp rule, a value may raise `UndecidableError`.
""",
)

RULES_BY_DEFAULT = Divergence(
    name="rules-by-default",
    title="In the second run of a function whose rule MLX makes by itself",
    remedy=(
        "Give the mx.custom_function rules for both modes; evaluate the results of a finished derivative with mx.eval"
    ),
    scenarios=("within_gradient/from-another-gradient",),
    text="""\
For a checkpoint in forward mode, and for an `mx.custom_function` without a rule for the mode, MLX runs the function a
second time when the derivative is computed. Little then tells this run from a derivative that is over, and a value
that depends on its arguments may raise `UndecidableError`. So does the gradient of a finished derivative inside
another one, until it is evaluated.
""",
)

COMPILED_AFTER_INNER_DERIVATIVE = Divergence(
    name="compiled-after-inner-derivative",
    title="A compiled function after an inner derivative",
    remedy="Call the compiled function before the inner derivative, or pass what that closes over as an argument",
    text="""\
MLX runs compiled code only on values that it does not trace, so the answer in it is False. But once an inner derivative
has closed over a value, MLX takes it for untraced. If its derivative then goes through compiled code with an answer in
it, `UndecidableError` is raised.
""",
)

CUSTOM_FUNCTIONS = Divergence(
    name="custom-functions",
    title="Inside a function with a rule of its own",
    remedy="Take non_differentiable of the argument at the start of the function",
    outcome="wrong",
    scenarios=("within_gradient/inside-custom-rule-*",),
    text="""\
`mx.custom_function` and `mx.checkpoint` run the function in the same way. In the first run of a checkpoint the answer
must be True, because its second run is differentiated. So it is True in a function with a derivative rule of its own,
where no derivative passes the operations. Take `non_differentiable` of the argument at the start of the function.
""",
)

PREVENTED_IN_CUSTOM_FUNCTIONS = Divergence(
    name="prevented-in-custom-functions",
    title="prevent_gradient inside a function with a rule of its own",
    remedy="Take non_differentiable of the argument at the start of the function",
    scenarios=("prevent_gradient/inside-custom-rule*",),
    text="""\
For the same reason `prevent_gradient` raises there. Take `non_differentiable` of the argument first.
""",
)

CLOSURES = Divergence(
    name="closures",
    title="What a compiled or checkpointed function closes over",
    remedy="Pass it as an argument, or name it in the inputs of mx.compile",
    outcome="wrong",
    scenarios=(
        "within_gradient/jit-closes-over-tracked",
        "within_gradient/checkpoint-closes-over-tracked",
        "within_gradient/made-inside-a-gradient-under-jit",
        "value_and_grad/made-inside-under-jit",
    ),
    text="""\
MLX gives what `mx.compile` and `mx.checkpoint` close over a derivative of zero, and a compiled function keeps the
values of its first call. The answer inside is that for the value itself. Pass the value as an argument, or name it
in the
`inputs` of `mx.compile`.
""",
)

VMAP = Divergence(
    name="vmap",
    title="The answer in vmap",
    remedy="Branch on it with adprotocol.cond",
    scenarios=("within_gradient/a-bool-vmap", "within_gradient/a-bool-grad-of-vmap"),
    text="""\
`mx.vmap` runs its function on placeholders and puts the values in at the end. So the answer for a mapped value is an
array, which `if` refuses and `adprotocol.cond` takes; both branches run. The same holds in a function under
`mx.compile`, where the branches stay in the program. With `shapeless=True` MLX refuses to compile it.
""",
)

LABELS = Divergence(
    name="labels",
    title="Labels and classes in MLX's functions",
    remedy="Pass a dict of arrays; write label.value, or put the label first: label * array",
    scenarios=(
        "non_differentiable/label-in-native-grad",
        "non_differentiable/label-traced-once",
        "value_and_grad/labelled-leaf",
        "plugins/registered-structure-under-jit",
        "plugins/registered-structure-with-a-label-under-jit",
    ),
    text="""\
MLX has no registry of containers: `mx.grad`, `mx.vmap` and `mx.compile` refuse a label, a dataclass or any other class
among their arguments, `register_structure` or not. And in `array * label`
MLX takes the label for a complex number, because it can be converted to one: the result is `complex64`. Write
`label.value`, or put the label first.
""",
)

AFTER_AN_EXCEPTION = Divergence(
    name="after-an-exception",
    title="An argument that has escaped from a derivative that raised",
    remedy="Keep no arguments of a differentiated function",
    outcome="wrong",
    text="""\
MLX takes its mark off the arguments at the end of a derivative, but not after an exception. An argument that was asked
about, and is still held by someone then, is True inside a later transformation.
""",
)

THREADS = Divergence(
    name="threads",
    title="Threads",
    remedy="Ask in the thread that differentiates",
    outcome="wrong",
    text="""\
MLX keeps its transformations by thread, and what one thread leaves unevaluated no other can evaluate. A value that a
derivative in another thread differentiates is False.
""",
)

GLOBALS = Divergence(
    name="globals",
    title="A NaN from what a branch finds by a global name",
    remedy="Pass it to cond as an operand",
    outcome="wrong",
    text="""\
Where both branches run, a NaN of the branch that is not taken reaches no gradient of the operands, of what the branch
closes over, and of modules among these. It does reach the gradient of an array that the branch finds otherwise: as a
global, or as an attribute of an object whose class is no structure. Pass it as an operand.
""",
)

DIVERGENCES = (
    FURTHER_ARGUMENTS,
    FIRST_ARGUMENT,
    AFTER_INNER_DERIVATIVE,
    RULES_BY_DEFAULT,
    COMPILED_AFTER_INNER_DERIVATIVE,
    CUSTOM_FUNCTIONS,
    PREVENTED_IN_CUSTOM_FUNCTIONS,
    CLOSURES,
    VMAP,
    LABELS,
    AFTER_AN_EXCEPTION,
    THREADS,
    GLOBALS,
)


def by_name(name: str) -> Divergence:
    """Return a declared divergence."""
    return next(divergence for divergence in DIVERGENCES if divergence.name == name)
