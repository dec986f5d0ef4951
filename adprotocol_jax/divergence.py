"""The rules that JAX does not allow this plugin to keep, as data: the hook `divergences` lists them."""

from adprotocol.extend import Divergence

STRUCTURES = Divergence(
    name="structures-in-transformations",
    title="Structures in native transformations",
    remedy="Register the class with jax.tree_util.register_dataclass before this package sees an instance of it",
    text="""\
`jax.jit`, `jax.vmap` and optax take a dataclass only if it is registered with JAX:
`jax.tree_util.register_dataclass(cls)`. Register it before this package sees an instance, or its static fields stay
leaves here.
""",
)

PYTHON_NUMBERS = Divergence(
    name="python-numbers",
    title="Python numbers",
    remedy="Compute with the array itself, and call item() on results only",
    outcome="wrong",
    text="""\
Under `jit`, `x.item()` on a tracer raises. Under `grad`, with `jax.grad` as here, it gives a plain number whose
gradient is zero. Compute with the array itself.
""",
)

FLAX_STATISTICS = Divergence(
    name="flax-statistics",
    title="Batch statistics of flax",
    remedy="Freeze them with register_trainable(nnx.BatchStat, [])",
    outcome="wrong",
    text="""\
An `nnx.BatchStat` is an array like any other and takes a gradient. `register_trainable(nnx.BatchStat, [])` freezes all
of them. Changes that a module makes to itself during the call come out through `has_aux` only.
""",
)

EQUINOX_FLOATS = Divergence(
    name="equinox-floats",
    title="Python floats of Equinox",
    remedy="Select arrays alone with where=lambda path, leaf: eqx.is_inexact_array(leaf)",
    outcome="wrong",
    text="""\
The rate of `eqx.nn.Dropout` is a Python float, and so takes a gradient. Select arrays alone with
`where=lambda path, leaf: eqx.is_inexact_array(leaf)`.
""",
)

SOLVERS = Divergence(
    name="solvers",
    title="Solvers",
    remedy="Ask outside and close over the answer",
    outcome="wrong",
    text="""\
`jax.lax.custom_linear_solve`, `custom_root` and everything built on them solve without differentiation, then
differentiate the equation. A branch on the answer inside the equation returns the solution of one branch and the
derivative of the other. Ask outside and close over the answer.
""",
)

STOPPED_BRANCH = Divergence(
    name="stopped-branch",
    title="A stopped branch under jit",
    remedy="Ask about the operand x instead of the result y",
    outcome="wrong",
    text="""\
`y = cond(within_gradient(x), jax.lax.stop_gradient, f, x)` has no tangent in eager code, but a tangent of zeros under
`jit`, because `jax.lax.cond` gives it one. `within_gradient(y)` follows. Ask about `x` instead.
""",
)

OTHER_INTERPRETERS = Divergence(
    name="other-interpreters",
    title="Transposition, jet, sparsify, Pallas",
    remedy="Ask outside and close over the answer",
    text="""\
`jax.linear_transpose` of a function that branches on the answer, and a `jax.custom_jvp` rule that asks about its
tangent, fail in JAX with an AssertionError. `jax.experimental.jet`, `sparsify` and the lowering of Pallas kernels do
not know the primitive that asks, and say so. Ask outside and close over the answer.
""",
)

INTEGER_IN_LABEL = Divergence(
    name="integer-in-label",
    title="An integer in a label",
    remedy="Differentiate with adprotocol.grad, or pass allow_int=True to jax.grad",
    text="""\
`jax.grad` refuses integer leaves, labelled or not, unless it is given `allow_int=True`. `adprotocol.grad` takes them.
""",
)

CUSTOM_RULES = Divergence(
    name="custom-rules",
    title="Custom rules",
    remedy="Ask outside and close over the answer",
    outcome="wrong",
    text="""\
Inside the forward and backward functions of a `jax.custom_vjp`, and inside the rule of a `jax.custom_jvp`, JAX does not
differentiate at that level, so the answer is False. Ask outside and close over the answer.
""",
)

LABEL_AS_INDEX = Divergence(
    name="label-as-index",
    title="A label in an index or in `jax.lax`",
    remedy="Write label.value there",
    text="""\
`x[label]` and the functions of `jax.lax` (unlike those of `jax.numpy`) refuse a label, with
`Triggering __jax_array__()` or a TypeError. Write `label.value` there.
""",
)

MUTABLE_REFERENCES = Divergence(
    name="mutable-references",
    title="Mutable references",
    remedy="Pass ref[...]",
    text="""\
A derivative belongs to the value that a `jax.Ref` holds now. Asking about the reference itself raises
`UndecidableError`; ask about `ref[...]`.
""",
)

EXPORT = Divergence(
    name="export",
    title="Value and gradient of an exported program",
    remedy="Export jax.value_and_grad of the function instead",
    outcome="wrong",
    text="""\
`jax.export` stores the plain program and, with `vjp_order=1`, its derivative as a second program. The value of the
exported function is right, and so is its gradient. But `jax.value_and_grad` of it takes the value from the first
program and the gradient from the second, so a branch on the answer returns the value of one branch and the gradient of
the other. Export `jax.value_and_grad(f)` instead.

```python
import jax
import jax.export
import jax.numpy as jnp

both = jax.export.export(jax.jit(jax.value_and_grad(layer)))(jax.ShapeDtypeStruct((), jnp.float32))
print(*both.call(2.0))
exported = jax.export.export(jax.jit(layer))(jax.ShapeDtypeStruct((), jnp.float32))
exported = jax.export.deserialize(exported.serialize(vjp_order=1))
print(exported.call(2.0), jax.grad(exported.call)(2.0))
print(*jax.value_and_grad(exported.call)(2.0))
```

```text
6.0 3.0
10.0 3.0
10.0 3.0
```
""",
)

DIVERGENCES = (
    STRUCTURES,
    PYTHON_NUMBERS,
    FLAX_STATISTICS,
    EQUINOX_FLOATS,
    SOLVERS,
    EXPORT,
    STOPPED_BRANCH,
    OTHER_INTERPRETERS,
    INTEGER_IN_LABEL,
    CUSTOM_RULES,
    LABEL_AS_INDEX,
    MUTABLE_REFERENCES,
)
