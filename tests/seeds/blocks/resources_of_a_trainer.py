from ray.train import ScalingConfig

scaling = ScalingConfig(
    num_workers=8,
    trainer_resources={
        "CPU": 4,
        "GPU": 1,
    },
)
