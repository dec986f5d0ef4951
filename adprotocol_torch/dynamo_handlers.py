"""What Dynamo answers while it traces: the handler for each function of `dynamo`, under its name; `self.value` is that.

Imported by `dynamo.install` alone, when Dynamo is loaded. Its table of handlers is
private, like the variables that stand for values; what its releases differ in is in
`internals`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo import variables
from torch._dynamo.exc import UnspecializeRestartAnalysis, Unsupported
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import GlobalSource
from torch._dynamo.variables import ConstantVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.builder import SourcelessBuilder, VariableBuilder, wrap_fx_proxy
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from adprotocol.extend import tree_leaves
from adprotocol_torch import attributes, internals, tracking
from adprotocol_torch.custom_rule import left_to_eager_code as run_eagerly
from adprotocol_torch.tensors import is_float, remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_CONSTANTS = (bool, int, float, complex, str, type(None))
# No subclass, which may be another plugin's, and no array of NumPy.
_ASKED = (*_CONSTANTS, torch.Tensor, torch.nn.Parameter)


def register(functions: Iterable[Callable[..., Any]]) -> None:
    """Let Dynamo call the handlers of functions."""
    handlers = TorchInGraphFunctionVariable._get_handlers()  # noqa: SLF001
    for function in functions:
        torch.compiler.allow_in_graph(function)  # type: ignore[no-untyped-call]
        handlers[function] = globals()[function.__name__]


def _nodes(items: Any) -> list[Any]:
    return [item.as_proxy().node for item in items.items]


def _fakes(items: Any) -> list[Any]:
    return [node.meta["example_value"] for node in _nodes(items)]


def ask_fake(_self: Any, tx: Any, value: Any) -> Any:
    """Answer for the fake tensor, or say why there is no answer."""
    # The dual level around the compiled function can be guarded. The dual part of
    # an input cannot, and the fake tensor does not have it.
    internals.guard_dual_level()
    if tx.output.dual_level >= 0:
        return ConstantVariable.create("dual")
    # Nor are the levels below the batch of an input, and no guard compares them.
    if any(layer.key() == internals.Transform.Vmap for layer in tx.output.functorch_layers):
        return ConstantVariable.create("batched")
    return ConstantVariable.create(tracking.within_gradient(value.as_proxy().node.meta["example_value"]))


def _is_tensor(value: Any) -> bool:
    return isinstance(value.realize() if isinstance(value, LazyVariableTracker) else value, TensorVariable)


def any_fake(self: Any, tx: Any, values: Any) -> Any:
    """Answer `ask_fake` for one tensor after the other."""
    found: list[Any] = []
    known = all(_descend(tx, value, found) for value in values.unpack_var_sequence(tx))
    if not known or any(leaf.python_type() not in _ASKED for leaf in found):
        return ConstantVariable.create(None)
    answers = (ask_fake(self, tx, leaf) for leaf in found if _is_tensor(leaf))
    return next(
        (answer for answer in answers if answer.as_python_constant() is not False), ConstantVariable.create(value=False)
    )


def _descend(tx: Any, value: Any, found: list[Any]) -> bool:
    """Add the leaves of a value; return whether all that it holds is known."""
    if _is_tensor(value):
        found.append(value)
        return True
    try:
        cls = value.python_type()
    except NotImplementedError:
        return False
    if cls in _CONSTANTS:
        found.append(value)
        return True
    if cls not in (list, tuple, dict):
        return False
    children = value.unpack_var_sequence(tx)
    if cls is dict:
        places = {key.as_python_constant(): i for i, key in enumerate(children)}
        children = [value.call_method(tx, "__getitem__", [children[i]], {}) for i in tree_leaves((places,))]
    return all(_descend(tx, child, found) for child in children)


def held_names(_self: Any, tx: Any, value: Any) -> Any:
    """Answer for the instance that a variable stands for."""
    return SourcelessBuilder.create(tx, internals.attribute_names(tx, value))


def held_tensors(_self: Any, tx: Any, owner: Any) -> Any:
    """Answer for the module as it is, and for what was set while it was traced."""
    names = attributes.tensor_names(owner.value) if hasattr(owner.value, "_modules") else []
    set_since = tx.output.side_effects.store_attr_mutations.get(owner, {})
    return SourcelessBuilder.create(tx, [name for name in names if name not in set_since])


def select_if_differentiated(_self: Any, tx: Any, results: Any) -> Any:
    """Start over, with selects, where torch.cond loses a derivative."""
    modules = tx.output.nn_modules
    conds = {cond for node in _nodes(results) for cond in node.all_input_nodes}
    # The derivative of torch.cond fails where an integer or a bool is among the results.
    fakes = _fakes(results)
    fails = any(fake.requires_grad for fake in fakes) and not all(map(is_float, fakes))
    # A subgraph that enters torch.func.grad, or one of its relatives in reverse mode.
    if fails or any(node.target is internals.enter_grad for cond in conds for node in _inside(cond, modules)):
        internals.SELECTING.add(internals.compilation())
        # By which Dynamo itself starts over, with nothing kept of the first attempt.
        raise UnspecializeRestartAnalysis(restart_reason="a gradient inside a branch of adprotocol.cond")
    for cond in conds:
        _make_gradients_dense(cond, modules)
    return ConstantVariable.create(None)


def _inside(caller: Any, modules: Any) -> Iterator[Any]:
    """Yield the nodes of the subgraphs that a node calls, and of theirs."""
    for argument in caller.all_input_nodes:
        graph = getattr(modules.get(argument.target), "graph", None) if argument.op == "get_attr" else None
        for node in graph.nodes if graph is not None else ():  # None of a parameter
            yield node
            yield from _inside(node, modules)


def has_stopped(_self: Any, tx: Any) -> Any:
    """Look for the switch behind the beginning of the innermost jvp; inner ones have looked for theirs."""
    modules, found = tx.output.nn_modules, False
    for node in reversed(tx.output.graph.nodes):
        if getattr(node.target, "__name__", None) == internals.ENTER_JVP:
            break
        nodes = (node, *_inside(node, modules))
        found = found or any(one.target is internals.set_grad_enabled and not one.args[0] for one in nodes)
    return ConstantVariable.create(found)


def _make_gradients_dense(cond: Any, modules: Any) -> None:
    """Let the gradients of a staged cond be contiguous, for PyTorch refuses branches of which the strides differ.

    The gradient of a sum is expanded, for one. That of a selection is a new tensor; itself it is a view.
    """
    for argument in cond.all_input_nodes:
        module = modules.get(argument.target) if argument.op == "get_attr" else None
        if not isinstance(module, torch.fx.GraphModule):
            continue
        graph = module.graph
        inputs = list(graph.find_nodes(op="placeholder"))
        with graph.inserting_after(inputs[-1] if inputs else None):
            for node in filter(_is_tracked, inputs):
                given = node.meta["example_value"]
                row = graph.call_method("unsqueeze", (node, 0))
                row.meta["example_value"] = given.unsqueeze(0)
                row.append(selected := graph.call_method("select", (row, 0, 0)))
                selected.meta["example_value"] = row.meta["example_value"].select(0, 0)
                node.replace_all_uses_with(selected, delete_user_cb=lambda user, row=row: user is not row)
        module.recompile()


def _is_tracked(node: Any) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and tracking.within_gradient(value)


def sharing(self: Any, tx: Any, tensors: Any) -> Any:
    """Compare the memory of the fake tensors."""
    return SourcelessBuilder.create(tx, self.value(_fakes(tensors)))


def new_key(self: Any, _tx: Any) -> Any:
    """Return a new key as a constant."""
    return ConstantVariable.create(self.value())


def keep(self: Any, _tx: Any, place: Any, value: Any) -> Any:
    """Keep a variable, and the constant that it stands for, if any."""
    try:
        constant = value.as_python_constant()
    except (NotImplementedError, Unsupported):
        constant = None
    self.value(place.as_python_constant(), constant, value)
    return ConstantVariable.create(None)


def kept(self: Any, _tx: Any, place: Any) -> Any:
    """Return the variable that was kept."""
    return self.value(place.as_python_constant(), in_graph=True)


_WITH_DUALS = (
    "a function with a derivative rule, or a host function, is called in a function compiled by torch.compile and "
    "called inside torch.autograd.forward_ad.dual_level; the compiled graph cannot tell dual tensors from plain ones. "
)


_CLOSED_OVER = (
    "a function with a derivative rule, or its rule, uses a tensor that is no argument of it, in a function "
    "that torch.compile traces; the graph would keep its value as it is now. Pass it as a positional argument, whose "
    "gradient may be None, or call the function outside the compiled one"
)


def left_to_eager_code(_self: Any, tx: Any, call: Any, arrays: Any) -> Any:
    """Put one function into the graph; Dynamo calls it with its fake tensors, and what follows with its own."""
    # PyTorch runs a graph with dual tensors through the operations in it, past the rule.
    internals.guard_dual_level()
    if tx.output.dual_level >= 0:
        raise Unsupported(_WITH_DUALS + remedy("dual-level-around-compiled"))
    made = _value_of(tx, call)
    # A rule: the graph has broken at this call, and Dynamo traces the rest of it.
    if hasattr(made, "has_vjp") or made.closed_over():
        raise Unsupported(_CLOSED_OVER)
    outlines: list[Any] = []

    def call_with_rule(*arrays: torch.Tensor) -> list[torch.Tensor]:
        results, outline = run_eagerly(made, list(arrays))
        outlines[:] = [outline]
        return results

    proxies = tuple([item.as_proxy() for item in arrays.items])
    results = wrap_fx_proxy(tx, tx.output.create_proxy("call_function", call_with_rule, proxies, {}))
    name = tx.output.install_global_by_id("adprotocol_outline", outlines[0])
    outline = VariableBuilder(tx, GlobalSource(name))(outlines[0])
    return TupleVariable([results, outline])


_REFUSED = (
    "adprotocol: a function with a derivative rule, or a host function, was given {} in a function that torch.compile "
    "traces; the graph cannot hold it. Pass a tensor for an array of NumPy; define others outside the compiled function"
)


def _value_of(tx: Any, variable: Any) -> Any:
    """Return the value, and guard on it; it must not hold a tensor, nor a closure that was made while Dynamo traced."""
    if isinstance(variable, SymNodeVariable):
        return variable.evaluate_expr(tx.output)
    if isinstance(variable, variables.UserDefinedObjectVariable):
        return _instance(tx, variable)
    if isinstance(variable, (variables.ListVariable, variables.TupleVariable)):
        items = [_value_of(tx, item) for item in variable.items]
        return items if isinstance(variable, variables.ListVariable) else tuple(items)
    if isinstance(variable, variables.UserMethodVariable):
        return types.MethodType(variable.fn, _value_of(tx, variable.obj))
    try:
        return variable.as_python_constant()
    except (NotImplementedError, Unsupported):
        pass
    raise Unsupported(_REFUSED.format(variable))


def _instance(tx: Any, variable: Any) -> Any:
    changed = tx.output.side_effects.store_attr_mutations.get(variable, {})
    if not changed:
        if variable.source is not None:
            install_guard(variable.source.make_guard(GuardBuilder.ID_MATCH))
        return variable.value
    if variable.source is not None:
        raise Unsupported(_REFUSED.format(f"{variable}, which the compiled function changes"))
    made = object.__new__(type(variable.value))
    for name, value in changed.items():
        object.__setattr__(made, name, _value_of(tx, value))
    return made
