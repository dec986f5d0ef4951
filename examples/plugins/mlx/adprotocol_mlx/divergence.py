"""The rules that MLX does not allow this plugin to keep, as data: the hook `divergences` lists them."""

from adprotocol.extend import Divergence

VJP_AFTER_INNER_DERIVATIVE = Divergence(
    name="vjp-after-inner-derivative",
    title="After an inner derivative that closes over what mx.vjp or mx.jvp differentiates",
    remedy="Ask before the inner derivative, or pass what it closes over as an argument",
    text="x",
)
VJP_RULE_BY_DEFAULT = Divergence(
    name="vjp-rule-by-default",
    title="In a custom function whose derivative rule MLX makes by itself",
    remedy="Give the mx.custom_function a vjp rule",
    text="x",
)
COMPILED_AFTER_INNER_DERIVATIVE = Divergence(
    name="compiled-after-inner-derivative",
    title="A compiled function after an inner derivative",
    remedy="Call the compiled function before the inner derivative, or pass what that closes over as an argument",
    text="x",
)
DIVERGENCES = (VJP_AFTER_INNER_DERIVATIVE, VJP_RULE_BY_DEFAULT, COMPILED_AFTER_INNER_DERIVATIVE)


def by_name(name: str) -> Divergence:
    """Return a declared divergence."""
    return next(divergence for divergence in DIVERGENCES if divergence.name == name)
