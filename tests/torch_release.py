"""What the releases of PyTorch differ in, as far as the tests use it: by feature, in this place alone."""

import pytest
import torch
from torch.utils import checkpoint


def _lacks(what):
    return f"torch {torch.__version__} {what}"


# Until 2.11 such a checkpoint begins with a torch.autograd.Function that has no rules for these.
needs_levels_around_checkpoint = pytest.mark.skipif(
    hasattr(checkpoint, "_NoopSaveInputs"),
    reason=_lacks("refuses forward mode and vmap around a checkpoint with use_reentrant=False"),
)

needs_branches_in_called_code = pytest.mark.skipif(
    torch.__version__ < "2.13", reason=_lacks("refuses a torch.cond in code that a compiled graph calls")
)

needs_functions_in_compiled_gradients = pytest.mark.skipif(
    torch.__version__ < "2.13", reason=_lacks("refuses a torch.autograd.Function in a compiled gradient of torch.func")
)

# Whose formulas 2.15 has right over forward mode; 2.14 was not tried.
MENDED_OVER_FORWARD_MODE = ("det", "logdet", "slogdet", "solve") if torch.__version__ >= "2.15" else ()

# What the errors of PyTorch say, in one release and another.
REFUSES_DUALS = "dual_level|dual tensor"


def is_right_or_refused(call, wanted):
    """Check a call of a compiled function with a dual tensor, which PyTorch itself refuses since 2.14."""
    try:
        found = call()
    except torch._dynamo.exc.Unsupported as error:
        assert "dual tensor input" in str(error)  # noqa: PT017  (both are right, each in its releases)
        return
    assert found == wanted


def skip_if_lost(slope, x):
    """Skip where the derivative that a function of PyTorch itself made of a compiled function is a constant.

    Until 2.12 ``create_graph=True`` keeps it only if it depends on an argument that was saved unchanged.
    """
    if not slope(x.clone().requires_grad_()).requires_grad:
        pytest.skip(_lacks("itself returns the derivative of a compiled function as a constant"))


def skip_if_sets_end_graphs():
    """Skip where Dynamo does not follow a search of a set: before 2.12."""
    if torch.__version__ < "2.12":
        pytest.skip(_lacks("does not look into a set in a graph"))
