"""The border to schedulers, which may be the user's own: ask one, check what it answers, name it when it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.core.messages import CloneTrial, Decision, PauseTrial, ResizeTrial, ResumeTrial, SaveTrial, StopTrial
from sweep.core.trial import Trial
from sweep.errors import MetricError, SweepError

if TYPE_CHECKING:
    from sweep.schedulers.base import Scheduler


_DECISIONS = (StopTrial, PauseTrial, ResumeTrial, SaveTrial, CloneTrial, ResizeTrial)


def _call(scheduler: Scheduler, hook: str, *arguments: Any) -> Any:
    try:
        answer = getattr(scheduler, hook)(*arguments)
        return list(answer) if isinstance(answer, Iterator) else answer
    except MetricError:
        raise  # it names the scheduler; the fault is that of the reports
    except Exception as error:  # a scheduler may be the user's own
        raise SweepError(f"the scheduler {type(scheduler).__name__} failed: {type(error).__name__}: {error}") from error


def consult(scheduler: Scheduler, hook: str, *arguments: Any) -> Sequence[Decision]:
    """Return what a scheduler decides in one of its hooks.

    Raises:
        SweepError: it failed, or answered something else than decisions.
    """
    answer = _call(scheduler, hook, *arguments)
    if answer is None or answer == ():
        return ()
    decisions = list(answer) if isinstance(answer, Iterable) else [answer]
    if not all(isinstance(decision, _DECISIONS) for decision in decisions):
        raise _wrong(scheduler, hook, answer, "decisions")
    return decisions


def complete(scheduler: Scheduler, config: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return the config of a new trial with what a scheduler adds to it.

    Raises:
        SweepError: it failed, or answered something else than a config.
    """
    answer = _call(scheduler, "complete_config", config, number)
    if not isinstance(answer, Mapping):
        raise _wrong(scheduler, "complete_config", answer, "the trial's config, a dict")
    return answer


def tell(scheduler: Scheduler, hook: str, *arguments: Any) -> None:
    """Tell a scheduler something that it has no answer to.

    Raises:
        SweepError: it failed.
    """
    _call(scheduler, hook, *arguments)


def choose(scheduler: Scheduler, startable: Sequence[Trial]) -> Trial | None:
    """Return which of some trials a scheduler starts; None: none of them.

    Raises:
        SweepError: it failed, or chose another one.
    """
    chosen = _call(scheduler, "choose", startable)
    found = next((trial for trial in startable if trial.id == getattr(chosen, "id", None)), None)
    if chosen is not None and found is None:
        raise _wrong(scheduler, "choose", getattr(chosen, "id", chosen), "one of the trials that were offered")
    return found


def _wrong(scheduler: Scheduler, hook: str, answer: Any, expected: str) -> SweepError:
    name = type(scheduler).__name__
    return SweepError(f"the scheduler {name} answered {hook} with {answer!r:.100}; expected {expected}.")
