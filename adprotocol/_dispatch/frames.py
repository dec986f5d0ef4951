"""The frames of a traceback: an error in a user's function shows the call of this library, and none of its insides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, TracebackType

# The code of the public functions that run a user's function: of each call one frame stays.
_ENTRIES: set[CodeType] = set()


def leave_out(error: BaseException) -> None:
    """Leave out of an error's traceback the frames between a public function, which caught it, and the user's.

    What this library raises itself shows where.
    """
    before = error.__traceback__
    if before is None:
        return
    _ENTRIES.add(before.tb_frame.f_code)
    after = before.tb_next
    while after is not None:
        if not _is_inside(after):
            before.tb_next = after
            before = after
        after = after.tb_next


def _is_inside(traceback: TracebackType) -> bool:
    frame = traceback.tb_frame
    name = str(frame.f_globals.get("__name__"))
    # The scenarios of the suite are users.
    is_ours = name.startswith(("adprotocol._", "adprotocol_")) and ".conformance" not in name
    return is_ours and frame.f_code not in _ENTRIES
