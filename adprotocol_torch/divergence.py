"""The rules that PyTorch does not allow this plugin to keep, as data: the hook `divergences` lists them."""

from adprotocol.extend import Divergence
from adprotocol_torch.internals import differentiates_cond

REENTRANT_CHECKPOINT = Divergence(
    name="reentrant-checkpoint",
    title="Reentrant checkpoint",
    remedy="Pass use_reentrant=False",
    text="""\
`torch.utils.checkpoint` with `use_reentrant=True` first runs the function without gradients, then again with them. A
branch on the answer would return the value of one run and the gradient of the other, so `within_gradient` raises
`UndecidableError`. Pass `use_reentrant=False`.

% raises: UndecidableError

```python
import torch
from torch.utils.checkpoint import checkpoint

x = torch.tensor(2.0, requires_grad=True)
print(checkpoint(layer, x, use_reentrant=False))
checkpoint(layer, x, use_reentrant=True)
```

```text
tensor(6., grad_fn=<...>)
within_gradient was asked inside torch.utils.checkpoint with use_reentrant=True, ... Pass use_reentrant=False
```
""",
)

COMPILED_IN_REENTRANT_CHECKPOINT = Divergence(
    name="compiled-in-reentrant-checkpoint",
    title="A compiled function inside a reentrant checkpoint",
    remedy="Pass use_reentrant=False",
    outcome="wrong",
    text="""\
A function that was compiled and first run under `torch.no_grad()` escapes the check: a reentrant checkpoint reuses its
graph for the first pass. Pass `use_reentrant=False`.
""",
)

CHECKPOINT_AFTER_ITS_LEVEL = Divergence(
    name="checkpoint-after-its-level",
    title="A checkpoint inside `torch.func.jvp`, `vmap` or a dual level, differentiated outside of it",
    remedy="Ask outside the checkpoint, and pass the answer in as an argument",
    text="""\
The backward pass runs the function of `torch.utils.checkpoint` again. If it comes after the end of a forward level or a
`vmap` around the checkpoint, the second run does not see that level, and an answer that was True by that level would be
False there: the value of one branch, the gradient of the other. The backward pass raises `UndecidableError`. Ask
outside the checkpoint, and pass the answer in as an argument.
""",
)

LINEARIZE = Divergence(
    name="linearize",
    title="`torch.func.linearize`",
    remedy="Use torch.func.jvp, or ask outside and close over the answer",
    outcome="wrong",
    text="""\
PyTorch runs the function plain for its value, and again in forward mode for the tangent map. A branch on the answer
returns the value of one run and the tangents of the other. Use `torch.func.jvp`, which takes both from one run, or ask
outside and close over the answer.
""",
)

BELOW_AUTOGRAD = Divergence(
    name="below-autograd",
    title="Below autograd",
    remedy="Ask before the operation is dispatched, and pass the answer in",
    outcome="wrong",
    text="""\
PyTorch records nothing inside `__torch_dispatch__` or the body of a `torch.library.custom_op`, yet a tensor that
requires grad still answers True there. Ask before the operation is dispatched, and pass the answer in.
""",
)

SEVERAL_RESULTS = Divergence(
    name="several-results-under-inductor",
    title="Several results under inductor",
    remedy="Return one tensor (stack them)",
    outcome="wrong",
    text="""\
PyTorch computes wrong gradients for some `torch.cond` calls with two tensor results that receive the same
cotangent, under `torch.compile` with the inductor backend. (It refuses others; see the next entry.) A staged `cond`
that returns several tensors under that backend is affected too. Return one tensor (stack them).
""",
)

RESULTS_UNDER_COMPILE = Divergence(
    name="results-under-compile",
    title="Results of a staged `cond` under `torch.compile`",
    remedy="Return one tensor (stack them), and numbers of one type",
    scenarios=(
        *(("cond/containers-under-compile",) if differentiates_cond() else ()),
        "cond/numbers-of-two-types-under-compile",
    ),
    text="""\
PyTorch refuses the gradient of a `torch.cond` where two floating-point results receive the same cotangent, as in
`y[0] + y[1]` (`cond_true might be aliasing the input or the output!`); before 2.8, where a differentiated `cond` is a
select, that is right. It also refuses branches whose dtypes differ: an integer in one and a Python float in the other,
or a number beside a tensor of another precision than the operands'. Return one tensor, and write `1.0` for `1`.
""",
)

STAGED_IN_CHECKPOINT = Divergence(
    name="staged-cond-in-checkpoint",
    title="A staged `cond` in a checkpoint under `torch.compile`",
    remedy="Put the checkpoint into the branches, or compile without it",
    text="""\
PyTorch has no rule for `torch.cond` inside `torch.utils.checkpoint` in a compiled graph, and raises
`NotImplementedError` or an error of the compiler. Put the checkpoint into the branches, or compile without it.
""",
)

