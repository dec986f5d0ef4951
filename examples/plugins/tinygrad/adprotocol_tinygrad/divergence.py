"""The rules that tinygrad does not allow this plugin to keep, as data: the hook `divergences` lists them."""

from adprotocol.extend import Divergence

NAMED_AFTERWARDS = Divergence(
    name="named-afterwards",
    title="A gradient that is asked for afterwards",
    remedy="Leave the flag of what you differentiate on, and differentiate what is no variable by adprotocol.grad",
    outcome="wrong",
    text="""\
`Tensor.gradient` takes any tensor of the graph, when the graph is built and every question has been answered. The
plugin goes by what is a variable: storage of its own with the flag `is_param` on. If you name another, one whose flag
is off or the result of `detach`, tinygrad differentiates all the same, and the answers were False. `adprotocol.grad`
says beforehand what it differentiates.
""",
)

FLAGS_ON = Divergence(
    name="flags-on",
    title="Every tensor is a variable at first",
    remedy="Turn the flag of data off, with is_param_(False), or detach it",
    outcome="wrong",
    text="""\
`is_param` is on for every new tensor, and tinygrad has no switch that stops recording. So data and the parameters of a
model that is only evaluated are within a gradient, and `backward` would indeed give gradients to them. For evaluation
turn the flags of the parameters off, or detach them. `Context(TRAINING=0)` changes nothing: tinygrad differentiates
under it as well. The flag belongs to the tensor, not to its storage: turn off that of the tensor you keep, after
`reshape` and the like.
""",
)

STORED_CONSTANTS = Divergence(
    name="stored-constants",
    title="A parameter computed from constants",
    remedy="Give it storage of its own with clone()",
    outcome="wrong",
    text="""\
`w = base.detach() * 0.5` is a constant, whoever keeps it, and stays one when it is realised. tinygrad cannot tell it
from a parameter that starts from this value. With `.clone()` at the end it has storage of its own, and is a variable.
What starts from random numbers, from data or from a file is a variable without it.
""",
)

REALISED = Divergence(
    name="realised",
    title="The gradient of a `TinyJit` and of what is realised",
    remedy="Put the gradient into the TinyJit",
    scenarios=(
        "within_gradient/closes-over-parameter-under-jit",
        "within_gradient/closes-over-frozen-parameter-under-jit",
        "non_differentiable/parameter-under-jit",
        "cond/layer-differentiated-first-under-jit",
    ),
    text="""\
A `TinyJit` returns buffers, and `realize` makes one of a tensor. tinygrad does not know what they were computed from:
its own gradient is zero, with no error. `adprotocol.grad` of a function that computes a tensor at once, by a `TinyJit`,
`realize` or by reading a result of `contiguous`, raises `UndecidableError`. Put the whole gradient into the `TinyJit`.
""",
)

STRUCTURES_IN_JIT = Divergence(
    name="structures-in-jit",
    title="Structures as arguments of a `TinyJit`",
    remedy="Pass the tensors in a list or a dict",
    scenarios=("plugins/registered-structure-under-jit",),
    text="""\
A `TinyJit` finds tensors among its arguments, and in lists, tuples and dicts one level deep. tinygrad has no registry
in which `register_structure` could enter a class. An object among the arguments becomes part of the captured program.
""",
)

CLOSED_OVER_VIEWS = Divergence(
    name="closed-over-views",
    title="A function that closes over a scalar or another view",
    remedy="Differentiate by adprotocol.grad, or pass the tensor as an argument",
    scenarios=(
        "within_gradient/closes-over-parameter-under-compile",
        "within_gradient/parameter-after-an-error-under-compile",
        "non_differentiable/parameter-under-compile",
    ),
    text="""\
`tinygrad.function` takes the buffers that it closes over as inputs. A realised scalar is a view of a buffer of one
element, which stays in the body of the function, and `Tensor.gradient` does not find it there: its own gradient is
zero, with no error. `adprotocol.grad` opens the body, and is right.
""",
)

READ_ELSEWHERE = Divergence(
    name="read-elsewhere",
    title="A parameter that a function is given, and reads by another name too",
    remedy="Read it from the model that the function is given",
    outcome="wrong",
    scenarios=("value_and_grad/parameter-read-elsewhere",),
    text="""\
`adprotocol.grad` gives the function a node of its own in the place of each leaf, so that an array at two places has two
derivatives. What the function reads of the same tensor elsewhere, from a closure, is a constant to this gradient.
""",
)

STALE_ANSWERS = Divergence(
    name="stale-answers",
    title="A `TinyJit` whose answers changed",
    remedy="Make a TinyJit of its own for training and for evaluation",
    text="""\
A `TinyJit` is captured in its second call and replayed from then on, with the answers of the capture. If a question was
asked in it and an argument is tracked now and was not then, or the flag of a tensor that it closes over has changed,
the replay raises `UndecidableError`. A `TinyJit` loaded from a pickle is not checked.
""",
)

ALL: tuple[Divergence, ...] = (
    NAMED_AFTERWARDS,
    FLAGS_ON,
    STORED_CONSTANTS,
    REALISED,
    STRUCTURES_IN_JIT,
    CLOSED_OVER_VIEWS,
    READ_ELSEWHERE,
    STALE_ANSWERS,
)
