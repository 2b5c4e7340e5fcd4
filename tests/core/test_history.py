"""The fold of recorded facts, compared with what the state machine itself says of its trials."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sweep.core.history import Attempt, Fact, History, When
from sweep.core.messages import ExitKind
from sweep.core.packing import Packer
from sweep.core.sweep import Sweep
from sweep.core.trial import ENDED, Status
from sweep.errors import SweepError
from sweep.launch.drive import drive
from sweep.record.codec import command_rows
from sweep.record.encoding import decode, encode
from sweep.record.facts import read_facts
from sweep.record.journal import Journal


def _fuzz():
    """Import the fuzz of the state machine: here its world is looked at with other eyes."""
    spec = importlib.util.spec_from_file_location("fuzz_of_history", Path(__file__).with_name("test_fuzz.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fuzz = _fuzz()
# A trial that is resumed, or started anew by another run, is seen to be at its next start.
_SILENT = {Status.PAUSED, Status.PENDING}


class Killed(BaseException):
    """The driver dies."""


class Follower(fuzz.Checker):
    """Folds what a sweep commits, and compares after every batch.

    Args:
        history: of the runs before.
        kill_at: of which commit the driver dies, afterwards.
        journal: what is committed is recorded there, too.
    """

    def __init__(self, sweep, packer, history=None, kill_at=0, journal=None):
        super().__init__(sweep, packer)
        self.history = history or History()
        self.silent = _SILENT if history is None else _SILENT | ENDED
        self.kill_at, self.journal = kill_at, journal
        self.compared = Counter()
        self.configs = {}

    def commit(self, events, commands, changes, now):
        super().commit(events, commands, changes, now)
        metrics = {seq: dict(result) for seq, result in changes.results.items()}
        for event, caused in zip(events, commands, strict=True):
            seq = self.history.seq + 1
            rows = command_rows(event, caused, self.configs)
            rows = None if rows is None else decode(encode(rows))
            self.history.add(Fact(seq, now, 0.0, event, rows, metrics.get(seq)))
        if self.journal is not None:
            self.journal.commit(events, commands, changes, now)
        self.compare()
        self.kill_at -= 1
        if not self.kill_at:
            raise Killed

    def compare(self):
        told, real = self.history.trials, self.sweep.trials
        assert list(told) == list(real)
        for trial_id, trial in real.items():
            one = told[trial_id]
            self.compared[trial.status] += 1
            is_silent = trial.status is Status.PENDING and one.status in self.silent
            assert one.status is trial.status or is_silent, (one, trial)
            names = ["attempt", "placement", "started_from", "last_result"]
            if trial.is_held:
                names += ["checkpoint", "config", "count"]
                names += ["resources"] if trial.attempt > 1 else []
            for name in names:
                assert getattr(one, name) == getattr(trial, name), (name, one, trial)


@pytest.fixture
def followers(monkeypatch):
    made = []
    options = {}

    def make(sweep, packer):
        made.append(Follower(sweep, packer, **options))
        return made[-1]

    make.options, make.made = options, made
    monkeypatch.setattr(fuzz, "Checker", make)
    return make


@pytest.mark.parametrize("engine", [fuzz.WildEngine, fuzz.LeavingEngine])
@pytest.mark.parametrize("block", [0, *[pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15)]])
def test_what_the_facts_tell_is_what_the_sweep_says(followers, engine, block):
    for seed in range(block * 100, block * 100 + 100):
        fuzz.run_one(seed, engine)
    compared = sum((follower.compared for follower in followers.made), Counter())
    assert all(compared[status] > 100 for status in Status), compared


def test_it_is_also_after_a_driver_was_killed_and_another_went_on(followers):
    num_lost = 0
    for seed in range(40):
        followers.options["kill_at"] = seed % 23 + 2
        try:
            fuzz.run_one(seed, fuzz.LeavingEngine)
        except Killed:
            num_lost += going_on(followers.made[-1], seed)
    assert num_lost > 10


def going_on(before, seed):
    """Drive the sweep of a killed driver to its end; returns how many attempts were lost with it."""
    rng = random.Random(seed)
    engine = fuzz.WildEngine(rng, sweep_asks=False)
    engine.checkpoints = 0.3
    packer = Packer(engine.nodes())
    trials = before.sweep.trials.values()
    sweep = Sweep(before.sweep.plan, fuzz.WildScheduler(rng), packer, trials, seq=before.sweep.seq)
    searcher = fuzz.WildSearcher(rng, 3)
    follower = Follower(sweep, packer, before.history)
    follower.configs = before.configs
    with suppress(SweepError):  # three bad suggestions in a row
        drive(sweep, engine, searcher, follower, follower, request_of=lambda config: rng.choice(fuzz.REQUESTS))
    return sum(attempt.is_lost for attempt in before.history.attempts)


def test_attempts_say_when_they_began_and_ended_and_how(followers):
    outcomes = Counter()
    for seed in range(80):
        fuzz.run_one(seed)
        history = followers.made[-1].history
        for trial in history.trials.values():
            attempts = [attempt for attempt in history.attempts if attempt.trial_id == trial.id]
            assert [attempt.number for attempt in attempts] == list(range(1, trial.attempt + 1))
            are_released = [attempt.released is not None for attempt in attempts]
            assert are_released == sorted(are_released, reverse=True)  # also if the next began before, elsewhere
        for attempt in history.attempts:
            times = [attempt.granted, attempt.started, attempt.exited, attempt.released]
            times = [time.at for time in times if time is not None]
            assert times == sorted(times)
            assert (attempt.exit is None) == (attempt.after is None)
            assert attempt.source is None or attempt.source.owner != attempt.trial_id
            outcomes[attempt.exit and attempt.exit.kind] += 1
            outcomes["clones"] += attempt.source is not None
            outcomes["reports"] += history.trials[attempt.trial_id].last_result is not None
    assert min(outcomes[kind] for kind in (ExitKind.FINISHED, ExitKind.LOST, "clones", "reports")) > 5, outcomes


@pytest.mark.parametrize("seed", range(8))
def test_the_record_tells_the_same(followers, tmp_path, seed):
    with closing(Journal(tmp_path / "sweep.db")) as journal:
        followers.options["journal"] = journal
        fuzz.run_one(seed)
    assert dump(History.of(read_facts(tmp_path / "sweep.db"))) == dump(followers.made[-1].history)


def dump(history):
    """Return what a history says, but for the clock's times; results as texts, for NaN is not NaN."""
    trials = [trial._replace(last_result=repr(trial.last_result)) for trial in history.trials.values()]
    attempts = [
        {
            name: value.at if isinstance(value, When) else repr(value) if name in ("first", "last") else value
            for name in Attempt.__dataclass_fields__
            if (value := getattr(attempt, name)) is not attempt.cause
        }
        | {"cause": type(attempt.cause)}
        for attempt in history.attempts
    ]
    created = {trial_id: time.at for trial_id, time in history.created.items()}
    return trials, attempts, created, history.plan, history.nodes, history.seq
