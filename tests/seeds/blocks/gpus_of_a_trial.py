tune.run(trainable, num_samples=10, resources_per_trial={"gpu": 1})

tune.run(trainable, num_samples=10, resources_per_trial={"cpu": 2, "gpu": 1})
