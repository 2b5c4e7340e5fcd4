"""The class API: setup, step, checkpoints by frequency and at the end, reset_config with reused actors."""

import json
import os

import sweep as tune


class MyTrainable(tune.Trainable):
    def setup(self, config):
        self.x = 0
        self.a = config["a"]
        self.b = config["b"]
        self.was_reset = False

    def step(self):
        score = self.objective(self.x, self.a, self.b)
        self.x += 1
        return {"score": score, "x": self.x, "was_reset": self.was_reset}

    def objective(self, x, a, b):
        return a * (x**2) + b

    def save_checkpoint(self, tmp_checkpoint_dir):
        with open(os.path.join(tmp_checkpoint_dir, "state.json"), "w") as fp:
            json.dump({"x": self.x}, fp)
        return tmp_checkpoint_dir

    def load_checkpoint(self, tmp_checkpoint_dir):
        with open(os.path.join(tmp_checkpoint_dir, "state.json")) as fp:
            self.x = json.load(fp)["x"]

    def reset_config(self, new_config):
        self.x = 0
        self.a = new_config["a"]
        self.b = new_config["b"]
        self.was_reset = True
        return True

    def cleanup(self):
        with open(os.path.join(self.logdir, "cleaned"), "w") as fp:
            fp.write(self.trial_id)


tuner = tune.Tuner(
    MyTrainable,
    param_space={"a": 2, "b": tune.grid_search([4, 5, 6, 7])},
    tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1),
    run_config=tune.RunConfig(
        name="classes",
        verbose=0,
        stop={"training_iteration": 4},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
    ),
)
results = tuner.fit()
assert [r.metrics["score"] for r in results] == [2 * 9 + b for b in (4, 5, 6, 7)]
assert [r.metrics["was_reset"] for r in results] == [False, True, True, True]
for result in results:
    names = sorted(name for name in os.listdir(result.path) if name.startswith("checkpoint_"))
    assert len(names) == 2, names


class Once(MyTrainable):
    def reset_config(self, new_config):
        return False


analysis = tune.run(Once, config={"a": 1, "b": 0}, stop={"x": 3}, checkpoint_freq=1, checkpoint_at_end=True, verbose=0)
assert analysis.trials[0].last_result["x"] == 3
assert os.path.exists(os.path.join(analysis.trials[0].local_path, "cleaned"))

by_hand = MyTrainable({"a": 1, "b": 1})
assert by_hand.train()["score"] == 1
saved = by_hand.save()
other = MyTrainable({"a": 1, "b": 1})
other.restore(saved)
assert other.train()["score"] == 2
other.stop()
by_hand.stop()
print("stepped")
