"""The rules that tinygrad does not allow this plugin to keep, as data: the hook `divergences` lists them."""

from adprotocol.extend import Divergence

ALL: tuple[Divergence, ...] = ()
