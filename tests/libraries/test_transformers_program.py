"""transformers: a language model of two layers, its second layer trained alone."""

import pytest

transformers = pytest.importorskip("transformers", reason="needs transformers: make libraries")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import adprotocol
from adprotocol import non_differentiable, value_and_grad, within_gradient
from adprotocol.errors import OpaqueValueError

IDS = torch.tensor([[1, 5, 2, 7], [3, 3, 0, 9]])


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=12, n_positions=8, n_embd=8, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return transformers.GPT2LMHeadModel(config)


def loss(model, ids):
    return model(input_ids=ids, labels=ids).loss


def test_the_second_layer_has_the_gradients_of_backward(model):
    value, gradient = value_and_grad(loss, where="transformer.h.1.*")(model, IDS)
    native = loss(model, IDS)
    native.backward()
    assert torch.equal(value, native.detach())
    for name, parameter in model.named_parameters():
        if name.startswith("transformer.h.1."):
            torch.testing.assert_close(gradient[name], parameter.grad)
        else:
            assert gradient[name] is None


def test_outputs_are_structures(model):
    def with_outputs(model, ids):
        outputs = model(input_ids=ids, labels=ids, use_cache=False)
        assert within_gradient(outputs) is True
        assert within_gradient(non_differentiable(outputs)) is False
        return outputs.loss, outputs

    (value, outputs), _ = value_and_grad(with_outputs, where="lm_head.*", has_aux=True)(model, IDS)
    assert type(outputs).__name__ == "CausalLMOutputWithCrossAttentions"
    assert torch.equal(outputs.loss, value)
    assert outputs["logits"].shape == (2, 4, 12)
    assert within_gradient(outputs) is False


def test_a_cache_of_keys_is_no_structure(model):
    with pytest.raises(OpaqueValueError, match="DynamicCache at 'past_key_values'"):
        within_gradient(model(input_ids=IDS))


def test_a_step_by_hand_is_that_of_sgd(model):
    params, rest = adprotocol.partition(model)
    gradient = adprotocol.grad(loss)(model, IDS)
    stepped = adprotocol.combine(adprotocol.tree_map(lambda p, g: p - 0.1 * g, params, gradient), rest, like=model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss(model, IDS).backward()
    optimizer.step()
    torch.testing.assert_close(loss(stepped, IDS), loss(model, IDS))
