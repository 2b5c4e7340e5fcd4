"""1,500 seeded sweeps against an engine that keeps its contract and behaves as badly as it may, and a scheduler that
names trials at random; each is checked after every event."""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from searchers.base import EXHAUSTED, NOT_NOW, Searcher
from sweep.core.claims import Claim
from sweep.core.failures import CLASSES
from sweep.core.messages import (
    Ask,
    Asked,
    ClaimsChanged,
    CloneTrial,
    Continue,
    Declined,
    Discard,
    Exit,
    Exited,
    ExitKind,
    Hook,
    Kill,
    NodesChanged,
    Notify,
    PauseTrial,
    Released,
    Reported,
    ResizeTrial,
    ResumeTrial,
    Save,
    Saved,
    SaveTrial,
    Start,
    Started,
    Stop,
    StopTrial,
    Tick,
    Verdict,
    Waiting,
)
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import UNIT, Bundle, Device, Node, Resources
from sweep.core.sweep import Sweep
from sweep.core.trial import ENDED, HELD, LEGAL, Status
from sweep.engines.base import Engine
from sweep.errors import SearchError, SweepError, SweepStalled
from sweep.launch.drive import drive
from sweep.schedulers.base import Scheduler

REQUESTS = [
    Resources((Bundle(cpu=1),)),
    Resources((Bundle(cpu=2),)),
    Resources((Bundle(cpu=0.5, gpu=0.5),)),
    Resources((Bundle(gpu=1),)),
    Resources((Bundle(cpu=1), Bundle(cpu=1, gpu=0.5), Bundle(cpu=1, gpu=0.5))),
]
NODES = (
    Node("a", cpus=3, devices=(Device("g0"), Device("g1"))),
    Node("b", cpus=2, devices=(Device("g0"),)),
)