ODD_RESULTS = Divergence(
    name="odd-results",
    title="Sparse, nested and 8-bit results",
    remedy="Return a dense tensor of 16 bits or more, or read None as zeros",
    outcome="wrong",
    text="""\
A sparse, nested or 8-bit result of `cond` is not connected to operands that the chosen branch does not use: their
gradient is PyTorch's `None`, not zeros. Return a dense tensor of 16 bits or more, or read `None` as zeros.
""",
)

COPIED_OPERANDS = Divergence(
    name="operand-returned-by-a-staged-branch",
    title="A branch that returns its operand, under `torch.compile`",
    remedy="Write y = y * 2 for y.mul_(2)",
    outcome="wrong",
    text="""\
A branch that returns its operand, or a view of it, returns the operand itself in eager mode and a copy where `cond` is
staged or batched, for `torch.cond` refuses results that share memory with operands. So a later change of the result in
place, `y.mul_(2)`, reaches the operand in eager mode only. Write `y = y * 2`.
""",
)

DUAL_LEVEL = Divergence(
    name="dual-level-around-compiled",
    title="Dual levels around a compiled function",
    remedy="Enter the dual level inside the compiled function, or use torch.func.jvp there",
    text="""\
A compiled graph cannot tell dual tensors from plain ones. `within_gradient` raises in a function that is compiled with
`fullgraph=True` and called inside `torch.autograd.forward_ad.dual_level`. Without `fullgraph`, Dynamo breaks the graph
there and eager mode answers. Enter the dual level inside the compiled function, or use `torch.func.jvp` there.

% raises: Exception

```python
import torch
from torch.autograd import forward_ad

with forward_ad.dual_level():
    dual = forward_ad.make_dual(torch.tensor(2.0), torch.ones(()))
    torch.compile(layer, fullgraph=True, backend="aot_eager")(dual)
```
""",
)

COMPILED_INSIDE_FUNC = Divergence(
    name="compiled-inside-func",
    title="A compiled function inside `torch.func`",
    remedy="Compile the transformed function instead",
    text="""\
PyTorch itself refuses `torch.func.grad(torch.compile(f))`, `jvp` and `vmap` alike, with a compiling backend and
`fullgraph=True`. It takes them with the backend `eager`; there `within_gradient` raises under `vmap`, for the graph
cannot tell a batch that is tracked from one that is not. Without `fullgraph`, eager mode answers. Compile the
transformed function instead:

```python
import torch

print(torch.compile(torch.func.grad(layer), fullgraph=True, backend="aot_eager")(torch.tensor(2.0)))
```

```text
tensor(3.)
```
""",
)

EXPORT = Divergence(
    name="export",
    title="Export",
    remedy="Export under the mode in which you deploy",
    outcome="wrong",
    text="""\
`torch.export`, `torch.jit.trace`, `make_fx` and `aot_function` fix the answer when they trace, as they fix
`module.training`. Export under the mode in which you deploy: for inference, under `torch.no_grad()` or with inputs that
do not require grad.

```python
import torch


class Module(torch.nn.Module):
    def forward(self, x):
        return layer(x)


exported = torch.export.export(Module(), (torch.ones(1),)).module()
print(exported(torch.ones(1)), exported(torch.ones(1, requires_grad=True)).detach())
```

```text
tensor([5.]) tensor([5.])
```
""",
)

ERRORS_UNDER_COMPILE = Divergence(
    name="mismatch-under-compile",
    title="Mismatched branches under `torch.compile`",
    remedy="Call the function without torch.compile to see the error alone",
    scenarios=("cond/mismatch-under-compile", "cond/other-structures-under-compile"),
    text="""\
Dynamo wraps what is raised while it traces: mismatched branches raise PyTorch's own error type, not
`BranchMismatchError`, with our message inside. Call the function without `torch.compile` to see the error alone.
""",
)

CUSTOM_RULES = Divergence(
    name="custom-rules",
    title="Custom rules",
    remedy="Ask outside and pass the answer in",
    outcome="wrong",
    text="""\
PyTorch runs the forward of a `torch.autograd.Function` without gradients, so the answer inside is False. Ask outside
and pass the answer in.
""",
)

LABEL_AS_INDEX = Divergence(
    name="label-as-index",
    title="A label as the index of a tensor",
    remedy="Index with label.value",
    outcome="wrong",
    text="""\
PyTorch reads any sequence other than a tensor, a label included, as a tuple of indices, with a warning. Index with
`label.value`. (`label[i]`, and a label in arithmetic or in a function, are fine.)
""",
)

