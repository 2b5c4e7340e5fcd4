"""Population based training: the worst trials continue from the best ones' checkpoints, with changed configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from sweep import checks
from sweep.core.results import flatten
from sweep.core.trial import Trial
from sweep.errors import ConfigError, refuse_unknown
from sweep.schedulers.explore import checked_mutations, complete_config, explore
from sweep.schedulers.population import FIRST, Explore, PopulationScheduler


@refuse_unknown()
@final
class PopulationBasedTraining(PopulationScheduler):
    """Let the worst of a population continue from the best, with changed hyperparameters.

    At the end of every interval a trial's result is compared with those of the others at the end of theirs. One of the
    best `quantile_fraction` saves a checkpoint. One of the worst takes the checkpoint of a random one of the best and a
    changed copy of its config. `num_samples` is the size of the population; trials that wait for resources take turns
    with those that run, one interval at a time.

    Args:
        time_attr: result key that counts progress; the default counts seconds of training.
        metric, mode: what is judged; from the run unless given here.
        perturbation_interval: progress between two perturbation points, above 0.
        burn_in_period: progress before a trial is judged for the first time.
        hyperparam_mutations: what may be changed: per config key a list or `choice` (a value moves to a neighbour), a
            domain or a function without arguments (a number is multiplied by a factor), or a dict of these.
        quantile_fraction: the share of the best, and of the worst; 0 to 0.5.
        resample_probability: how often a value is drawn anew instead.
        perturbation_factors: what numbers are multiplied by; one is drawn.
        custom_explore_fn: called last with the changed config; returns the one to use.
        log_config: whether the run writes each exploit to `pbt_global.txt` and `pbt_policy_<id>.txt`.
        require_attrs: whether a result without `time_attr` or `metric` is an error; otherwise it decides nothing.
        synch: whether all trials wait for each other at each perturbation point, and are then changed together.

    Raises:
        ConfigError: an argument is wrong, or nothing is given that could be changed.

    Source: Jaderberg et al. 2017, arXiv:1711.09846, with truncation selection. Departures from Tune: a number is kept
    within its domain's bounds. NaN is the worst score, so a trial that diverged is replaced; Tune leaves it alone. Only
    a trial that has a checkpoint is taken as a source. Every draw is keyed by the run's seed, the trial's number and
    its count of perturbation points, so that equal runs are equal (functions of your own draw as they like).
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Explore | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        limits = (perturbation_interval, burn_in_period, quantile_fraction)
        super().__init__(time_attr, metric, mode, *limits, custom_explore_fn, log_config, require_attrs, synch)
        checks.number("resample_probability", resample_probability, least=0, most=1)
        self._mutations = checked_mutations(hyperparam_mutations or {})
        if not self._mutations and custom_explore_fn is None:
            raise ConfigError(
                "nothing is given that could be changed: pass hyperparam_mutations={'lr': uniform(0, 1)}, or "
                "custom_explore_fn."
            )
        self.mutated_paths = tuple(flatten(self._mutations))
        self.resample_probability = resample_probability
        factors = perturbation_factors
        is_list = isinstance(factors, Sequence) and not isinstance(factors, str) and len(factors) > 0
        if not is_list or not all(map(checks.is_number, factors)):
            checks.refuse("perturbation_factors", factors, "numbers to multiply by, such as (1.2, 0.8)")
        self._factors = tuple(factors)

    def complete_config(self, config: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return a trial's config with a value for every key that may be changed and that it lacks."""
        return complete_config(config, self._mutations, self._rng(FIRST, number, 0))

    def _explored(self, target_id: str, source: Trial, rng: np.random.Generator) -> dict[str, Any]:
        return explore(
            source.config,
            self._mutations,
            rng=rng,
            resample_probability=self.resample_probability,
            perturbation_factors=self._factors,
        )
