"""The private parts of PyTorch that this plugin uses, and what its releases differ in.

A comment at each name says why no public API serves, or in which release it
appeared. Nothing looks at a version number: a name is there, or it is not. The range
of releases is in pyproject.toml (`adprotocol._dispatch.release`).
"""

from __future__ import annotations

import contextlib
import functools
import operator
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch._functorch import autograd_function, pyfunctorch
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad, graph
from torch.nn import Parameter
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils import parametrize
from torch.utils import _python_dispatch, _pytree, checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


F = TypeVar("F", bound="Callable[..., Any]")

# The kinds of transformation, to compare with what a compiler notes of those around a graph.
Transform = torch._C._functorch.TransformType

# torch.func keeps a stack of interpreters, one for each active transformation;
# nothing public tells whether there are any, or steps down a level.
functorch_is_active: Callable[[], bool] = torch._C._are_functorch_transforms_active
top_interpreter = torch._C._functorch.peek_interpreter_stack
level_of = torch._C._functorch.maybe_get_level
is_batched = torch._C._functorch.is_batchedtensor
is_functional = torch._C._functorch.is_functionaltensor
unwrapped = torch._C._functorch.get_unwrapped
unwrap_if_dead: Any = torch._C._functorch.unwrap_if_dead
coerce_cinterpreter: Any = pyfunctorch.coerce_cinterpreter
# The level of a tensor that torch.func does not wrap; a wrapper whose level has ended has another.
NO_LEVEL = -1

# The public one makes a context: 1 µs.
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled

# With this torch.func and its relatives in reverse mode begin a level in a graph; a graph has no other mark of it.
enter_grad = torch._C._functorch._grad_increment_nesting
# That of forward mode, by the name of the function, which a wrapper has too in newer releases.
ENTER_JVP = "_jvp_increment_nesting"

# The public ways to switch torch functions off leave those of modes on.
without_torch_function: Any = torch._C.DisableTorchFunction

# How errors begin or go on of what has no forward mode: an operation, an ``autograd.Function`` without a jvp or of the
# older form, the gradient of a checkpoint, a DTensor. There is no class of error for it.
NO_FORWARD_MODE = (
    *("forward AD", "forward mode AD", "autograd.Function with functorch transforms"),
    *("support saved tensor hooks", "have a sharding strategy registered"),
    "flat_bdims must not be None",  # a Function without a jvp in vmap, of what is not batched
)
# And of what changes a tensor that it did not make, as batch norm its statistics.
CHANGES_CAPTURED = "would mutate a captured Tensor"
# And of a function that ``torch.vmap`` cannot take, of its values or by the memory of a batch.
NO_VMAP = ("vmap", "Batching rule", "saved tensor hooks", "Cannot access data pointer", "Cannot access storage")

# What torch.func calls an ``autograd.Function`` by, level by level.
call_function: Any = autograd_function.custom_function_call

# Tells whether the engine runs a backward function in this thread: -1 where it does not.
backward_pass: Callable[[], int] = torch._C._current_graph_task_id

# Documented, in modules with an underscore.
is_traceable_wrapper_subclass: Any = _python_dispatch.is_traceable_wrapper_subclass

# PyTorch has no public tree library; its own packages register here.
pytree = _pytree

# In torch.autograd.graph, but in no list of public names.
get_gradient_edge: Any = graph.get_gradient_edge

# inference_mode switches forward mode off; only the private switch shows it.
forward_mode_is_enabled: Callable[[], bool] = torch._C._is_fwd_grad_enabled
set_forward_mode_enabled: Callable[[bool], None] = torch._C._set_fwd_grad_enabled

# What a checkpoint remembers of its function, and nothing public changes; `use_checkpoint_frame` puts another there.
CheckpointFrame: Any = checkpoint._CheckpointFrame

# Tell which nodes were made after a point of the program: the number of the next node, and that of a node.
next_sequence_number = torch._C._autograd._get_sequence_nr
sequence_number: Any = operator.methodcaller("_sequence_nr")

# ``torch.autograd.grad`` without its own question for modes, which switches them off for the hooks it runs.
run_engine: Any = functools.partial(graph._engine_run_backward, allow_unreachable=True, accumulate_grad=False)

# How much besides Python holds a tensor, and one for Python: a graph does, through its end at a leaf.
use_count: Any = operator.methodcaller("_use_count")


