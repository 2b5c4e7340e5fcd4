"""A sweep with a scripted scheduler, told one event at a time; what it commands is shown as short lines to compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweep.core.messages import (
    Ask,
    Asked,
    Command,
    Continue,
    Decision,
    Discard,
    Event,
    Exit,
    Exited,
    ExitKind,
    Fail,
    Kill,
    NodesChanged,
    Notify,
    PlanChanged,
    Released,
    Reported,
    ResumeTrial,
    Save,
    Saved,
    Start,
    Started,
    Stop,
    Suggest,
    Suggested,
    Tick,
    Verdict,
)
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Bundle, Node, Resources
from sweep.core.retention import Kept
from sweep.core.sweep import Sweep
from sweep.core.trial import Status, Trial
from sweep.schedulers.base import Scheduler


def tid(number: int) -> str:
    """Return the id of trial `number`."""
    return f"00000_{number:05d}"


def cpus(amount: float) -> Resources:
    """Return a request of CPUs alone."""
    return Resources((Bundle(cpu=amount),))


def line(command: Command) -> str:
    """Show a command: `start 0.1` is attempt 1 of trial 0, `#3` answers its third report."""
    match command:
        case Suggest(trial_id):
            return f"suggest {int(trial_id[-5:])}"
        case Start(trial):
            return f"start {trial.number}.{trial.attempt}"
        case Continue(trial_id, attempt, seq):
            return f"continue {int(trial_id[-5:])}.{attempt}#{seq}"
        case Save(trial_id, attempt, seq):
            return f"save {int(trial_id[-5:])}.{attempt}#{seq}"
        case Stop(trial_id, attempt, seq, save):
            return f"stop {int(trial_id[-5:])}.{attempt}" + (f"#{seq}" if seq else "") + (" saving" if save else "")
        case Kill(trial_id, attempt):
            return f"kill {int(trial_id[-5:])}.{attempt}"
        case Discard(checkpoint):
            return f"discard {checkpoint.path}"
        case Notify(hook, trial):
            return f"tell {hook.value.removeprefix('trial_')} {trial.number}"
        case Fail(error):
            return f"fail {type(error).__name__}"


class Scripted(Scheduler):
    """Answers what a test put into `next`, `at_end`, `at_refusal`; remembers what it heard; holds back `hold`."""

    def __init__(self) -> None:
        self.next: list[Decision] = []
        self.at_end: list[Decision] = []
        self.at_refusal: list[Decision] = []
        self.when_idle: list[Decision] | None = None
        self.heard: list[tuple[Any, ...]] = []
        self.refused: list[tuple[str, str]] = []
        self.hold: set[str] = set()

    def on_trial_add(self, trial: Trial) -> None:
        self.heard.append(("add", trial.number))

    def on_result(self, trial: Trial, result: Mapping[str, Any], trials: Mapping[str, Trial]) -> Sequence[Decision]:
        self.heard.append(("result", trial.number, trial.count))
        answer, self.next = self.next, []
        return answer

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        self.heard.append(("end", trial.number, trial.status.value))
        answer, self.at_end = self.at_end, []
        return answer

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        self.refused.append((trial.id, type(decision).__name__))
        answer, self.at_refusal = self.at_refusal, []
        return answer

    def choose(self, startable: Sequence[Trial]) -> Trial | None:
        return next((trial for trial in startable if trial.id not in self.hold), None)

    def on_idle(self, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        if self.when_idle is not None:
            return self.when_idle
        return [ResumeTrial(t.id) for t in trials.values() if t.status is Status.PAUSED and not t.is_by_person]


class World:
    """A sweep under test; every method tells one fact and returns the lines of all commands that it caused."""

    def __init__(
        self,
        *,
        num_cpus: float = 8.0,
        nodes: tuple[Node, ...] = (),
        trials: Iterable[Trial] = (),
        kept: Mapping[str, Iterable[Kept]] | None = None,
        scheduler: Scheduler | None = None,
        **plan: Any,
    ) -> None:
        self.scheduler: Any = scheduler or Scripted()
        self.nodes = nodes or (Node("n", cpus=num_cpus),)
        self.packer = Packer()
        required = (plan["metric"],) if "metric" in plan else ()
        self.plan = Plan(**{"num_trials": 1, "ask_ahead": 1, "metric": "m", "required": required, **plan})
        self.sweep = Sweep(self.plan, self.scheduler, self.packer, trials, kept=kept)
        self.now = 0.0
        self.commands: list[Command] = []
        self.failure: Exception | None = None
        self.seqs: Counter[tuple[int, int]] = Counter()

    def tell(self, *events: Event) -> list[str]:
        """Handle events and return the lines of all their commands."""
        self.commands = [command for event in events for command in self.sweep.handle(event, self.now)]
        for command in self.commands:
            if isinstance(command, Fail):
                self.failure = command.error
        return [line(command) for command in self.commands]

    def __getitem__(self, number: int) -> Trial:
        return self.sweep.trials[tid(number)]

    def open(self) -> list[str]:
        return self.tell(PlanChanged(self.plan), NodesChanged(self.nodes))

    def suggest(self, number: int, request: Resources | float = 1.0, **config: Any) -> list[str]:
        resources = request if isinstance(request, Resources) else cpus(request)
        return self.tell(Suggested(tid(number), config or {"x": number}, resources))

    def answer(self, number: int, signal: Any) -> list[str]:
        return self.tell(Suggested(tid(number), signal))

    def started(self, number: int) -> list[str]:
        return self.tell(Started(tid(number), self[number].attempt))

    def report(
        self,
        number: int,
        checkpoint: str | None = None,
        *,
        verdict: Verdict = Verdict.NONE,
        decisions: list[Decision] | None = None,
        **metrics: Any,
    ) -> list[str]:
        """Report to a scheduler that answers with `decisions`; without them, with what `next` holds."""
        if decisions is not None:
            self.scheduler.next = decisions
        attempt = self[number].attempt
        self.seqs[number, attempt] += 1
        return self.tell(
            Reported(tid(number), attempt, self.seqs[number, attempt], metrics or {"m": 1.0}, checkpoint, verdict)
        )

    def saved(self, number: int, path: str) -> list[str]:
        attempt = self[number].attempt
        return self.tell(Saved(tid(number), attempt, self.seqs[number, attempt], path))

    def exited(self, number: int, kind: ExitKind = ExitKind.STOPPED, error: str = "") -> list[str]:
        return self.tell(Exited(tid(number), self[number].attempt, Exit(kind, error)))

    def released(self, number: int) -> list[str]:
        return self.tell(Released(tid(number), self[number].attempt))

    def ended(self, number: int, kind: ExitKind = ExitKind.STOPPED, error: str = "") -> list[str]:
        """Exit and be released."""
        return self.exited(number, kind, error) + self.released(number)

    def ask(self, what: Ask, number: int | None = None) -> list[str]:
        return self.tell(Asked(what, None if number is None else tid(number)))

    def wait(self, seconds: float) -> list[str]:
        return self.at(self.now + seconds)

    def at(self, now: float) -> list[str]:
        self.now = now
        return self.tell(Tick())

    def run(self, number: int, request: Resources | float = 1.0, **config: Any) -> None:
        """Bring a suggested trial to RUNNING."""
        self.suggest(number, request, **config)
        self.started(number)
        assert self[number].status is Status.RUNNING


def opened(**plan: Any) -> World:
    """Return a world that has been told its plan and its nodes; the arguments are those of `World`."""
    world = World(**plan)
    world.open()
    return world


def running(count: int = 1, /, **plan: Any) -> World:
    """Return an opened world whose first `count` trials run; it asks for no more and for all at once unless told."""
    world = opened(**{"num_trials": count, "ask_ahead": count, **plan})
    for number in range(count):
        world.run(number)
    return world
