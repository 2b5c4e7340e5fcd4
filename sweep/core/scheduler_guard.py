"""The border to schedulers, which may be the user's own: ask one, check what it answers, name it when it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.core.messages import CloneTrial, Decision, PauseTrial, ResizeTrial, ResumeTrial, SaveTrial, StopTrial
from sweep.core.trial import Trial
from sweep.errors import MetricError, SweepError

if TYPE_CHECKING:
    from sweep.schedulers.base import Scheduler


_DECISIONS = (StopTrial, PauseTrial, ResumeTrial, SaveTrial, CloneTrial, ResizeTrial)


def consult(scheduler: Scheduler, hook: str, *arguments: Any) -> Sequence[Decision]:
    """Return what a scheduler decides in one of its hooks.

    Raises:
        SweepError: it failed, or answered something else than decisions.
    """
    try:
        answer = getattr(scheduler, hook)(*arguments)
        if answer is None or answer == ():
            return ()
        decisions = list(answer)
    except Exception as error:  # a scheduler may be the user's own
        raise _blame(scheduler, error) from error
    if not all(isinstance(decision, _DECISIONS) for decision in decisions):
        name = type(scheduler).__name__
        raise SweepError(f"the scheduler {name} answered {hook} with {answer!r:.100}; expected decisions.")
    return decisions


def complete(scheduler: Scheduler, config: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return the config of a new trial with what a scheduler adds to it.

    Raises:
        SweepError: it failed, or answered something else than a config.
    """
    try:
        answer: Any = scheduler.complete_config(config, number)
    except Exception as error:  # as in consult
        raise _blame(scheduler, error) from error
    if not isinstance(answer, Mapping):
        name = type(scheduler).__name__
        raise SweepError(
            f"the scheduler {name} answered complete_config with {answer!r:.100}; expected the trial's config, a dict."
        )
    return answer


def tell(scheduler: Scheduler, hook: str, *arguments: Any) -> None:
    """Tell a scheduler something that it has no answer to.

    Raises:
        SweepError: it failed.
    """
    try:
        getattr(scheduler, hook)(*arguments)
    except Exception as error:  # as in consult
        raise _blame(scheduler, error) from error


def choose(scheduler: Scheduler, startable: Sequence[Trial]) -> Trial | None:
    """Return which of some trials a scheduler starts; None: none of them.

    Raises:
        SweepError: it failed, or chose another one.
    """
    try:
        chosen = scheduler.choose(startable)
        chosen_id = None if chosen is None else chosen.id
    except Exception as error:  # as in consult
        raise _blame(scheduler, error) from error
    found = next((trial for trial in startable if trial.id == chosen_id), None)
    if chosen_id is not None and found is None:
        name = type(scheduler).__name__
        raise SweepError(f"the scheduler {name} chose {chosen_id}, which was not among those offered.")
    return found


def _blame(scheduler: object, error: Exception) -> SweepError:
    if isinstance(error, MetricError):
        return error  # it names the scheduler; the fault is that of the reports
    return SweepError(f"the scheduler {type(scheduler).__name__} failed: {type(error).__name__}: {error}")