SCALARS_UNDER_COMPILE = Divergence(
    name="python-scalars-under-compile",
    title="Python scalars under `torch.compile`",
    remedy="Take the number out with item(), outside of the compiled function",
    outcome="wrong",
    text="""\
A staged `cond` whose branch returns a Python number returns a tensor; a float becomes one with the precision of the
first floating-point operand. Take the number out with `item()`, outside the compiled function.
""",
)

PARAMETER_GRADIENT = Divergence(
    name="parameter-gradient",
    title="The gradient with respect to a parameter",
    remedy="Apply adprotocol.grad twice, or differentiate with respect to a plain tensor that requires grad",
    outcome="wrong",
    text="""\
The `requires_grad` of an `nn.Parameter` says that it is trained, not that a second derivative is wanted. So its
gradient has no graph, as with `torch.autograd.grad` without `create_graph`. An outer native `backward` with respect to
the same parameter raises PyTorch's error for tensors without a graph; if another term of the loss has one, the gradient
silently counts as a constant. Apply `adprotocol.grad` twice, or use a plain tensor that requires grad.
""",
)

SECOND_DERIVATIVE = Divergence(
    name="second-derivative-of-compiled",
    title="The second derivative of a compiled function",
    remedy="Compile the gradient instead, torch.compile(adprotocol.grad(f)), or differentiate f before it is compiled",
    text="""\
PyTorch cannot differentiate the derivative of a function compiled by a backend that builds on `aot_autograd`, such as
inductor. `adprotocol.grad` of it raises `UndecidableError`. An outer native `backward` raises PyTorch's `RuntimeError`,
or, where the function saved none of its arguments unchanged, silently leaves the derivative out. Before 2.13 so does
`torch.autograd.grad(..., create_graph=True)` inside a function that is given to `adprotocol.grad`. Compile the gradient
instead:

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
While a function runs under a `where` that freezes parameters against their flags, the module holds other tensors. A
second thread that gives the module to `grad` meanwhile gets a `ConcurrencyError`. One that calls the module directly
gets the same values, but differentiates the substitutes, not the parameters. A parameter that `where` trains against
its flag has its `requires_grad` set meanwhile, which other threads see. A dual level, which PyTorch counts for the
whole process, has other tensors in the module in the same way. Give each thread a copy.
""",
)

AGAINST_ITS_FLAG = Divergence(
    name="parameter-against-its-flag",
    title="A parameter against its flag",
    remedy="Set requires_grad_ instead of where=",
    outcome="wrong",
    text="""\
A parameter that `where` freezes against its flag is a constant to an outer native `backward` too. If it also reaches
the function as another argument, or in a list, it is the parameter itself there. Set `requires_grad_` instead.
""",
)

COMPUTED_BEFORE = Divergence(
    name="computed-before-the-call",
    title="What was computed from a parameter before the call",
    remedy="Compute it inside the function, or pass it on as non_differentiable(value)",
    text="""\
A value that was computed from `x` before `grad(f)(x)` is a constant of `f`. An `nn.Parameter` is differentiated in
place, so PyTorch would count such a value as part of the function: `grad` raises `UndecidableError`. It tells by the
order in which a thread recorded its operations, so a value that another thread computed before the call is counted,
unseen. Compute it inside the function, or pass it on as `non_differentiable(value)`.
""",
)

HIDDEN_TENSORS = Divergence(
    name="tensors-of-hooks",
    title="Tensors that only a hook or a custom `backward` uses",
    remedy="Return that tensor too, with has_aux=True, or give it to the hook as non_differentiable(tensor)",
    text="""\
PyTorch's graph does not show what a tensor hook or the `backward` of a `torch.autograd.Function` computes with, so the
derivative of a gradient with respect to it would be lost: `grad` raises `UndecidableError`. Return that tensor too,
with `has_aux=True`, or give it to the hook as `non_differentiable(tensor)`.
""",
)

DATA_PARALLEL = Divergence(
    name="distributed-data-parallel",
    title="The gradient of a DistributedDataParallel",
    remedy=(
        "Call loss.backward() and read .grad; or differentiate ddp.module, or ddp itself within ddp.no_sync(), and "
        "average the gradients with torch.distributed.all_reduce"
    ),
    text="""\
`DistributedDataParallel` averages gradients over processes where `backward()` accumulates them into `.grad`.
`torch.autograd.grad` accumulates none, and gives each process the gradient of its own data. `grad` with respect to the
parameters raises `UndecidableError` when the function calls the wrapper. Call `loss.backward()`, or differentiate
`ddp.module` and average the gradients. The hooks inside of the module work as elsewhere.
[Distributed programs](distributed.md) shows both.
""",
)

