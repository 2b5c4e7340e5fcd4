"""TorchTrainer on its own: two workers, gloo, a sampler shared between them, the result of rank 0."""

import os
import tempfile

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader, TensorDataset


def loop(config):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(16.0).reshape(16, 1), torch.arange(16.0).reshape(16, 1) * 2)
    loader = train.torch.prepare_data_loader(DataLoader(data, batch_size=4, shuffle=True))
    model = train.torch.prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(2):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        seen = 0
        for x, y in loader:
            seen += len(x)
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total = torch.tensor([float(seen)])
        dist.all_reduce(total)
        with tempfile.TemporaryDirectory() as tmp:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(tmp, "model.pt"))
                checkpoint = Checkpoint.from_directory(tmp)
            train.report(
                {"seen": seen, "total": total.item(), "rank": train.get_context().get_world_rank()},
                checkpoint=checkpoint,
            )


ray.init(num_cpus=4)
trainer = TorchTrainer(
    loop,
    train_loop_config={"lr": 1e-4},
    scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    run_config=RunConfig(
        name="two",
        storage_path=os.path.abspath("out"),
        checkpoint_config=CheckpointConfig(num_to_keep=1),
        failure_config=FailureConfig(max_failures=0),
    ),
)
result = trainer.fit()
assert result.error is None
assert result.metrics["rank"] == 0 and result.metrics["seen"] == 8 and result.metrics["total"] == 16
with result.checkpoint.as_directory() as path:
    assert set(torch.load(os.path.join(path, "model.pt"))) == {"weight", "bias"}
assert len(result.metrics_dataframe) == 2
