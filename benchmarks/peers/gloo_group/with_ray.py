"""A gloo group of two workers, twice in one driver: the seconds of each fit(), the first with the start of Ray."""

import json
import logging
import os
import sys
import time

import ray
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer


def loop():
    import torch.distributed as dist

    assert dist.get_world_size() == 2
    train.report({"loss": 1.0})


spent = []
for name in ("first", "second"):
    began = time.time()
    if not ray.is_initialized():
        ray.init(
            address="local",
            num_cpus=max(4, os.cpu_count()),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    trainer = TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        torch_config=TorchConfig(backend="gloo"),
        run_config=train.RunConfig(storage_path=sys.argv[1], name=name),
    )
    assert trainer.fit().error is None
    spent.append(time.time() - began)
print(json.dumps({"first_s": spent[0], "second_s": spent[1]}))
ray.shutdown()
