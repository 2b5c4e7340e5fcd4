"""A sweep that is cut off at any event and brought back from its record ends as if nothing had happened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from searchers import BasicVariantGenerator, ConcurrencyLimiter, uniform
from searchers.base import Searcher
from sweep.core.messages import StopTrial
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Bundle, Node, Resources
from sweep.core.sweep import Sweep
from sweep.core.trial import ENDED, Status
from sweep.engines.simulator import Point, Simulator
from sweep.launch.drive import drive
from sweep.record.facts import read_facts
from sweep.record.journal import Journal
from sweep.record.resume import load, retell
from sweep.schedulers import ASHAScheduler, FIFOScheduler, Scheduler

SPACE = {"x": uniform(0, 1)}
NODES = (Node("local", cpus=3),)


class PowerCut(Exception):
    """Stands for SIGKILL: nothing after it happens."""


class Quiet:
    def notify(self, told):
        pass

    def step(self, trials, now, changed):
        pass


class CutJournal(Journal):
    """Ends the world before commit number `cut`, or right after it."""

    def __init__(self, database, cut=None, is_after=False):
        super().__init__(database)
        self.cut, self.is_after = cut, is_after

    def commit(self, events, commands, changes, now):
        self.cut = None if self.cut is None else self.cut - 1
        if self.cut == 0 and not self.is_after:
            raise PowerCut
        super().commit(events, commands, changes, now)
        for trial in changes.trials.values():  # checkpoints of the simulator exist only by name: make the directories
            if trial.checkpoint is not None:
                (self.database.parent / trial.checkpoint.path).mkdir(parents=True, exist_ok=True)
        if self.cut == 0:
            raise PowerCut


def curve(config, done):
    for step in range(done, 4):
        loss = (config["x"] - 0.3) ** 2 + 1 / (step + 1)
        yield Point(1.0 + config["x"], {"loss": loss}, has_checkpoint=step % 2 == 1)


def go(root: Path, *, num=8, searcher=None, scheduler=None, cut=None, is_after=False, plan=None, crash=None):
    """Run (or continue) a sweep in virtual time; returns it."""
    searcher = searcher or BasicVariantGenerator(random_state=7)
    searcher.set_search_properties("loss", "min", SPACE, num_samples=num, seed=7)
    scheduler = scheduler or FIFOScheduler()
    if not scheduler.is_stateless:
        scheduler.set_search_properties("loss", "min", seed=7)
    database = root / "sweep.db"
    exists = database.exists()
    journal = CutJournal(database, cut, is_after)
    try:
        loaded = load(database) if exists else None
        if exists:
            retell(database, scheduler, searcher)
        plan = plan or Plan(
            prefix="abcde",
            num_trials=num,
            ask_ahead=1 if searcher.is_adaptive else 4,
            metric="loss",
            mode="min",
            num_to_keep=1,
        )
        sweep = Sweep(
            plan,
            scheduler,
            Packer(NODES),
            loaded.trials if loaded else (),
            kept=loaded.kept if loaded else None,
            seq=loaded.seq if loaded else 0,
        )
        engine = Simulator(crash or curve, NODES, start_s=0.1, stop_s=0.1, start_at=loaded.at if loaded else 0.0)
        drive(sweep, engine, searcher, Quiet(), journal, request_of=lambda config: Resources((Bundle(cpu=1.0),)))
        return sweep
    finally:
        journal.close()


def told_again(root: Path, *, num=8, searcher=None, scheduler=None):
    """Tell policies what a record holds; returns the searcher."""
    searcher = searcher or BasicVariantGenerator(random_state=7)
    searcher.set_search_properties("loss", "min", SPACE, num_samples=num, seed=7)
    retell(root / "sweep.db", scheduler or FIFOScheduler(), searcher)
    return searcher


def fresh(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def configs_of(sweep):
    return [dict(t.config) for t in sweep.trials.values()]


@pytest.mark.parametrize("is_after", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("limit", [None, pytest.param(2, marks=pytest.mark.slow)], ids=["random", "limited"])
def test_a_sweep_cut_at_any_commit_ends_as_the_uninterrupted_one(tmp_path, limit, is_after):
    def searcher():
        random = BasicVariantGenerator(random_state=7)
        return ConcurrencyLimiter(random, limit) if limit else random

    whole = go(fresh(tmp_path, "whole"), searcher=searcher(), num=5)
    cut = 0
    while True:
        cut += 1
        root = fresh(tmp_path, f"cut{cut}")
        try:
            go(root, searcher=searcher(), cut=cut, is_after=is_after, num=5)
            break
        except PowerCut:
            pass
        ended = {t.id: (t.status, t.attempt) for t in load(root / "sweep.db").trials if t.status in ENDED}
        sweep = go(root, searcher=searcher(), num=5)
        assert configs_of(sweep) == configs_of(whole), f"cut at commit {cut}"
        assert all(t.status is Status.TERMINATED for t in sweep.trials.values())
        for trial_id, before in ended.items():
            trial = sweep.trials[trial_id]
            assert (trial.status, trial.attempt) == before, "a trial ran again after its committed end"
        losses = {t.id: t.best_result["loss"] for t in sweep.trials.values()}
        assert losses == {t.id: t.best_result["loss"] for t in whole.trials.values()}
    assert cut > 20


def test_cut_again_and_again_it_still_ends(tmp_path):
    cuts = 0
    while True:
        try:
            sweep = go(tmp_path, cut=9, scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2))
            break
        except PowerCut:
            cuts += 1
            assert cuts < 60, "no progress is made"
    assert cuts > 3
    assert len(sweep.trials) == 8
    assert all(t.status is Status.TERMINATED for t in sweep.trials.values())


class Listening(Searcher):
    """Writes down everything that it is told."""

    is_adaptive = False

    def __init__(self, inner):
        super().__init__()
        self.inner, self.heard = inner, []

    def set_search_properties(self, *args, **kw):
        return self.inner.set_search_properties(*args, **kw)

    def suggest(self, trial_id):
        config = self.inner.suggest(trial_id)
        if isinstance(config, dict):
            self.heard.append(("suggest", trial_id, dict(config)))
        return config

    def retell(self, trial_id, config, state):
        self.inner.retell(trial_id, config, state)
        self.heard.append(("suggest", trial_id, dict(config)))

    def on_trial_result(self, trial_id, result):
        self.heard.append(("result", trial_id, dict(result)))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.heard.append(("complete", trial_id, None if result is None else dict(result), error))


@pytest.mark.parametrize("cut", [5, 17, 30])
def test_a_searcher_hears_the_record_as_it_heard_the_run(tmp_path, cut):
    def failing(config, done):
        for point in curve(config, done):
            if config["x"] > 0.8:
                raise ValueError("too large")
            yield point

    first = Listening(BasicVariantGenerator(random_state=7))
    with pytest.raises(PowerCut):
        go(tmp_path, searcher=first, cut=cut, is_after=True, crash=failing)
    second = told_again(tmp_path, searcher=Listening(BasicVariantGenerator(random_state=7)))
    told = [item for item in first.heard if item[0] != "suggest"]
    assert [item for item in second.heard if item[0] != "suggest"][: len(told)] == told
    told = [item for item in first.heard if item[0] == "suggest"]
    retold = [item for item in second.heard if item[0] == "suggest"]
    assert retold == told[: len(retold)]
    assert len(told) - len(retold) <= 4  # asked, but not committed


def test_a_repeat_after_a_restart_is_recorded_and_not_judged_again(tmp_path):
    with pytest.raises(PowerCut):
        go(tmp_path, num=1, cut=6, is_after=True)
    sweep = go(tmp_path, num=1)
    (trial,) = sweep.trials.values()
    assert trial.attempt == 2
    db = sqlite3.connect(tmp_path / "sweep.db")
    reports = db.execute("SELECT count(*) FROM result").fetchone()[0]
    assert reports > 4
    assert trial.judged_to == 4


def test_checkpoints_that_nothing_refers_to_are_found(tmp_path):
    sweep = go(tmp_path, num=2)
    caused = [row for told in read_facts(tmp_path / "sweep.db") for row in told.caused or ()]
    discarded = next(row[1] for row in caused if row[0] == "Discard")  # and its driver killed before it was deleted
    strays = {"abcde_00001/checkpoint_000099", "abcde_00001/tmp-1", discarded}
    for path in strays:
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    loaded = load(tmp_path / "sweep.db")
    assert strays <= set(loaded.strays)
    assert not {trial.checkpoint.path for trial in sweep.trials.values()} & set(loaded.strays)
    assert discarded not in [kept.ref.path for some in loaded.kept.values() for kept in some]


def test_a_checkpoint_that_is_gone_is_named_and_the_trial_continues_from_the_one_before(tmp_path):
    with pytest.raises(PowerCut):
        go(tmp_path, num=1, cut=6, is_after=True)
    trial = load(tmp_path / "sweep.db").trials[0]
    assert trial.checkpoint is not None
    (tmp_path / trial.checkpoint.path).rmdir()
    loaded = load(tmp_path / "sweep.db")
    assert loaded.missing == [trial.checkpoint.path]
    assert loaded.trials[0].checkpoint is None


class Listener(Scheduler):
    """Remembers what machines it was told of and what it was told between; and the trials at results."""

    def __init__(self):
        self.heard = []

    def on_nodes_changed(self, nodes):
        self.heard.append(("nodes", tuple(nodes)))
        return [StopTrial("abcde_00000")]  # its answers are ignored

    def on_trial_add(self, trial):
        self.heard.append(("add", trial.id[-5:]))

    def on_result(self, trial, result, trials):
        place = trial.placement.bundles[0].node if trial.placement is not None else None
        self.heard.append(("result", trial.id[-5:], trial.resources, place))
        return ()

    def on_trial_end(self, trial):
        self.heard.append(("end", trial.id[-5:], trial.placement is not None))
        return ()


@pytest.mark.parametrize("is_stateless", [False, True], ids=["results too", "without results"])
def test_a_scheduler_is_told_of_the_machines_again_in_their_place(tmp_path, is_stateless):
    def listener():
        scheduler = Listener()
        scheduler.is_stateless = is_stateless
        return scheduler

    first = listener()
    first.on_nodes_changed = lambda nodes: first.heard.append(("nodes", tuple(nodes)))  # a live one is obeyed
    with pytest.raises(PowerCut):
        go(tmp_path, num=2, scheduler=first, cut=9, is_after=True)
    heard = [call for call in first.heard if not (is_stateless and call[0] == "result")]
    assert ("nodes", NODES) in heard
    again = listener()
    told_again(tmp_path, scheduler=again)
    assert again.heard == heard
