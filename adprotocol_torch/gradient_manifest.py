"""What PyTorch does not allow gradients with respect to parts of a model to do right; `manifest` has the rest."""

from adprotocol.extend import Divergence

PARAMETER_GRADIENT = Divergence(
    name="parameter-gradient",
    title="The gradient with respect to a parameter",
    remedy="Apply adprotocol.grad twice, or differentiate with respect to a plain tensor that requires grad",
    outcome="wrong",
    text="""\
The flag of an `nn.Parameter` says that it is trained, not that a second derivative is wanted, so its gradient has no
graph, as that of `torch.autograd.grad` without `create_graph`: an outer native `backward` with respect to the same
parameter is PyTorch's error for tensors without one, and where another term of the loss has a graph, the gradient is a
constant beside it. Two calls of `grad`, one inside the other, give the second derivative, and so does a plain tensor
that requires grad.
""",
)

SECOND_DERIVATIVE = Divergence(
    name="second-derivative-of-compiled",
    title="The second derivative of a compiled function",
    remedy="Compile the gradient instead, torch.compile(adprotocol.grad(f)), or differentiate f before it is compiled",
    text="""\
PyTorch cannot differentiate the derivative of a function that `torch.compile` compiled with a backend that builds on
`aot_autograd`, as inductor does. `adprotocol.grad` of it is an `UndecidableError`. An outer native `backward` is
PyTorch's `RuntimeError`, or, where the function saved no argument as it is, leaves the derivative out with no error.
Compile the gradient instead:

```python
import torch
from adprotocol import grad

print(torch.compile(grad(grad(lambda x: x**3)), fullgraph=True, backend="aot_eager")(torch.tensor(2.0)))
```

```text
tensor(12.)
```
""",
)

MODULE_IN_THREADS = Divergence(
    name="module-in-threads",
    title="A module under `where` in threads",
    remedy="Give each thread a copy (copy.deepcopy(module)), or set requires_grad_ instead of where=",
    text="""\
If `where` differs from the flags, the module holds other tensors while the function runs. A second thread that gives
the module to `grad` meanwhile gets a `ConcurrencyError`. One that calls the module directly gets the same values, but
differentiates the tensors that are there, not the parameters. Give each thread a copy.
""",
)

AGAINST_ITS_FLAG = Divergence(
    name="parameter-against-its-flag",
    title="A parameter against its flag",
    remedy="Set requires_grad_ instead of where=",
    outcome="wrong",
    text="""\
A parameter that `where` freezes against its flag is a constant to a native outer `backward` too. Set `requires_grad_`
instead.

A parameter that `where` trains against its flag, or freezes, and that is given to the function as another argument as
well, is the parameter itself there.
""",
)

NESTED_IN_THREADS = Divergence(
    name="nested-calls-in-threads",
    title="Nested calls in threads",
    remedy="Make nested calls of grad in the thread of the outer one",
    outcome="wrong",
    text="""\
A call of `grad` that the function makes in a new thread does not know of the call around it: the outer derivative with
respect to parameters is lost there. Make it in the thread of the outer call.
""",
)

COMPILED_HOOKS = Divergence(
    name="hooks-in-compiled-graphs",
    title="Hooks in compiled graphs",
    remedy="Apply to the gradient that is returned what the hook would do",
    outcome="wrong",
    text="""\
Hooks on parameters do not run in compiled graphs. Apply to the gradient that is returned what they would do.
""",
)

THREADS_IN_FORWARD_MODE = Divergence(
    name="forward-mode-in-threads",
    title="Forward mode in threads",
    remedy="Run torch.func.jvp in one thread at a time",
    outcome="wrong",
    text="""\
PyTorch counts the levels of forward mode for the whole process. Of two threads inside `torch.func.jvp` at once, the one
that stays longer loses its tangents, with or without this package. Run one at a time.
""",
)

NONE_UNDER_VMAP = Divergence(
    name="none-under-vmap",
    title="None under vmap",
    remedy="Name the place of None with out_dims, or return the gradients that are wanted",
    text="""\
`torch.func.vmap` refuses None in a result. Name the place with `out_dims`, or return the gradients that are wanted.
""",
)

PYTHON_NUMBERS = Divergence(
    name="python-numbers",
    title="Python numbers",
    remedy="Return the tensor itself, or torch.tensor(...) for a constant",
    text="""\
A Python float among the leaves becomes a scalar tensor of float64, and its gradient is one. A function may return a
Python number, which is a constant with zero gradients. If operations on tracked tensors were recorded on the way, as
with `(x * x).item()`, it is an `OutputError`: return the tensor itself.
""",
)

NUMBERS_OF_LEAVES = Divergence(
    name="numbers-of-leaves",
    title="Python numbers taken out of a leaf",
    remedy="Compute with the tensor itself, by functions of torch",
    outcome="wrong",
    text="""\
A number that was taken out of a leaf before any operation, as in `x.item() ** 2` or `math.sqrt(x)`, leaves no trace,
and the gradient is zeros; so it is in a compiled function whose graph breaks there. Compute with the tensor itself, by
functions of `torch`.
""",
)

MASKED_ARRAYS = Divergence(
    name="masked-arrays",
    title="Masked arrays",
    remedy="Pass a plain array, or freeze it with where=",
    text="""\
PyTorch would ignore the mask of a masked NumPy array. As a leaf that takes a gradient it is a `SelectionError`. Pass a
plain array, or freeze it.
""",
)

DIVERGENCES = (
    PARAMETER_GRADIENT,
    SECOND_DERIVATIVE,
    MODULE_IN_THREADS,
    AGAINST_ITS_FLAG,
    NESTED_IN_THREADS,
    THREADS_IN_FORWARD_MODE,
    COMPILED_HOOKS,
    NONE_UNDER_VMAP,
    PYTHON_NUMBERS,
    NUMBERS_OF_LEAVES,
    MASKED_ARRAYS,
)
