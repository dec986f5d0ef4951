"""What autograd does not allow to be done right."""

from adprotocol.extend import Divergence

FIRST_PASS = Divergence(
    name="first-pass",
    title="First pass of `checkpoint` and of a `primitive`",
    remedy="Ask outside and close over the answer",
    outcome="wrong",
    scenarios=("within_gradient/grad-of-checkpoint", "within_gradient/checkpoint-answers-alike*"),
    text="""\
autograd runs the function on plain arrays there. A plain array carries no mark, so the answer is False. In the
recomputation of `checkpoint` it is True. Ask outside of the checkpoint and close over the answer:

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
autograd propagates through them where an operation makes floats of them. The answer is False for them, as everywhere
(W9). Convert them to floating point before the gradient is taken.
""",
)

LABELS_IN_ARGUMENTS = Divergence(
    name="labels-in-arguments",
    title="Labels in arguments",
    remedy="Differentiate with adprotocol.grad",
    scenarios=("non_differentiable/label-in-native-grad",),
    text="""\
`autograd.grad` refuses to differentiate with respect to a structure that holds a `NonDifferentiable`, and with respect
to a dataclass or named tuple. `adprotocol.grad` takes both.
""",
)

ARRAY_SUBCLASSES = Divergence(
    name="array-subclasses",
    title="Subclasses of arrays",
    remedy="Pass a plain numpy.ndarray, or freeze it with where=",
    text="""\
autograd does not box masked arrays and other subclasses of `numpy.ndarray`. As leaves that take a gradient they are a
`SelectionError`. Pass a plain array, or freeze it.
""",
)

THREADS = Divergence(
    name="threads",
    title="Threads",
    remedy="Call adprotocol.grad in threads, and autograd.grad in one thread only",
    outcome="wrong",
    text="""\
autograd counts its traces in one counter for all threads. Calls of `adprotocol.grad` alone are right in threads; native
calls of `autograd.grad` inside them, or alone, are not always. Make those in one thread only.
""",
)

DIVERGENCES = (FIRST_PASS, INTEGER_ARRAYS, LABELS_IN_ARGUMENTS, ARRAY_SUBCLASSES, THREADS)
