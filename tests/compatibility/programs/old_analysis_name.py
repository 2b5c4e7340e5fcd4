"""tune.Analysis, the name of 1.x, over a directory with two experiments' worth of trials."""

import os

from ray import tune


def trainable(config):
    tune.report(episode_reward_mean=config["alpha"] * 2)


tune.run(trainable, name="exp", local_dir="./res", config={"alpha": tune.grid_search([1, 2, 3])})
analysis = tune.Analysis(os.path.expanduser(os.path.abspath("./res/exp")))
assert len(analysis.dataframe()) == 3
assert analysis.get_best_config(metric="episode_reward_mean", mode="max") == {"alpha": 3}
assert os.path.isdir(analysis.get_best_logdir(metric="episode_reward_mean", mode="max"))
