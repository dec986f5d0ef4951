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
    remedy="Ask outside, and pass the answer in as an argument of the function that is solved",
    outcome="wrong",
    text="""\
These run a function plainly and differentiate it, or the equation that it solves, a second time:

- `jax.lax.custom_linear_solve`, `custom_root` and what is built on them (`jax.scipy.sparse.linalg.cg`, lineax);
- `jax.experimental.ode.odeint`;
- diffrax with `RecursiveCheckpointAdjoint`, its default, or `BacksolveAdjoint` (`DirectAdjoint` is right);
- the checkpointed loops of Equinox;
- the fixed points and root finders of optimistix (`FixedPointIteration`, `Newton`, `Chord`, `Bisection`).

JAX does not show the first run that a derivative follows, so a branch on the answer returns the value of one branch
and the derivative of the other. [Ask outside](custom_rules.md), and pass the answer in: in `args` for diffrax and
optimistix, in the carry of a loop, as a float for `odeint`. `custom_linear_solve`, `custom_root` and the operators of
lineax take no further arguments, and may close over it.
""",
)

LOOP_CONDITION = Divergence(
    name="loop-condition",
    title="The condition of a while loop",
    remedy="Ask outside, and pass the answer in with the carry",
    text="""\
JAX does not differentiate the `cond_fun` of `jax.lax.while_loop`. No derivative goes through an operation there, so
the answer in it is False, for values closed over too. Under `jax.disable_jit` the loop is Python's, and the answer may
be True. Ask outside, and pass the answer in with the carry.
""",
)

CLOSED_OVER_ARRAYS = Divergence(
    name="closed-over-arrays",
    title="Concrete arrays closed over in a trace",
    remedy="Pass the array as an argument of the function that is traced",
    outcome="wrong",
    text="""\
The answer about a concrete array is False, as a Python bool, inside `jax.jit` too, where `if` may use it. The array
becomes a constant of the traced program. `equinox.filter_closure_convert`, or `jax.make_jaxpr` with
`jax.core.eval_jaxpr`, can make an input of that constant and differentiate with respect to it; the answer then stays
False. Pass the array as an argument of the function that is traced, or ask about it together with an argument:
`within_gradient(w, x)` is right then, too.
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
    remedy="Ask outside and pass the answer in as an argument",
    text="""\
`jax.linear_transpose` of a function that branches on the answer, and a `jax.custom_jvp` rule that asks about its
tangent, fail in JAX with an AssertionError. `jax.experimental.jet`, `sparsify` and the lowering of Pallas kernels do
not know the primitive that asks, and say so. Ask outside and pass the answer in as an argument.
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
    remedy="Ask outside and pass the answer in as an argument",
    outcome="wrong",
    text="""\
Inside the forward and backward functions of a `jax.custom_vjp`, and inside the rule of a `jax.custom_jvp`, JAX does not
differentiate at that level, so the answer is False. [Ask outside and pass the answer in as an
argument](custom_rules.md). A rule must not close over a staged answer: under `grad(jit(f))` JAX refuses that.
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

VARYING_PREDICATES = Divergence(
    name="predicate-that-differs-over-devices",
    title="A predicate that differs from device to device",
    remedy=(
        "Pass the value as an operand of cond, move a collective out of the branches, or make the predicate equal on "
        "all devices with jax.lax.psum"
    ),
    outcome="wrong",
    text="""\
Devices with different predicates take different branches, so a branch of `jax.lax.cond` inside `jax.shard_map` must not
communicate: JAX waits forever, or under `vmap` loses the part of the derivative that comes from other devices. The
derivative with respect to a value that is equal on all devices communicates too, and JAX's own is wrong. `cond` is
right with respect to operands, and raises `UndecidableError` for collectives and for such values that a branch closes
over. With `check_vma=False`, under `jax.pmap`, and before JAX 0.6, JAX does not tell which values differ, and nothing
is refused: there no branch may hold a collective unless the predicate is equal on all devices.
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
    LOOP_CONDITION,
    CLOSED_OVER_ARRAYS,
    EXPORT,
    STOPPED_BRANCH,
    OTHER_INTERPRETERS,
    INTEGER_IN_LABEL,
    CUSTOM_RULES,
    LABEL_AS_INDEX,
    MUTABLE_REFERENCES,
    VARYING_PREDICATES,
)
