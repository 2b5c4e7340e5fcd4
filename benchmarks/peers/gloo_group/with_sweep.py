"""A gloo group of two workers, twice in one driver: the seconds of each fit()."""

import json
import sys
import time

import sweep
from sweep.train import RunConfig, ScalingConfig
from sweep.train.torch import TorchTrainer


def loop():
    import torch.distributed as dist

    assert dist.get_world_size() == 2
    sweep.train.report({"loss": 1.0})


spent = []
for name in ("first", "second"):
    began = time.time()
    trainer = TorchTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=sys.argv[1], name=name, verbose=0),
    )
    assert trainer.fit().metrics["loss"] == 1.0
    spent.append(time.time() - began)
print(json.dumps({"first_s": spent[0], "second_s": spent[1]}))
