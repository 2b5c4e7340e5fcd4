"""Let CMA-ES be asked for no more points than it can use: those of the generation that is under way."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study


# The attributes under which Optuna keeps the generation of a trial, and the state that the next one begins with.
_GENERATION, _OPTIMIZER = "cma:generation", "cma:optimizer"


def generation_size(num_dimensions: int) -> int:
    """Return how many points a generation has.

    Source: Hansen 2016, arXiv:1604.00772, table 1, which the package `cmaes` follows.
    """
    return 4 + math.floor(3 * math.log(num_dimensions)) if num_dimensions > 0 else 0


def is_generation_full(study: Study, open_numbers: Container[int]) -> bool:
    """Whether the study's CMA-ES can make no use of another point before an open one is told.

    Optuna throws away what exceeds a generation, and all but one of the points that were asked before the first result.
    With this rule the points are the same however many trials run at a time.

    Args:
        open_numbers: of the trials that were asked and not told.
    """
    num_of: dict[int, int] = {}  # by generation: complete and open ones
    is_open: dict[int, bool] = {}
    some = None
    num_open = 0
    for trial in study.get_trials(deepcopy=False):
        waits = trial.number in open_numbers
        num_open += waits
        if not waits and trial.state.name != "COMPLETE":
            continue
        some = trial if not waits else some
        generation = trial.system_attrs.get(_GENERATION)
        if generation is not None:
            num_of[generation] = num_of.get(generation, 0) + 1
            is_open[generation] = is_open.get(generation, False) or waits
    if not num_open:
        return False
    if some is None:
        return True
    if not num_of:
        return False
    latest = max(num_of)
    size = generation_size(len(study.sampler.infer_relative_search_space(study, some)))
    return is_open[latest] and num_of[latest] >= size


def with_open_trials(sampler: BaseSampler, study: Study) -> BaseSampler:
    """Return the CMA-ES sampler, which now also finds its state in trials that are open.

    Optuna looks for it in complete ones, and while the first point of a generation is open the others would be drawn
    from a state that is computed anew, with other random numbers.
    """
    changed: Any = sampler
    restore = changed._restore_optimizer

    def restore_from(completed: list[Any]) -> Any:
        running = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]
        holders = [trial for trial in running if any(key.startswith(_OPTIMIZER) for key in trial.system_attrs)]
        return restore(sorted([*completed, *holders], key=lambda trial: trial.number))

    changed._restore_optimizer = restore_from
    return sampler
