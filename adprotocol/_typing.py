"""The names of `typing` that every module needs, without its import, which takes 10 ms.

Type checkers take any `TYPE_CHECKING` for true; at run time annotations are text.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

__all__ = ["TYPE_CHECKING", "Any"]
