"""Replay of what population based training found: one trial that changes its config as the best one's history did."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from sweep import checks
from sweep.core.literals import jsonable
from sweep.core.messages import CloneTrial, Decision, PauseTrial
from sweep.core.results import TrialResult, flatten
from sweep.core.trial import Trial
from sweep.core.values import as_float
from sweep.errors import ConfigError, refuse_unknown
from sweep.schedulers.base import Scheduler
from sweep.schedulers.pbt_policy import change_points, read_policy


@refuse_unknown()
@final
class PopulationBasedTrainingReplay(Scheduler):
    """Train one trial with the schedule of hyperparameters that population based training found.

    The trial begins with the config that the way to the policy's last line began with. At each change point, counted in
    `training_iteration`, it continues from its own checkpoint with the next config. Give `num_samples=1`, and what
    `config` needs besides: the policy's values replace those of the same name, and other keys stay.

    A class trainable changes exactly at the change points. A function changes at the first report with a checkpoint
    that is not before one, so let it save as often as the population did.

    Args:
        policy_file: a `pbt_policy_<trial>.txt` of a population's experiment directory, be it ours or Ray Tune's; it is
            read once, here.

    Raises:
        ConfigError: the file is missing, empty or no policy.

    Source: Jaderberg et al. 2017, arXiv:1711.09846, section 4.4 (the discovered schedules); the file is that of Ray
    Tune. Departures: a config is laid over the given one and does not replace it whole, so that values which JSON
    cannot hold stay what they are. Which config is due follows from the iteration alone, so a trial that fails and
    starts again from an older checkpoint keeps to the policy as soon as it reports again.
    """

    is_searching = True
    is_stateless = True

    def __init__(self, policy_file: str | os.PathLike[str]) -> None:
        first, self._changes = change_points(_read(policy_file))
        self._first: dict[str, Any] = first
        for iteration, config in self._changes:
            if iteration > 0:
                break
            self._first = config
        configs = [flatten(config) for config in (self._first, *(config for _, config in self._changes))]
        paths = dict.fromkeys(path for config in configs for path in config)
        self.mutated_paths = tuple(path for path in paths if len({_text(config.get(path)) for config in configs}) > 1)
        self._trial_id: str | None = None

    def complete_config(self, config: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return the config that the policy begins with, laid over the given one."""
        new = _laid_over(config, self._first)
        before, after = flatten(config), flatten(new)
        replaced = sorted(path for path in before if path in after and after[path] is not before[path])
        if replaced:
            self._note(f"the policy replaces what config gives as {', '.join(replaced)}.")
        return new

    def on_trial_add(self, trial: Trial) -> None:
        """Take the one trial.

        Raises:
            ConfigError: it is the second one.
        """
        if self._trial_id not in (None, trial.id):
            raise ConfigError(
                "a second trial was added to a replay, which would train the same schedule again; expected one: pass "
                "num_samples=1 and a config without grids."
            )
        self._trial_id = trial.id

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        """Change the config where the policy does: from the checkpoint that is there, or from one that is yet to be."""
        iteration = as_float(result.get("training_iteration"))
        if iteration is None or trial.is_by_person:
            return ()
        due = self._num_due(iteration)
        config = self._new_config(trial, due)
        if config is None:
            return ()
        at = self._changes[due - 1][0]
        if trial.checkpoint is not None and trial.checkpoint.training_iteration >= at:
            return [CloneTrial(trial.id, trial.id, config)]
        return [PauseTrial(trial.id, f"changes its config as the policy did at training_iteration={at}")]

    def on_idle(self, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        """Let the trial that is saved at a change point continue with the next config."""
        decisions: list[Decision] = []
        for resume in super().on_idle(trials):
            trial = trials[resume.trial_id]
            iteration = trial.checkpoint.training_iteration if trial.checkpoint is not None else 0
            config = self._new_config(trial, self._num_due(iteration))
            decisions.append(resume if config is None else CloneTrial(trial.id, trial.id, config))
        return decisions

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        if isinstance(decision, PauseTrial):
            self._note(
                "PopulationBasedTrainingReplay cannot change the config of a trial that never saved a checkpoint; it "
                "goes on as it is until it has. Report a checkpoint at least at the change points of the policy: "
                f"{', '.join(str(iteration) for iteration, _ in self._changes)}."
            )
        return ()

    def _num_due(self, iteration: float) -> int:
        """Return how many changes of the policy lie behind an iteration, that iteration included."""
        return sum(at <= iteration for at, _ in self._changes)

    def _new_config(self, trial: Trial, due: int) -> dict[str, Any] | None:
        """Return the config that a trial should have after that many changes; None: the one that it has."""
        new = _laid_over(trial.config, self._changes[due - 1][1] if due else {})
        return None if _text(new) == _text(trial.config) else new

    def state(self) -> Any:
        return self._trial_id, self._first, self._changes

    def debug_string(self) -> str:
        return f"PopulationBasedTrainingReplay: {len(self._changes)} changes up to iteration {self._changes[-1][0]}"


def _read(policy_file: Any) -> list[Any]:
    if not isinstance(policy_file, (str, os.PathLike)) or not os.fspath(policy_file):
        checks.refuse("policy_file", policy_file, "the path of a pbt_policy_<trial>.txt")
    shown = repr(os.fspath(policy_file))
    advice = "expected a pbt_policy_<trial>.txt of an experiment that PopulationBasedTraining ran with log_config=True"
    try:
        lines = read_policy(Path(policy_file).expanduser().read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"policy_file {shown} is no policy ({error}); {advice}.") from error
    if not lines:
        raise ConfigError(f"policy_file {shown} holds no change of a config; {advice}.")
    return lines


def _laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `base` with the values of `over`, except where JSON shows both alike: there base's stay."""
    names = {str(key): key for key in base}  # JSON knows no other keys than strings
    new = dict(base)
    for key, value in over.items():
        name = names.get(key, key)
        old = base.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            new[name] = _laid_over(old, value)
        elif name not in base or _text(old) != _text(value):
            new[name] = value
    return new


def _text(value: Any) -> str:
    return json.dumps(value, default=jsonable, skipkeys=True)
