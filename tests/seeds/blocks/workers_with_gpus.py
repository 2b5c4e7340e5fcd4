from ray.train import ScalingConfig

scaling = ScalingConfig(num_workers=8, use_gpu=True)
