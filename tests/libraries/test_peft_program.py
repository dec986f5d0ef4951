"""peft: LoRA on a language model of two layers; what its flags freeze takes no gradient."""

import pytest

peft = pytest.importorskip("peft", reason="needs peft: make libraries")
transformers = pytest.importorskip("transformers", reason="needs transformers: make libraries")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import adprotocol

IDS = torch.tensor([[1, 5, 2, 7]])


def loss(model, ids):
    return model(input_ids=ids, labels=ids).loss


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_alone_take_gradients():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=12, n_positions=8, n_embd=8, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    base = transformers.GPT2LMHeadModel(config)
    chosen = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    model = peft.get_peft_model(base, chosen)
    gradient = adprotocol.grad(loss)(model, IDS)
    trained = [name for name, slope in gradient.items() if slope is not None]
    assert len(trained) == 4
    assert all("lora_" in name for name in trained)
    loss(model, IDS).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(gradient[name], parameter.grad)