FULLY_SHARDED = Divergence(
    name="fully-sharded",
    title="The gradient of a module sharded by FSDP",
    remedy="Call loss.backward() and read .grad; freeze parameters with requires_grad_(False) instead of where=",
    text="""\
`torch.distributed.fsdp.fully_shard` and `FullyShardedDataParallel` compute with whole parameters that they gather for
the call, and reduce their gradients where `backward()` accumulates them. With respect to the sharded parameters
`torch.autograd.grad` finds nothing, `torch.func.functional_call` with other tensors included: `grad` raises
`UndecidableError` when the function calls the module. Call `loss.backward()`; freeze with `requires_grad_(False)`.
""",
)

NESTED_IN_THREADS = Divergence(
    name="nested-calls-in-threads",
    title="Nested calls in threads",
    remedy="Make nested calls of grad in the thread of the outer one",
    outcome="wrong",
    text="""\
A call of `grad` inside the differentiated function does not see the outer call if it runs in a new thread, and loses
the outer derivative with respect to parameters. So does a parameter that the function of a nested call reaches by a
reference of its own, not by its argument, in a thread that it starts. Make nested calls in the thread of the outer one.
""",
)

THREADS_IN_FORWARD_MODE = Divergence(
    name="forward-mode-in-threads",
    title="Forward mode in threads",
    remedy="Run torch.func.jvp in one thread at a time",
    outcome="wrong",
    text="""\
PyTorch counts forward-mode levels for the whole process. Of two threads inside `torch.func.jvp` at once, the one that
stays longer loses its tangents, with or without this package. Run one at a time.
""",
)

COMPILED_HOOKS = Divergence(
    name="hooks-in-compiled-graphs",
    title="Hooks in compiled graphs",
    remedy="Apply to the gradient that is returned what the hook would do",
    outcome="wrong",
    text="Hooks on parameters do not run in compiled graphs. Do their work on the returned gradient.",
)

NONE_UNDER_VMAP = Divergence(
    name="none-under-vmap",
    title="None under vmap",
    remedy="Name the place of None with out_dims, or return the gradients that are wanted",
    text="`torch.func.vmap` refuses None in a result. Name its place with `out_dims`, or return only what is wanted.",
)

PYTHON_NUMBERS = Divergence(
    name="python-numbers",
    title="Python numbers",
    remedy="Return the tensor itself, or torch.tensor(...) for a constant",
    text="""\
A Python float among the leaves becomes a float64 scalar tensor, and so does its gradient. A function that returns a
Python number is a constant with zero gradients. If it computed with tracked tensors on the way, as in `(x * x).item()`,
it raises `OutputError`: return the tensor itself.
""",
)

NUMBERS_OF_LEAVES = Divergence(
    name="numbers-of-leaves",
    title="Python numbers taken out of a leaf",
    remedy="Compute with the tensor itself, by functions of torch",
    outcome="wrong",
    text="""\
A number taken out of a leaf before any operation, as in `x.item() ** 2` or `math.sqrt(x)`, leaves no trace: the
gradient is zero, in a compiled function whose graph breaks there too. Compute with the tensor itself, by functions of
`torch`.
""",
)

MASKED_ARRAYS = Divergence(
    name="masked-arrays",
    title="Masked arrays",
    remedy="Pass a plain array, or freeze it with where=",
    text="""\
PyTorch would ignore the mask of a masked NumPy array, so one that takes a gradient raises `SelectionError`. Pass a
plain array, or freeze it with `where=`.
""",
)

ERRORS_WITHOUT_TEXT = Divergence(
    name="errors-without-text",
    title="The text of an error in a compiled function, in PyTorch 2.7 and 2.8",
    remedy="Call the function without torch.compile to see the error alone, or install PyTorch 2.9",
    scenarios=(
        "prevent_gradient/grad-of-compile",
        "prevent_gradient/compile-of-grad",
        "prevent_gradient/compile-of-jvp",
        "prevent_gradient/in-a-called-function-under-compile",
        "prevent_gradient/in-nested-branches-under-compile",
        "prevent_gradient/in-the-other-branch-under-compile",
    ),
    text="""\
Where an error of this package ends a graph with `fullgraph=True`, PyTorch 2.7 and 2.8 name its class and leave its text
out. Call the function without `torch.compile` to see the error alone, or install PyTorch 2.9.
""",
)

# All of them, in the order above.
DIVERGENCES = tuple(entry for entry in [*globals().values()] if isinstance(entry, Divergence))
