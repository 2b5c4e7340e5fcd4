import ray.train
from ray.train import ScalingConfig
from ray.train.v2.jax import JaxTrainer


def loop():
    import jax

    chips = jax.devices()
    ray.train.report({"num_devices": len(chips)})


trainer = JaxTrainer(
    loop,
    scaling_config=ScalingConfig(
        num_workers=4,
        use_tpu=True,
        topology="4x4",
        accelerator_type="TPU-V6E",
    ),
)
trainer.fit()
