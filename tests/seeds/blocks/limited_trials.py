tune.run(trainable, num_samples=10, max_concurrent_trials=4)
