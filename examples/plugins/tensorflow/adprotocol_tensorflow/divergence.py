"""What TensorFlow does not allow the plugin to do right."""

from __future__ import annotations

from adprotocol.extend import Divergence

DIVERGENCES: tuple[Divergence, ...] = ()
