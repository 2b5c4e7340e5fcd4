ScalingConfig(
    num_workers=4,
    use_tpu=True,
    topology="2x2x4",
    accelerator_type="TPU-V4",
)
