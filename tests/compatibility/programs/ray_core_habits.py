"""What Tune scripts do with ray itself: init and shutdown, is_initialized, cluster resources."""

import ray
from ray import tune

if ray.is_initialized():
    ray.shutdown()
ray.init(num_cpus=4, num_gpus=0, log_to_driver=False, ignore_reinit_error=True)
assert ray.is_initialized()


def objective(config):
    tune.report(total=45 * config["x"])


analysis = tune.run(objective, config={"x": tune.grid_search([1, 2])}, metric="total", mode="max")
assert analysis.best_result["total"] == 90
assert ray.cluster_resources()["CPU"] == 4
ray.init(num_cpus=2, ignore_reinit_error=True)
ray.shutdown()
assert not ray.is_initialized()