def below_levels(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor without the wrappers of torch.func."""
    while level_of(value) != NO_LEVEL:
        value = unwrapped(value)
    return value


def is_in_forward_mode() -> bool:
    """Return whether a dual level is open, in any thread; nothing public tells."""
    return forward_ad._current_level >= 0


def in_transform() -> bool:
    """Return whether torch.func or a dual level is active."""
    # A function less than with `is_in_forward_mode`.
    return functorch_is_active() or forward_ad._current_level >= 0


# Tells whether PyTorch is past autograd in the operation under way; no public switch shows that. Half the time of a
# function of Python.
is_below_autograd: Callable[[], bool] = functools.partial(
    torch._C._dispatch_tls_is_dispatch_key_excluded,
    torch._C.DispatchKey.AutogradFunctionality,
)


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Take away the hooks that pack saved tensors, as a checkpoint does; torch.func refuses reverse mode there."""
    hooks: list[Any] = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:  # noqa: FBT003
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def use_checkpoint_frame(cls: type) -> None:
    """Let checkpoints make their records of a subclass of `CheckpointFrame`."""
    checkpoint._CheckpointFrame = cls  # type: ignore[assignment,misc]


def skip(function: F) -> F:
    """Keep Dynamo from compiling the frames of a function and of its callees.

    The public torch.compiler.disable wraps the function, which costs each eager call 1 µs.
    """
    frames: Any = torch._C._dynamo.eval_frame
    action = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action, action))
    return function


def attribute_names(tx: Any, value: Any) -> list[str]:
    """Return the names in the ``__dict__`` of an instance that Dynamo stands for, and guard on them."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource
    from torch._dynamo.variables.misc import DeletedVariable

    held = dict.fromkeys(getattr(value.value, "__dict__", ()))
    if value.source is not None and hasattr(value.value, "__dict__"):
        source = AttrSource(value.source, "__dict__")
        install_guard(source.make_guard(GuardBuilder.DICT_KEYS_MATCH), source.make_guard(GuardBuilder.SEQUENCE_LENGTH))
    for name, new in tx.output.side_effects.store_attr_mutations.get(value, {}).items():
        held[name] = None
        if isinstance(new, DeletedVariable):
            del held[name]
    return list(held)


def guard_dual_level() -> None:
    """Let the graph that Dynamo builds guard on the dual level, so that a change traces again."""
    from torch._dynamo.guards import install_guard
    from torch._dynamo.variables.ctx_manager import DualLevelContextManager
    from torch._guards import TracingContext

    if TracingContext.try_get() is not None:  # Dynamo's; export without it has none
        install_guard(DualLevelContextManager._guards_singleton)


# The compilations in which a branch of a staged cond takes a gradient: their contexts, which last while Dynamo starts
# over (their numbers are used again after a reset).
SELECTING: weakref.WeakSet[Any] = weakref.WeakSet()


def compilation() -> Any:
    """Return the context of the compilation under way, None where nothing but export traces."""
    from torch._guards import CompileContext

    return CompileContext.try_get()


@skip
def tape_is_on() -> bool:
    """Return whether grad mode is on below all levels of torch.func."""
    top = top_interpreter()
    if top is None:
        return torch.is_grad_enabled()
    with coerce_cinterpreter(top).lower():
        return tape_is_on()


def interpreters() -> list[Any]:
    """Return the transformations of torch.func that are active, from the outermost inwards."""
    return torch._C._functorch.get_interpreter_stack() or []


def was_grad_enabled(level: Any) -> bool:
    """Return whether grad mode was on where a transformation began; what is no grad leaves it as it is."""
    return level.key() != Transform.Grad or coerce_cinterpreter(level).prev_grad_mode()  # type: ignore[no-any-return]


@skip
def is_differentiating() -> bool:
    """Return whether the code runs inside a derivative of torch.func or a dual level, of whichever tensors.

    The tape leaves no mark: there the leaves alone know.
    """
    return is_in_forward_mode() or any(level.key() in (Transform.Grad, Transform.Jvp) for level in interpreters())


def shards(module: Any) -> list[torch.Tensor]:
    """Return the parameters of a module that FSDP manages, sharded and whole.

    The module itself has the ones or the others, as its last call left it.
    """
    if not hasattr(module, "_get_fsdp_state"):
        return []
    managed = [item for group in module._get_fsdp_state()._fsdp_param_groups for item in group.fsdp_params]
    found = [getattr(item, name, None) for item in managed for name in ("sharded_param", "_unsharded_param")]
    return [parameter for parameter in found if parameter is not None]


def has_tangent(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is dual; PyTorch has one level of forward mode, 0.

    The public unpack_dual returns None outside its own dual_level, which
    torch.func.jvp does not enter in Python.
    """
    return torch._VF._unpack_dual(tensor, level=0)[1] is not None


# Switches forward mode on in a block; torch.autograd.forward_ad has no public name for that.
enable_forward_mode: Any = functools.partial(forward_ad._set_fwd_grad_enabled, True)  # noqa: FBT003


def primal_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its tangent of the innermost level, and with all else that it carries.

    The public unpack_dual works within its own dual_level alone, and ``detach`` drops all levels.
    """
    try:
        return torch.ops.aten._fw_primal(tensor, 0)  # type: ignore[no-any-return]
    except RuntimeError:  # of vmap, which has no rule for it
        return tensor.clone()  # no view, which would share the tangent, where forward mode is off


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place, where PyTorch counts it."""
    return 0 if tensor.is_inference() else tensor._version


# Public, but not typed.
is_exporting: Callable[[], bool] = torch.compiler.is_exporting


