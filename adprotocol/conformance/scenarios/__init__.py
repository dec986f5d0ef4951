"""The scenarios: a folder or a module for each hook, in a folder a module for each theme."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from adprotocol.conformance.scenario import registered

if TYPE_CHECKING:
    from adprotocol.conformance.scenario import Scenario


def all_scenarios() -> dict[str, Scenario]:
    """Return every scenario by id, in an order that does not depend on imports.

    >>> from adprotocol.conformance import all_scenarios
    >>> all_scenarios()["within_gradient/grad-of-jit"].level
    'MUST'
    """
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    importlib.import_module(f"{__name__}.again").enter()
    return registered()
