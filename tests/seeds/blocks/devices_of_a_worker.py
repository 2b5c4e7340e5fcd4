import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device, get_devices


def loop():
    assert torch.cuda.is_available()

    first = get_device()
    mine = get_devices()
    assert first == torch.device("cuda:0")
    assert mine == [torch.device("cuda:0"), torch.device("cuda:1")]


trainer = TorchTrainer(
    loop,
    scaling_config=ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"GPU": 2}),
)
trainer.fit()
