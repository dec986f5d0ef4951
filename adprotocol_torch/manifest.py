"""What PyTorch does not allow to be done right; what concerns gradients alone is in `gradient_manifest`."""

from adprotocol.extend import Divergence
from adprotocol_torch import gradient_manifest

REENTRANT_CHECKPOINT = Divergence(
    name="reentrant-checkpoint",
    title="Reentrant checkpoint",
    remedy="Pass use_reentrant=False",
    text="""\
`torch.utils.checkpoint` with `use_reentrant=True` runs the function first without gradients and later with them. A
branch on the answer would give the value of one run and the gradient of the other. It is an `UndecidableError`;
`use_reentrant=False` works.

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
A function that was compiled and first run under `torch.no_grad()` escapes the check when a reentrant checkpoint runs
it: its graph is reused for the first pass. Here, too, `use_reentrant=False` works.
""",
)

LINEARIZE = Divergence(
    name="linearize",
    title="`torch.func.linearize`",
    remedy="Use torch.func.jvp, or ask outside and close over the answer",
    outcome="wrong",
    text="""\
PyTorch runs the function plain for its value and again under forward mode for the tangent map, so a branch on the
answer gives the value of one and the tangents of the other. `torch.func.jvp` takes both from one run. Or ask outside
and close over the answer.
""",
)

BELOW_AUTOGRAD = Divergence(
    name="below-autograd",
    title="Below autograd",
    remedy="Ask before the operation is dispatched, and pass the answer in",
    outcome="wrong",
    text="""\
Inside `__torch_dispatch__` and the body of a `torch.library.custom_op` PyTorch records nothing. A tensor that requires
grad answers True there as elsewhere; ask before.
""",
)

SEVERAL_RESULTS = Divergence(
    name="several-results-under-inductor",
    title="Several results under inductor",
    remedy="Return one tensor (stack them)",
    outcome="wrong",
    text="""\
PyTorch 2.13 computes wrong gradients for a `torch.cond` with two tensor results under `torch.compile` with the inductor
backend, in cases where both receive the same cotangent; others are refused, see below. A staged `cond` that returns
several tensors under that backend inherits it. Return one tensor (stack them).
""",
)

RESULTS_UNDER_COMPILE = Divergence(
    name="results-under-compile",
    title="Results of a staged `cond` under `torch.compile`",
    remedy="Return one tensor (stack them), and numbers of one type",
    scenarios=("cond/containers-under-compile", "cond/numbers-of-two-types-under-compile"),
    text="""\
Where two results of floating point receive the same cotangent, as in `y[0] + y[1]`, PyTorch 2.13 refuses the gradient
of a `torch.cond` (`cond_true might be aliasing the input or the output!`). Where one branch returns an integer and the
other a Python float, it refuses the two dtypes; so it is for a number beside a tensor of another precision than that of
the operands. Return one tensor, and write `1.0` for `1`.
""",
)

ODD_RESULTS = Divergence(
    name="odd-results",
    title="Odd tensors as results",
    remedy="Return a dense tensor of 16 bits or more, or read None as zeros",
    outcome="wrong",
    text="""\
A result that is sparse, nested or of 8 bits is not connected to operands that the chosen branch does not use: their
gradient is PyTorch's own, `None`. Return a dense tensor of 16 bits or more, or read `None` as zeros.
""",
)

DUAL_LEVEL = Divergence(
    name="dual-level-around-compiled",
    title="Dual levels around a compiled function",
    remedy="Enter the dual level inside the compiled function, or use torch.func.jvp there",
    text="""\
A compiled graph cannot tell dual tensors from plain ones. Asking in a function that is compiled with `fullgraph=True`
and called inside `torch.autograd.forward_ad.dual_level` is an error. Without `fullgraph` Dynamo breaks the graph there,
and eager mode answers. Enter the dual level inside the compiled function, or use `torch.func.jvp` there; both are
right.

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
With a compiling backend and `fullgraph=True`, PyTorch itself refuses `torch.func.grad(torch.compile(f))`, and the same
for `jvp` and `vmap`. Compile the transformed function instead:

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
`torch.export` and `torch.jit.trace` fix the answer when they export, as they fix `module.training`. Export under the
mode in which you deploy: under `torch.no_grad()`, or with inputs that require no gradient, for inference.

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
    scenarios=("cond/mismatch-under-compile",),
    text="""\
Dynamo wraps exceptions, so the error is of PyTorch's own type and not a `BranchMismatchError`. The same holds for every
other error that is raised while Dynamo traces; the message is kept inside. Call the function without `torch.compile` to
see it alone.
""",
)

CUSTOM_RULES = Divergence(
    name="custom-rules",
    title="Custom rules",
    remedy="Ask outside and pass the answer in",
    outcome="wrong",
    text="""\
The forward of a `torch.autograd.Function` runs without gradients, so the answer inside is False. Ask outside and pass
the answer in.
""",
)

LABEL_AS_INDEX = Divergence(
    name="label-as-index",
    title="A label as the index of a tensor",
    remedy="Index with label.value",
    outcome="wrong",
    text="""\
PyTorch reads any sequence that is no tensor as a tuple of indices, with a warning, and asks nobody. Index with
`label.value`. (`label[i]` and a label in arithmetic or in a function are fine.)
""",
)

SCALARS_UNDER_COMPILE = Divergence(
    name="python-scalars-under-compile",
    title="Python scalars under `torch.compile`",
    remedy="Take the number out with item(), outside of the compiled function",
    outcome="wrong",
    text="""\
A branch of a staged `cond` that returns a number gives a tensor, a float one of the precision of the first operand of
floating point. Take the number out of it with `item()`, outside of the compiled function.
""",
)

DIVERGENCES = (
    REENTRANT_CHECKPOINT,
    COMPILED_IN_REENTRANT_CHECKPOINT,
    LINEARIZE,
    BELOW_AUTOGRAD,
    SEVERAL_RESULTS,
    RESULTS_UNDER_COMPILE,
    ODD_RESULTS,
    DUAL_LEVEL,
    COMPILED_INSIDE_FUNC,
    EXPORT,
    ERRORS_UNDER_COMPILE,
    CUSTOM_RULES,
    LABEL_AS_INDEX,
    SCALARS_UNDER_COMPILE,
    *gradient_manifest.DIVERGENCES,
)
