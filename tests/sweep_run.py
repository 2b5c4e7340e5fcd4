"""What is needed to drive a sweep without files: a record in memory, nobody who listens, configs given in advance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from searchers.base import EXHAUSTED, Config, Searcher, Signal
from sweep.core.messages import Changes, Command, Event, Notify
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Bundle, Node, Resources
from sweep.core.sweep import Sweep
from sweep.core.trial import CheckpointRef, Trial
from sweep.engines.simulator import Simulator
from sweep.launch.drive import drive
from sweep.schedulers.base import Scheduler


class Nobody:
    """A store and observers that keep everything in lists."""

    def __init__(self) -> None:
        self.commits: list[tuple[list[Event], list[list[Command]], Changes, float]] = []
        self.discarded: list[CheckpointRef] = []
        self.told: list[Notify] = []
        self.steps: list[list[str]] = []

    def commit(
        self, events: Sequence[Event], commands: Sequence[Sequence[Command]], changes: Changes, now: float
    ) -> None:
        self.commits.append((list(events), [list(some) for some in commands], changes, now))

    def discard(self, checkpoint: CheckpointRef) -> None:
        self.discarded.append(checkpoint)

    def notify(self, told: Sequence[Notify]) -> None:
        self.told += told

    def step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        self.steps.append(list(changed))


class Given(Searcher):
    """Answers a list of configs, signals or exceptions in order, then EXHAUSTED; remembers what it hears."""

    is_adaptive = False

    def __init__(self, answers: Iterable[Any]) -> None:
        super().__init__()
        self.answers = list(answers)
        self.heard: list[tuple[Any, ...]] = []

    def suggest(self, trial_id: str) -> Config | Signal:
        self.heard.append(("asked", trial_id[-5:]))
        answer = self.answers.pop(0) if self.answers else EXHAUSTED
        if isinstance(answer, Exception):
            raise answer
        return answer

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self.heard.append(("result", trial_id[-5:], result.get("m")))

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        self.heard.append(("complete", trial_id[-5:], None if result is None else result.get("m"), error))


def given_configs(configs: Iterable[Any]) -> Given:
    """Return a searcher that answers `configs` in order."""
    return Given(configs)


def new_sweep(scheduler: Scheduler, **plan: Any) -> Sweep:
    """Return a sweep on an empty inventory; the first `NodesChanged` fills it."""
    return Sweep(Plan(**{"metric": "m", **plan}), scheduler, Packer())


def in_virtual_time(
    sweep: Sweep, curve: Any, configs: Searcher | Iterable[Any], *, cpus: float = 1.0, has_state: bool = False
) -> Nobody:
    """Drive a sweep of trials of one CPU to its end on a simulated node; returns what was recorded and told."""
    kept = Nobody()
    engine = Simulator(curve, (Node("n", cpus),), has_state=has_state)
    searcher = configs if isinstance(configs, Searcher) else given_configs(configs)
    drive(sweep, engine, searcher, kept, kept, request_of=lambda _: Resources((Bundle(cpu=1),)))
    assert sweep.done
    assert all(trial.is_ended for trial in sweep.trials.values())
    return kept
