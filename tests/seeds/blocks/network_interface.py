import ray

variables = {"env_vars": {"NCCL_SOCKET_IFNAME": "ens5"}}
ray.init(runtime_env=variables)

trainer = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2))
