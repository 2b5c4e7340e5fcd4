ScalingConfig(num_workers=1, use_gpu=True, accelerator_type="A100")
