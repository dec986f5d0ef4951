"""The table from types to plugins: filled on first sight, in any thread, and emptied when plugins change."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.plugins.registration import Foreign, ForeignPlugin, registered, still_right
from adprotocol.conformance.scenarios.threads import in_threads

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_CACHE = "plum: a resolution overtaken by a registration is cached for good: https://github.com/beartype/plum/pull/316"

scenario: Decorator = defaults("plugins", rule="P4", source=_CACHE)


@scenario()
def table_follows_changes(h: Checked) -> None:
    """Cached answers for a type are dropped when plugins come and go.

    Expect UnclaimedTypeError, then the answer of the new plugin, then UnclaimedTypeError, twice; 5 x in between.
    """
    array = Foreign()
    for _ in range(2):
        with h.raises(errors.UnclaimedTypeError, words=["Foreign"]):
            adprotocol.within_gradient(array)
        with registered(ForeignPlugin()):
            h.assert_is(adprotocol.within_gradient(array), want=True, what="the answer of the new plugin")
            still_right(h, "beside a new plugin")
    with h.raises(errors.UnclaimedTypeError, words=["Foreign"]):
        adprotocol.within_gradient(array)
    still_right(h, "after the plugin has gone")


@scenario(transform="threads")
def first_sight_in_threads(h: Checked) -> None:
    """Types first seen in many threads at once get the same answer in all.

    Expect 5 x = 10 in each of eight threads, and 3 in the gradient of 3 x, right after the table was emptied.
    """
    array, meeting = h.array(2.0), threading.Barrier(8)

    def ask() -> tuple[Any, Any, Any]:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(5.0)
        plain = h.probe(array)
        gradient = adprotocol.grad(h.probe, backend=h.name)(array) if h.has("grad") else None
        return plain, adprotocol.trainable({"a": array})["a"], gradient

    for _ in range(3):
        with registered(ForeignPlugin()):
            pass
        for plain, leaf, gradient in in_threads(h, *[ask] * 8):
            h.assert_equal(plain, 10.0, "5 x in a thread")
            h.assert_is(leaf, array, "the leaf that takes a gradient, in a thread")
            if gradient is not None:
                h.assert_equal(gradient, 3.0, "the gradient in a thread")