# Tell how many see every operation in Python, as a tracer does, and what torch.jit.trace builds; nothing public does.
is_seen: Callable[[], int] = torch._C._len_torch_dispatch_stack
is_scripted: Callable[[], Any] = torch._C._get_tracing_state


def is_compiler_mode_on() -> bool:
    """Return whether one that sees operations fakes or records them: that of a compiler or an export."""
    modes = torch._C._TorchDispatchModeKey
    keys = (modes.FAKE, modes.PROXY, modes.FUNCTIONAL)
    return any(torch._C._get_dispatch_mode(key) is not None for key in keys)


# The classes of tensors without elements: two of PyTorch's compilers, not public, and what a lazy module begins with.
WITHOUT_ELEMENTS = (FakeTensor, FunctionalTensor, UninitializedParameter, UninitializedBuffer)


def is_traced(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether an operation on tensors without torch.func is traced, so that it has to be an operator."""
    is_plain = [type(tensor) is torch.Tensor or isinstance(tensor, torch.nn.Parameter) for tensor in tensors]
    # Tensors without values, subclasses, and what sees every operation.
    is_recorded = is_seen() > 0 or is_scripted() is not None
    return not all(is_plain) or is_recorded or any(tensor.is_meta for tensor in tensors)


def at_hand(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor without the wrappers of torch.func if Python may look at its elements at no cost, on a CPU."""
    if torch.compiler.is_compiling() or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return None
    while level_of(tensor) > 0 and not is_batched(tensor):
        tensor = unwrapped(tensor)
    is_hidden = level_of(tensor) != NO_LEVEL or is_batched_by_autograd(tensor) or is_traced([tensor])
    return None if is_hidden else tensor


def apply_node(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Call ``apply`` without torch.func, as it ends: before that it binds the signature of `forward`, 15 µs."""
    lived = [unwrap_if_dead(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    return super(torch.autograd.Function, function).apply(*lived)  # type: ignore[misc]


# The engine batches cotangents and tangents by an older vmap, which has no public name.
is_batched_by_autograd: Callable[[torch.Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor


def autocast_of(tensors: Sequence[torch.Tensor]) -> tuple[str, bool, Any] | None:
    """Return what autocast is set to for the device of some tensors, None where it is off for every device."""
    device = tensors[0].device.type if torch._C._is_any_autocast_enabled() and len(tensors) else ""
    if not (device and torch.amp.is_autocast_available(device)):
        return None
    return device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def autocast_as(setting: tuple[str, bool, Any] | None, tensors: Sequence[torch.Tensor]) -> Any:
    """Set autocast, for a block that computes with some tensors, to what it was."""
    now = setting or autocast_of(tensors)
    if now is None:
        return contextlib.nullcontext()
    device, enabled, dtype = now
    # A cast weight is not cached: it would have no history where the block runs without gradients.
    return torch.autocast(device, dtype, enabled and setting is not None, cache_enabled=False)


# The key that a strided tensor has in common with its views, 0.4 µs faster than through its public storage.
storage_of: Callable[[torch.Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]


def memory_of(tensor: Any) -> int:
    """Return a key that a tensor has in common with its views, whatever wraps them.

    Empty and fake tensors have no data pointer, which is the public key.
    """
    if type(tensor) is not torch.Tensor or level_of(tensor) != NO_LEVEL:
        tensor = below_levels(tensor)
        while is_traceable_wrapper_subclass(tensor):  # such as a DTensor, which lists its mesh as well
            parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
            tensor = next(part for part in parts if isinstance(part, torch.Tensor))
    has_storage = tensor.layout is torch.strided and not tensor.is_nested and not is_batched_by_autograd(tensor)
    return storage_of(tensor) if has_storage else id(tensor)


def contents_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return what changes with the contents of a tensor: by an assignment to its ``.data``, or in place."""
    return memory_of(tensor), version_of(tensor)


def stand_for(tensor: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a tensor that stands for a parameter, with all that PyTorch reads off one, besides its flag."""
    if type(parameter) not in (Parameter, type(tensor)):
        tensor = tensor.as_subclass(type(parameter))
    held = tensor.__dict__
    if parameter.__dict__:  # a wrapper's inner tensors are attributes too, and are its own
        held.update({**parameter.__dict__, **held})
    held.update(_is_param=True, _adprotocol_parameter=parameter)  # the first is what ``isinstance`` looks for
    return tensor


def gradient_hooks(parameter: torch.Tensor) -> list[Callable[[torch.Tensor], Any]]:
    """Return what ``register_hook`` was given; nothing public lists it."""
    return list((parameter._backward_hooks or {}).values())


def tables_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the parameters, buffers and submodules of a module; ``torch.func.functional_call`` has no other way in."""
    return module._parameters, module._buffers, module._modules


def caches_parametrizations() -> bool:
    """Return whether ``parametrize.cached()`` is on; there is no public access to it."""
    return parametrize._cache_enabled > 0
