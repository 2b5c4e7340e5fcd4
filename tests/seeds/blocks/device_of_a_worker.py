import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device


def loop(config):
    assert torch.cuda.is_available()

    mine = get_device()
    assert mine == torch.device("cuda:0")


trainer = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=1, use_gpu=True))
trainer.fit()