class WildScheduler(Scheduler):
    """Names random trials with random decisions."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def _decisions(self, trials, number=3):
        ids = [*trials, "nobody_00099"]
        kinds = [
            lambda i: StopTrial(i),
            lambda i: PauseTrial(i),
            lambda i: PauseTrial(i),
            lambda i: ResumeTrial(i),
            lambda i: SaveTrial(i),
            lambda i: CloneTrial(i, self.rng.choice(ids), {"x": self.rng.random()}),
            lambda i: ResizeTrial(i, self.rng.choice([*REQUESTS, Resources((Bundle(cpu=99),))])),
        ]
        return [self.rng.choice(kinds)(self.rng.choice(ids)) for _ in range(self.rng.randrange(number))]

    def on_result(self, trial, result, trials):
        self.trials = trials
        return self._decisions(trials) if self.rng.random() < 0.4 else []

    def on_trial_end(self, trial):
        return self._decisions(self.trials) if hasattr(self, "trials") and self.rng.random() < 0.3 else []

    def on_refused(self, trial, decision):
        return self._decisions({trial.id: trial}) if self.rng.random() < 0.3 else []

    def choose(self, startable):
        return self.rng.choice(startable)


class WildSearcher(Searcher):
    def __init__(self, rng, number):
        super().__init__()
        self.rng, self.number, self.ends = rng, number, Counter()
        self.is_adaptive = rng.random() < 0.5

    def suggest(self, trial_id):
        dice = self.rng.random()
        if dice < 0.1:
            return NOT_NOW
        if dice < 0.15:
            raise ValueError("a bad day")
        self.number -= 1
        return EXHAUSTED if self.number < 0 else {"x": self.rng.random()}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.ends[trial_id] += 1


SOME = (Ask.PAUSE, Ask.RESUME, Ask.CANCEL, Ask.DRAIN)  # what may be asked of one trial


class WildEngine(Engine):
    """Keeps the contract and nothing else: late, lossy, deaf to Stop, dying at any moment; and, if `is_shared`, another
    sweep takes what is free and gives it back, which this one hears of late or never."""

    def __init__(self, rng: random.Random, sweep_asks: bool, is_shared: bool = False) -> None:
        self.rng, self.t, self.n = rng, 0.0, 0
        self.queue = []
        self.live = {}  # (id, attempt) -> [seq, waits for seq]
        self.asks = sweep_asks
        self.is_paused = False
        self.nodes_now = NODES
        self.started = Counter()
        self.is_shared = is_shared
        self.wanted = None
        self.foreign = {}  # (node, device) -> share that the other sweep holds
        self.mine = {}  # (id, attempt) -> placement, from Start to Released
        self.num_declined = 0

    def others(self):
        wants = ((self.rng.choice("ab"), "gpu", "", 1), ("a", "cpu", "", UNIT)) if self.rng.random() < 0.3 else ()
        devices = tuple((node, "gpu", device, share) for (node, device), share in self.foreign.items())
        amounts = (("a", "cpu", "", UNIT // 2),) if self.foreign else ()
        return ClaimsChanged((Claim("other", 7, (*amounts, *devices), wants),) if devices or wants else ())

    def share_of_mine(self, place):
        devices = [
            (bundle.node, device, share)
            for placement in self.mine.values()
            for bundle in placement.bundles
            for device, share in bundle.devices
        ]
        return sum(round(share * UNIT) for node, device, share in devices if (node, device) == place)

    def change_others(self, wanted=()):
        """Let the other sweep take or give back something, rather what is wanted."""
        place = self.rng.choice(wanted or [(node.id, device.id) for node in NODES for device in node.devices])
        share = self.rng.choice([UNIT // 2, UNIT])
        if place in self.foreign:
            del self.foreign[place]
        elif self.share_of_mine(place) + share <= UNIT:
            self.foreign[place] = share

    def is_declined(self, trial):
        """Whether the other sweep was faster; if not, the trial holds what it was given."""
        places = list(trial.placement.placed_devices)
        if places and self.rng.random() < 0.4:
            self.change_others(places)
        self.mine[trial.id, trial.attempt] = trial.placement
        if any(self.foreign.get(place, 0) + self.share_of_mine(place) > UNIT for place in places):
            del self.mine[trial.id, trial.attempt]
            self.num_declined += 1
            self.at(0, self.others())
            self.at(0, Declined(trial.id, trial.attempt))
            return True
        return False

    def want(self, wanted):
        self.wanted = wanted

    def nodes(self):
        return self.nodes_now

    def now(self):
        return self.t

    def at(self, delay, event):
        self.n += 1
        heapq.heappush(self.queue, (self.t + delay, self.n, event))

    def post(self, event):
        self.at(0, event)

    def close(self):
        pass

    def end(self, key, exit):
        if self.live.pop(key, None) is None:
            return
        delay = self.rng.choice([0, 0, 0.5, 3])
        self.at(delay, Exited(*key, exit))
        self.at(delay + self.rng.choice([0, 0, 1, 30]), Released(*key))

    def execute(self, command):
        if isinstance(command, Start):
            key = (command.trial.id, command.trial.attempt)
            if self.is_shared and self.is_declined(command.trial):
                return
            self.started[key] += 1
            self.live[key] = [0, 0]
            if self.rng.random() < 0.05:
                self.at(0.1, Waiting(key[0], "importing"))
            if self.rng.random() < 0.06:
                self.end(key, Exit(self.rng.choice([ExitKind.LOST, ExitKind.FAILED, ExitKind.KILLED])))
            else:
                self.at(self.rng.choice([0, 0.1, 8]), Started(*key))
            return
        key = (command.trial_id, command.attempt)
        live = self.live.get(key)
        if live is None:
            return
        if isinstance(command, Kill):
            self.end(key, Exit(command.kind))
            return
        if isinstance(command, Stop) and command.seq == 0:
            if self.rng.random() < 0.1:
                self.end(key, Exit(ExitKind.STOPPED))
            return
        assert command.seq == live[1], f"{command} answers a report that does not wait ({live})"
        live[1] = 0
        if isinstance(command, Stop):
            if command.save and self.rng.random() < 0.8:
                self.at(0, Saved(*key, command.seq, f"{key[0]}/c{live[0]}.{key[1]}s"))
            if self.rng.random() < 0.9:
                kinds = [ExitKind.STOPPED] * 6 + [ExitKind.FAILED, ExitKind.LOST, ExitKind.FINISHED]
                self.end(key, Exit(self.rng.choice(kinds)))
            return  # else: it hangs, and only Kill helps
        if isinstance(command, Save):
            self.at(0, Saved(*key, command.seq, f"{key[0]}/c{live[0]}.{key[1]}s"))
        self.go(key)

    def go(self, key):
        live = self.live[key]
        dice = self.rng.random()
        if dice < 0.04:
            self.end(key, Exit(self.rng.choice(list(ExitKind)), "boom"))
        elif dice < 0.06:
            needs = Resources((Bundle(cpu=self.rng.choice([1, 2, 3, 50])),))
            self.end(key, Exit(ExitKind.NEEDS_MORE, "more", needs=needs))
        elif live[0] >= 6:
            self.end(key, Exit(ExitKind.FINISHED))
        else:
            live[0] += 1
            path = f"{key[0]}/c{live[0]}.{key[1]}" if self.rng.random() < self.checkpoints else None
            value = self.rng.choice([self.rng.random(), float("nan"), float("inf")])
            verdict = Verdict.STOP if self.rng.random() < 0.02 else Verdict.NONE
            self.at(self.rng.choice([0, 0.2, 1]), Reported(*key, live[0], {"m": value}, path, verdict))

    def next_events(self, deadline):
        if self.is_shared and self.wanted is not None and (not self.queue or self.rng.random() < 0.2):
            if not self.queue or self.rng.random() < 0.3:
                self.foreign.clear()
                return [ClaimsChanged(())]
            self.change_others()
            return [self.others()]
        while self.queue:
            if deadline is not None and deadline <= self.queue[0][0]:
                break
            self.t = max(self.t, self.queue[0][0])
            events = []
            while self.queue and self.queue[0][0] <= self.t:
                event = heapq.heappop(self.queue)[2]
                key = (getattr(event, "trial_id", None), getattr(event, "attempt", None))
                if isinstance(event, Started):
                    if key not in self.live:
                        continue
                    self.go(key)
                if isinstance(event, Reported):
                    if key not in self.live:
                        continue
                    self.live[key][1] = event.seq
                if isinstance(event, Released):
                    self.mine.pop(key, None)
                events.append(event)
                if self.rng.random() < 0.2:
                    break
            if events:
                if self.asks and self.rng.random() < 0.05:
                    what = self.rng.choice(list(Ask))
                    trial, detail = None, ""
                    if what is Ask.RETRY or (what in SOME and self.rng.random() < 0.9):
                        trial = f"00000_{self.rng.randrange(8):05d}"
                    elif what is Ask.EDIT:
                        detail = json.dumps({"plan": {"max_running": self.rng.choice([None, 1, 2])}})
                    elif what is Ask.ENQUEUE:
                        detail = json.dumps({"config": "{}"})
                    elif what not in (Ask.PAUSE, Ask.RESUME) and self.rng.random() < 0.7:
                        return self.with_those_back(events)
                    self.is_paused = (
                        what is Ask.PAUSE if what in (Ask.PAUSE, Ask.RESUME) and not trial else self.is_paused
                    )
                    events.append(Asked(what, trial, detail))
                return self.with_other_nodes(events)
        if self.is_shared and self.wanted is not None:
            self.foreign.clear()
            return [ClaimsChanged(())]
        if self.is_paused:
            self.is_paused = False
            return [Asked(Ask.RESUME)]
        if deadline is None:
            raise AssertionError("the sweep waits for nothing")
        self.t = max(self.t, deadline)
        return [Tick()]

    def with_those_back(self, events):
        return events

    def with_other_nodes(self, events):
        if self.rng.random() < 0.01:
            self.nodes_now = NODES if self.nodes_now != NODES else (NODES[0],)
            if self.nodes_now != NODES:  # what ran on a lost node is lost first
                for key in list(self.live):
                    self.live.pop(key)
                    self.mine.pop(key, None)
                    events += [Exited(*key, Exit(ExitKind.LOST)), Released(*key)]
            events.append(NodesChanged(self.nodes_now))
        return events


@dataclass
class Back:
    """Nodes come back: what the engine tells of it depends on which others are there by then."""

    nodes: set[str]


class LeavingEngine(WildEngine):
    """Nodes leave at any moment, some or all of them, and come back later, before or after what they held is released;
    some come only after the run has begun."""

    def __init__(self, rng: random.Random, sweep_asks: bool, is_shared: bool = False) -> None:
        super().__init__(rng, sweep_asks, is_shared)
        self.places = {}
        self.gone = {node.id for node in NODES if rng.random() < 0.2}
        self.tell_nodes()
        if self.gone:
            self.at(rng.choice([0.1, 50]), Back(set(self.gone)))

    def tell_nodes(self):
        self.nodes_now = tuple(node for node in NODES if node.id not in self.gone)
        self.away = tuple(node for node in NODES if node.id in self.gone)
        return NodesChanged(self.nodes_now, self.away)

    def execute(self, command):
        if isinstance(command, Start):
            key = command.trial.id, command.trial.attempt
            self.places[key] = {bundle.node for bundle in command.trial.placement.bundles}
            if self.places[key] & self.gone:  # it left in the same batch of events
                self.at(0, Exited(*key, Exit(ExitKind.NODE_LOST, "its node had left")))
                self.at(0, Released(*key))
                return
        super().execute(command)

    def with_those_back(self, events):
        told = []
        for event in events:
            if isinstance(event, Back):
                self.gone -= event.nodes
                event = self.tell_nodes()
            told.append(event)
        return told

    def with_other_nodes(self, events):
        told = self.with_those_back(events)
        if self.rng.random() < 0.04:
            told += self.leave({node.id for node in self.nodes_now if self.rng.random() < 0.6})
        return told

    def leave(self, leaving):
        lost = [key for key in self.live if self.places[key] & leaving]
        for key in lost:
            del self.live[key]
            self.at(self.rng.choice([0, 0, 3, 60]), Released(*key))
        self.gone |= leaving
        if leaving:
            self.at(self.rng.choice([0.1, 2, 50, 500]), Back(set(leaving)))
        return [*(Exited(*key, Exit(ExitKind.NODE_LOST, "its node left")) for key in lost), self.tell_nodes()]


class Checker:
    """A store that checks instead of storing; also stands for the callbacks."""

    def __init__(self, sweep, packer):
        self.sweep, self.packer = sweep, packer
        self.status = {}
        self.discarded = set()
        self.told = Counter()

    def commit(self, events, commands, changes, now):
        for trial in changes.trials.values():
            old = self.status.get(trial.id)
            assert old is None or old is trial.status or reachable(old, trial.status), (old, trial.status)
            self.status[trial.id] = trial.status
            if trial.checkpoint is not None:
                assert trial.checkpoint.path not in self.discarded, "a trial refers to a deleted checkpoint"
            if trial.is_ended:
                assert trial.pending is None
                assert trial.next_status is None
        counts = Counter(t.status for t in self.sweep.trials.values())
        assert counts == +Counter(self.sweep.counts)
        for event, some in zip(events, commands, strict=True):
            answers = [c for c in some if isinstance(c, (Continue, Save, Stop)) and c.seq]
            if isinstance(event, Reported):
                assert len(answers) <= 1, some  # none at all would hang the attempt, which next_events notices
            else:
                assert not answers
            for command in some:
                if isinstance(command, Discard):
                    assert command.checkpoint.path not in self.discarded
                    self.discarded.add(command.checkpoint.path)
                elif isinstance(command, Notify) and command.hook in (Hook.COMPLETE, Hook.ERROR):
                    self.told[command.trial.id] += 1
        self.check_capacity()

    def check_capacity(self):
        used = Counter()
        for trial in self.sweep.trials.values():
            if trial.status in HELD:
                assert trial.placement is not None
            if trial.placement is None:
                continue
            assert len(trial.placement.bundles) > 0
            for place in trial.placement.bundles:
                for device, share in place.devices:
                    used[place.node, device] += share
        for key, share in used.items():
            assert share <= 1 + 1e-9, (key, share)
        for free in self.packer._nodes.values() if not self.packer.others else ():
            assert free.cpu >= 0
            assert all(0 <= u <= UNIT for units in free.devices.values() for u in units.values())

    def discard(self, checkpoint):
        for trial in self.sweep.trials.values():
            assert trial.checkpoint is None or trial.checkpoint.path != checkpoint.path

    def notify(self, told):
        pass

    def step(self, trials, now, changed):
        pass


def reachable(old, new):
    """Whether some legal path leads from one status to another within a batch."""
    seen, todo = set(), [old]
    while todo:
        for following in LEGAL[todo.pop()]:
            if following is new:
                return True
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return False


def run_one(seed: int, engine_of: type[WildEngine] = WildEngine) -> tuple[Sweep, Exception | None]:
    rng = random.Random(seed)
    engine = engine_of(rng, sweep_asks=seed % 3 == 0, is_shared=seed % 4 == 1)
    engine.checkpoints = rng.choice([0, 0.3, 1])
    searcher = WildSearcher(rng, rng.randrange(1, 14))
    plan = Plan(
        num_trials=rng.choice([3, 10, None]),
        ask_ahead=1 if searcher.is_adaptive else 64,
        metric="m",
        mode="min",
        can_save_on_demand=rng.random() < 0.5,
        max_failures=rng.choice([0, 2, -1]),
        retry_on=tuple(rng.sample(sorted(CLASSES), rng.choice([len(CLASSES), 4]))),
        out_of_memory=rng.choice(["retry", "retry_alone", "fail"]),
        nan=rng.choice(["record", "error"]),
        trial_timeout_s=rng.choice([None, None, 0.5, 3.0]),
        fail_fast=rng.random() < 0.1,
        num_to_keep=rng.choice([None, 1, 2]),
        checkpoint_score=rng.choice(["", "m"]),
        checkpoint_frequency=rng.choice([0, 2]),
        time_budget_s=rng.choice([None, None, 20.0]),
        max_node_losses=(-1, 10, 0)[seed % 3],
    )
    packer = Packer(engine.nodes(), engine.away)
    sweep = Sweep(plan, WildScheduler(rng), packer)
    checker = Checker(sweep, packer)
    error = None
    try:
        drive(sweep, engine, searcher, checker, checker, request_of=lambda config: rng.choice(REQUESTS))
    except SweepStalled as stalled:
        raise AssertionError(f"seed {seed}: {stalled}") from stalled
    except (SweepError, SearchError) as failure:
        if isinstance(failure.__cause__, AssertionError):
            raise failure.__cause__ from failure
        error = failure
    if error is None:
        assert sweep.done
        assert not packer.holders, "capacity was leaked"
        for trial in sweep.trials.values():
            assert trial.status not in HELD
            if sweep.ending is None:
                assert trial.status in ENDED or trial.is_by_person, trial
            if engine_of is LeavingEngine and trial.reason.startswith("a trial asks for"):
                assert not Packer(NODES).could_ever_fit(trial.resources), "it was ended because a node had left"
        ended = [t.id for t in sweep.trials.values() if t.status in ENDED]
        assert all(searcher.ends[i] >= 1 for i in ended)
        retried = seed % 3 == 0
        assert all(searcher.ends[i] == checker.told[i] for i in ended)
        assert retried or all(searcher.ends[i] == 1 for i in ended), "told of an end twice"
        assert all(number == 1 for number in engine.started.values()), "an attempt was begun twice"
    sweep.num_declined = engine.num_declined
    return sweep, error


@pytest.mark.parametrize("block", [*range(3), *(pytest.param(i, marks=pytest.mark.slow) for i in range(3, 15))])
def test_a_hundred_wild_sweeps_end_clean(block):
    ended = errors = 0
    for seed in range(block * 100, block * 100 + 100):
        sweep, error = run_one(seed)
        errors += error is not None
        ended += sum(t.status in ENDED for t in sweep.trials.values())
    assert ended > 100
    assert errors < 20  # three bad suggestions in a row happen by chance; nothing else may end a sweep


@pytest.mark.parametrize("block", [0, *[pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15)]])
def test_a_hundred_sweeps_end_clean_whose_nodes_leave_and_come_back(block):
    ended = lost = errors = 0
    for seed in range(block * 100, block * 100 + 100):
        sweep, error = run_one(seed, LeavingEngine)
        errors += error is not None
        ended += sum(t.status in ENDED for t in sweep.trials.values())
        lost += sum(t.failure == "node_lost" or t.node_losses > 0 for t in sweep.trials.values())
    assert ended > 100
    assert lost > 10
    assert errors < 20


def test_an_engine_that_runs_everything_ends_every_trial():
    """The fuzz itself is not vacuous: across seeds every status and most decisions occur."""
    seen = Counter()
    for seed in range(60):
        sweep, _ = run_one(seed)
        seen.update(t.status for t in sweep.trials.values())
        seen["attempts"] += sum(t.attempt for t in sweep.trials.values())
        seen["declined"] += sweep.num_declined
        seen["checkpoints"] += sum(t.checkpoint is not None for t in sweep.trials.values())
    assert seen[Status.TERMINATED] > 100
    assert seen[Status.ERROR] > 10
    assert seen["attempts"] > 300
    assert seen["checkpoints"] > 50
    assert seen["declined"] > 10
