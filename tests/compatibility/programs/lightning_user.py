"""PyTorch Lightning with Tune's callback of old, reporting at the end of each validation."""

import warnings

warnings.filterwarnings("ignore")

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from ray import tune  # noqa: E402
from ray.tune.integration.pytorch_lightning import TuneReportCallback  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

x = torch.arange(16.0).reshape(16, 1) / 16


class Line(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.lr = lr

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("ptl/val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def fit(config, num_epochs=2):
    data = DataLoader(TensorDataset(x, 2 * x), batch_size=8)
    trainer = pl.Trainer(
        max_epochs=num_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[TuneReportCallback({"loss": "ptl/val_loss"}, on="validation_end")],
    )
    trainer.fit(Line(config["lr"]), data, data)


analysis = tune.run(
    tune.with_parameters(fit, num_epochs=2),
    resources_per_trial={"cpu": 1, "gpu": 0},
    config={"lr": tune.grid_search([0.1, 0.001])},
    metric="loss",
    mode="min",
    verbose=0,
)
assert [t.last_result["training_iteration"] for t in analysis.trials] == [2, 2]
assert analysis.best_result["loss"] >= 0
