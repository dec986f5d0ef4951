"""PyTorch Lightning: its loop trains a module that asks, and one that takes its own gradient."""

import pytest

lightning = pytest.importorskip("lightning", reason="needs lightning: make libraries")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import adprotocol
from adprotocol import within_gradient

X = torch.linspace(-1.0, 1.0, 8)[:, None]
BATCHES = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, 2.0 * X), batch_size=4)


class Line(lightning.LightningModule):
    def __init__(self, *, by_hand):
        super().__init__()
        torch.manual_seed(0)
        self.line = torch.nn.Linear(1, 1)
        self.automatic_optimization = not by_hand
        self.asked = {"training": set(), "validation": set()}

    def loss(self, batch, phase):
        self.asked[phase].add(within_gradient(dict(self.line.named_parameters())))
        return ((self.line(batch[0]) - batch[1]) ** 2).mean()

    def training_step(self, batch, _index):
        if self.automatic_optimization:
            return self.loss(batch, "training")
        gradient = adprotocol.grad(lambda line: ((line(batch[0]) - batch[1]) ** 2).mean())(self.line)
        for name, parameter in self.line.named_parameters():
            parameter.grad = gradient[name]
        optimizer = self.optimizers()
        optimizer.step()
        optimizer.zero_grad()
        return None

    def validation_step(self, batch, _index):
        self.loss(batch, "validation")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trained(**options):
    model = Line(**options)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, BATCHES, BATCHES)
    return model


@pytest.mark.filterwarnings("ignore")
def test_the_loop_trains_and_evaluates():
    model = trained(by_hand=False)
    assert model.asked == {"training": {True}, "validation": {False}}
    by_hand = trained(by_hand=True)
    for one, other in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, other)
