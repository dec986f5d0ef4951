"""The rules that autograd does not allow this plugin to keep, by name; `divergences.md` says which."""

from pathlib import Path

from adprotocol.extend import read_divergences

DIVERGENCES = read_divergences(Path(__file__).with_name("divergences.md"))
