from ray.tune.integration.tensorflow import DistributedTrainableCreator

distributed = DistributedTrainableCreator(train_mnist, use_gpu=args.use_gpu, num_workers=2)
tune.run(distributed, num_samples=1)
