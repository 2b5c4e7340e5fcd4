tune.run(trainable, num_samples=10)
