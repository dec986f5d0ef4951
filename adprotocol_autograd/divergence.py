"""The rules that autograd does not allow this plugin to keep, as data: the hook `divergences` lists them."""

from adprotocol.extend import Divergence

FIRST_PASS = Divergence(
    name="first-pass",
    title="First pass of `checkpoint` and of a `primitive`",
    remedy="Ask outside and close over the answer",
    outcome="wrong",
    scenarios=("within_gradient/grad-of-checkpoint", "within_gradient/checkpoint-answers-alike*"),
    text="""\
autograd first runs the function of a `checkpoint` or `primitive` on plain arrays, which carry no mark, so the answer is
False. When `checkpoint` recomputes, it is True. Ask outside and close over the answer:

```python
import autograd

answers = []


@autograd.checkpoint
def square(x):
    answers.append(within_gradient(x))
    return x * x


print(autograd.grad(square)(2.0), answers)
```

```text
4.0 [False, True]
```
""",
)

INTEGER_ARRAYS = Divergence(
    name="integer-arrays",
    title="Integer arrays",
    remedy="Convert the array to floating point before the gradient is taken",
    outcome="wrong",
    text="""\
autograd propagates a derivative through an integer array if an operation turns it into floats. The answer is False all
the same, as on every framework (W9). Convert the array to floating point before the gradient is taken.
""",
)

LABELS_IN_ARGUMENTS = Divergence(
    name="labels-in-arguments",
    title="Labels in arguments",
    remedy="Differentiate with adprotocol.grad",
    scenarios=("non_differentiable/label-in-native-grad",),
    text="""\
`autograd.grad` refuses to differentiate with respect to a dataclass, a named tuple, or a structure that holds a
`NonDifferentiable`. `adprotocol.grad` takes them all.
""",
)

ARRAY_SUBCLASSES = Divergence(
    name="array-subclasses",
    title="Subclasses of arrays",
    remedy="Pass a plain numpy.ndarray, or freeze it with where=",
    text="""\
autograd does not box masked arrays and other subclasses of `numpy.ndarray`, so one that takes a gradient raises
`SelectionError`. Pass a plain array, or freeze it with `where=`.
""",
)

CONST_GRAPH = Divergence(
    name="const-graph",
    title="`const_graph`",
    remedy="Ask outside and close over the answer",
    text="""\
`autograd.misc.tracers.const_graph` runs a function once and repeats the recorded operations in every later call,
differentiated or not. A branch on the answer would be fixed by the first call, so `within_gradient` raises
`UndecidableError` inside it. Ask outside and close over the answer.
""",
)

THREADS = Divergence(
    name="threads",
    title="Threads",
    remedy="Call adprotocol.grad in threads, and autograd.grad in one thread only",
    outcome="wrong",
    text="""\
autograd counts its traces in one counter for all threads. `adprotocol.grad` alone is right in threads; native calls of
`autograd.grad`, alone or inside it, are not always. Call `autograd.grad` in one thread only.
""",
)

DIVERGENCES = (FIRST_PASS, INTEGER_ARRAYS, LABELS_IN_ARGUMENTS, ARRAY_SUBCLASSES, CONST_GRAPH, THREADS)
