"""Host functions that get or give what they should not, are called too often or not, or lose a derivative."""

import numpy as np
import toyad
import toyad_adprotocol as right
import toyad_rules

from adprotocol._rules import host_function
from mutants.mutant import at, mutant

GROUP = "host_function"
CORE = "adprotocol._rules.host_function"

call = right.host_call
run = host_function.HostCall.__call__


@mutant(GROUP, at("adprotocol._rules.host_function.HostCall._call"))
def gets_objects(self, fun, arrays):
    """Gives the function arrays of objects."""
    found = iter([np.asarray(array, object) for array in arrays])
    leaves = [next(found) if host_function.is_array(leaf) else leaf for leaf in self.leaves]
    args, static = host_function.build(self.arguments, iter(leaves))
    return host_function.flatten_result(fun(*args, **static))


@mutant(GROUP, at("host_call"))
def gives_numpys_arrays(fun, arrays, like, batched, message):
    """Returns NumPy's arrays where the arguments are known."""
    known = all(isinstance(array, toyad.Array) for array in arrays)
    return fun([array.value for array in arrays]) if known else call(fun, arrays, like, batched, message)


@mutant(GROUP, at(f"{CORE}._with_precision"))
def of_64_bits(result, _arrays):
    """Returns what NumPy computed in its own precision."""
    return result


@mutant(GROUP, at(f"{CORE}._with_precision"))
def of_the_precision_of_the_first(result, arrays):
    """Returns what NumPy computed in its own precision, unless the first argument has one."""
    return WITH_PRECISION(result, arrays[:1])


WITH_PRECISION = host_function._with_precision


@mutant(GROUP, at(f"{CORE}.build"))
def loses_the_structure(treespec, leaves):
    """Returns a list of the results."""
    return list(leaves) if treespec and treespec[0] is dict else BUILD(treespec, leaves)


BUILD = host_function.build


@mutant(GROUP, at("toyad_rules.Host.kinds"))
def guesses_the_shape(self, args, like, **params):
    """Takes the shape of the arguments for that of the results, if nobody tells it."""
    return KINDS(self, args, args[:1] if like is None else like, **params)


KINDS = toyad_rules.Host.kinds


@mutant(GROUP, at(f"{CORE}.HostCall.expected"))
def forgets_like(self):
    """Does not pass on what the shapes are."""
    EXPECTED(self)


EXPECTED = host_function.HostCall.expected


@mutant(GROUP, at("host_call"))
def derivative_is_zero(fun, arrays, like, batched, message):
    """Returns constants instead of raising where a result is differentiated."""
    return call(fun, [toyad.stop_gradient(array) for array in arrays], like, batched, message)


@mutant(GROUP, at("host_call"), alone="elsewhere what is differentiated is the first of the arguments, or all of them")
def guards_the_first(fun, arrays, like, batched, message):
    """Raises where the first of the arguments is differentiated, and takes the others for constants."""
    return call(fun, arrays[:1] + [toyad.stop_gradient(array) for array in arrays[1:]], like, batched, message)


@mutant(GROUP, at("toyad_rules.Call._guarded"))
def rules_on_the_host_twice(_self, values):
    """Lets a rule on the host be differentiated again, to zeros."""
    return [toyad.stop_gradient(value) if toyad.is_inexact(value) else value for value in values]


@mutant(GROUP, at("adprotocol._rules.rule.on_host"))
def rules_on_the_host_run_as_they_are(_binding, _host, rule, groups, _like, _message):
    """Calls a rule on the host with the system's arrays."""
    return rule(*groups)


@mutant(GROUP, at("host_call"))
def every_row_alone(fun, arrays, like, batched, message):
    """Calls the function for each row, even if it takes all."""
    return call(fun, arrays, like, False, message)


@mutant(GROUP, at("host_call"))
def all_rows_at_once(fun, arrays, like, batched, message):
    """Calls the function once for all rows, which it does not expect."""
    return call(fun, arrays, like, True, message)


@mutant(GROUP)
def shared_arguments_without_rows():
    """Gives a function of all rows what they share without an axis of rows."""

    def batch(self, trace, args, below, **params):
        if not params["batched"]:
            return BATCH(self, trace, args, below, **params)
        like = params.pop("like")
        wide = like and [np.broadcast_to(np.zeros((), k.dtype), (trace.size, *k.shape)) for k in like]
        return [toyad.Batched(trace, result) for result in self(*below, like=wide, **params)]

    return {"toyad_rules.Host.batch": batch}


BATCH = toyad_rules.Host.batch


@mutant(GROUP, at(f"{CORE}._read_only"))
def inputs_can_be_written(value):
    """Gives the function the memory of its arguments."""
    return value


@mutant(GROUP, at(f"{CORE}.HostCall.__call__"))
def calls_twice(self, arrays):
    """Calls the function twice."""
    run(self, arrays)
    return run(self, arrays)


@mutant(GROUP)
def remembers_results():
    """Calls the function once for equal arguments."""
    known = {}

    def remembered(self, arrays):
        key = id(self.host), *[np.asarray(array).tobytes() for array in arrays]
        if key not in known:
            known[key] = run(self, arrays), self.treespec, self.host
        self.treespec = known[key][1]
        return known[key][0]

    return {f"{CORE}.HostCall.__call__": remembered}
