tune.run(trainable, num_samples=10, resources_per_trial={"cpu": 2})

tune.run(trainable, num_samples=10, resources_per_trial={"cpu": 4})

tune.run(trainable, num_samples=10, resources_per_trial={"cpu": 0.5})
