"""Everything within main(): a Trainable class and a closure defined inside a function."""

from ray import train, tune


def main(factor):
    class Inner(tune.Trainable):
        def setup(self, config):
            self.value = config["a"] * factor

        def step(self):
            return {"value": self.value, "done": True}

    table = {"offset": 5}

    def closure(config):
        train.report({"value": config["a"] * factor + table["offset"]})

    space = {"a": tune.grid_search([1, 2])}
    one = tune.Tuner(Inner, param_space=space).fit()
    two = tune.Tuner(closure, param_space=space).fit()
    return sorted(r.metrics["value"] for r in one), sorted(r.metrics["value"] for r in two)


if __name__ == "__main__":
    assert main(10) == ([10, 20], [15, 25])
