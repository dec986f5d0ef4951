"""What the releases of JAX differ in, as far as the tests use it: by feature, in this place alone."""

import importlib.util

import jax
import pytest
from jax import experimental
from jax._src import core
from jax._src.interpreters import partial_eval

from adprotocol_jax import internals

# Public since 0.7.2.
new_ref = getattr(jax, "new_ref", None) or core.mutable_array

# Public since 0.8.
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else experimental.enable_x64


def cost(compiled):
    """Return the cost of a compiled program, which was in a list before 0.5."""
    found = compiled.cost_analysis()
    return found[0] if isinstance(found, list) else found


def _lacking(*names):
    return f"jax {jax.__version__} has no {' and no '.join(names)}"


def needs(*names):
    """Skip a test where `jax` lacks attributes of these (dotted) names."""
    lacks = []
    for name in names:
        value = jax
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is None:
            lacks.append(f"jax.{name}")
    return pytest.mark.skipif(bool(lacks), reason=_lacking(*lacks))


_stores = importlib.util.find_spec("flatbuffers") is not None
needs_export = pytest.mark.skipif(
    not (internals.EXPORTED and _stores),
    reason=f"jax.export of jax {jax.__version__} needs {'flatbuffers' if internals.EXPORTED else 'absl-py'}, which is "
    "not installed",
)
has_hijax = importlib.util.find_spec("jax.experimental.hijax") is not None
needs_hijax = pytest.mark.skipif(not has_hijax, reason=_lacking("jax.experimental.hijax"))
# Whether the trace of a program tells of the traces around it.
knows_outer_traces = "parent_trace" in partial_eval.DynamicJaxprTrace.__slots__
# Types of values that say along which axes of a mesh they vary.
follows_varying = hasattr(jax, "shard_map")


def shard_map(function, *, mesh, in_specs, out_specs, check=True):
    """Call ``jax.shard_map``, whose check had another name before it was public."""
    name = "check_vma" if follows_varying else "check_rep"
    return internals.shard_map()(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **{name: check})


def make_mesh(shape, names, kind):
    """Call ``jax.make_mesh`` with axes of a kind, "Auto" or "Explicit"; before 0.5 they are all "Auto"."""
    kinds = getattr(jax.sharding, "AxisType", None)
    if kinds is None:
        return jax.make_mesh(shape, names)
    return jax.make_mesh(shape, names, axis_types=(getattr(kinds, kind),) * len(names))
