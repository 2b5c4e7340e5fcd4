"""How busy a cluster is kept in virtual time: when its nodes are taken away and given back, and by a slow searcher.

The first sweep runs on nodes that are away for 30 % of the time, without notice, and that stay half an hour or more. A
trial that was lost starts again from its last checkpoint. No sweep could end before the nodes that were there have
computed as much as the trials did, without what was lost: that is the bound of its makespan.

The second one has 10,000 workers and TPE. What a suggestion takes is measured first, beside as many open and ended
trials as there will be. Then the clock goes on by so much at each, and nothing else is decided meanwhile. Busy is the
share of the workers' time that is spent in trials, until the last one starts.

python benchmarks/busy.py           200 nodes, 10,000 workers: some minutes
python benchmarks/busy.py --short   20 nodes, 500 workers: seconds
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sweep
from searchers import OptunaSearch, RandomSearch
from sweep.core.messages import Start
from sweep.core.resources import Node
from sweep.engines.base import EngineCommand
from sweep.engines.simulator import Point, Simulator
from sweep.launch.build import build
from sweep.launch.spec import RunSpec
from sweep.simulation import virtual
from sweep.worker.trainable import PreparedTrainable

Row = tuple[str, str, str, str]  # what, measured, promised, beside it
Absences = dict[str, list[tuple[float, float]]]

MINUTE, HOUR = 60.0, 3600.0
SHARE_AWAY = 0.3


def absences(number: int, *, until: float, seed: int = 0) -> Absences:
    """Return when each of some nodes is away: 30 % of the time, and never within half an hour after it came."""
    draw, found = random.Random(seed), Absences()
    for index in range(number):
        at = -draw.uniform(0, 2 * HOUR)  # they were there before the sweep
        spans = found[f"n{index:03d}"] = []
        while at < until:
            stay = HOUR / 2 + draw.expovariate(1 / HOUR)
            away = draw.expovariate((1 - SHARE_AWAY) / SHARE_AWAY / (1.5 * HOUR))
            spans += [(at + stay, at + stay + away)] if at + stay > 0 else []
            at += stay + away
    return found


def there_s(spans: Sequence[tuple[float, float]], until: float) -> float:
    """Return for how long a node is there until then."""
    return until - sum(max(0.0, min(end, until) - begin) for begin, end in spans)


def training(config: Mapping[str, Any], done: int) -> Iterator[Point]:
    """One to four hours with a checkpoint every five minutes."""
    for step in range(done, int(config["steps"])):
        yield Point(5 * MINUTE, {"loss": 1 / (step + 1)}, has_checkpoint=True)


def preempted(num_nodes: int, num_trials: int) -> dict[str, float]:
    """Return makespan, bound and what was lost of trials of one to four hours on nodes that come and go."""
    gone = absences(num_nodes, until=1000 * HOUR)
    found = sweep.simulate(
        training,
        config={"steps": sweep.randint(12, 49)},
        metric="loss",
        mode="min",
        num_samples=num_trials,
        nodes=[Node(name, 1.0) for name in gone],
        absences=gone,
        start_s=30.0,
    )
    work = sum(trial.last_result["time_total_s"] for trial in found.trials if trial.last_result)
    low, high = 0.0, found.seconds
    while high - low > 1.0:
        middle = (low + high) / 2
        is_enough = sum(there_s(spans, middle) for spans in gone.values()) >= work
        low, high = (low, middle) if is_enough else (middle, high)
    there = sum(there_s(spans, found.seconds) for spans in gone.values())
    return {
        "trials": sum(trial.status == "TERMINATED" for trial in found.trials),
        "losses": sum(trial.attempt - 1 for trial in found.trials),
        "away": 1 - there / (num_nodes * found.seconds),
        "makespan": found.seconds,
        "bound": high,
        "ratio": found.seconds / high,
    }


class Late(Simulator):
    """A simulator in which time passes while the searcher thinks: trials begin, but their reports wait."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._begun: dict[str, float] = {}

    def pass_by(self, seconds: float) -> None:
        """Let time go on, without anything else."""
        self._now += seconds

    def execute(self, command: EngineCommand) -> None:
        if isinstance(command, Start):
            self._begun[command.trial.id] = self._now
        super().execute(command)

    def _next(self, attempt: Any) -> None:
        now = self._now
        self._now = self._begun.pop(attempt.trial.id, now)
        super()._next(attempt)
        self._now = now


class Slow(RandomSearch):
    """Draws, each of which takes as long as a suggestion of TPE does; asked as that is, when a worker is free."""

    is_adaptive = True

    def __init__(self, cost_s: float) -> None:
        super().__init__()
        self.engine: Late | None = None
        self._cost_s = cost_s

    def suggest(self, trial_id: str) -> Any:
        assert self.engine is not None
        self.engine.pass_by(self._cost_s)
        return super().suggest(trial_id)


SPACE = {"x": sweep.uniform(0, 10), "y": sweep.uniform(0, 1), "z": sweep.choice(["a", "b", "c"])}


def tpe_s(num_open: int, num_ended: int, window: int) -> float:
    """Return the CPU time of hearing of a trial's end and suggesting another, beside so many of them."""
    search, draw = OptunaSearch(SPACE, "loss", "min", window=window), random.Random(0)

    def point() -> dict[str, Any]:
        return {"x": draw.uniform(0, 10), "y": draw.random(), "z": draw.choice("abc")}

    for _ in range(num_ended):
        search.observe(point(), {"loss": draw.random()})
    for number in range(num_open):
        search.retell(f"t{number}", point(), None)
    search.suggest("first")  # which looks at all of them once
    began, times = time.process_time(), 20
    for number in range(times):
        search.on_trial_complete(f"t{number}", {"loss": draw.random()})
        search.suggest(f"new{number}")
    return (time.process_time() - began) / times


def minutes(config: Mapping[str, Any], done: int) -> Iterator[Point]:
    """Ten minutes, with a report at half-time."""
    for step in range(done + 1, 3):
        yield Point(5 * MINUTE, {"loss": (config["x"] - 3) ** 2 + config["y"] / step})


def suggested(num_workers: int, waves: int, cost_s: float) -> dict[str, float]:
    """Return how busy workers are that wait for a searcher, until the last trial starts; each takes ten minutes."""
    nodes = tuple(Node(f"n{index:04d}", 10.0) for index in range(num_workers // 10))
    searcher, engine = Slow(cost_s), Late(minutes, nodes)
    searcher.engine = engine
    options = {"config": SPACE, "metric": "loss", "mode": "min", "num_samples": waves * num_workers}
    spec = RunSpec(minutes, search_alg=searcher, **options)
    built = build(spec, PreparedTrainable("minutes", "function", b""), nodes, seed=0)
    found = virtual.drive_in_virtual_time(built, engine)
    ends = [arrival.at for arrival in found.arrivals if arrival.metrics["training_iteration"] == 2]
    assert len(ends) == waves * num_workers
    until = max(ends) - 10 * MINUTE
    spent = sum(min(end, until) - (end - 10 * MINUTE) for end in ends)
    return {"busy": spent / (until * num_workers), "until": until}


def rows(num_nodes: int, num_trials: int, num_workers: int, waves: int, window: int) -> Iterator[Row]:
    """Yield what was measured, what is promised and what stands beside it, a line for each figure."""
    found = preempted(num_nodes, num_trials)
    beside = f"{found['makespan'] / HOUR:.1f} h over {found['bound'] / HOUR:.1f} h; {num_trials:,} trials of 1 to 4 h"
    what = f"{num_nodes} nodes, {found['away']:.0%} of the time away"
    yield what, f"{found['ratio']:.3f}", "<= 1.25", f"{beside}, {found['losses']:.0f} times lost"
    cost_s = tpe_s(num_workers, waves * num_workers, window)
    busy = suggested(num_workers, waves, cost_s)
    beside = f"{waves} trials of 10 min for each; {cost_s * 1000:.0f} ms for a suggestion, with a window of {window:,}"
    yield f"{num_workers:,} workers and TPE, busy", f"{busy['busy']:.1%}", ">= 95 %", beside


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="20 nodes and 500 workers")
    size = (20, 200, 500, 6, 1_000) if parser.parse_args().short else (200, 2_000, 10_000, 6, 1_000)
    for what, result, promised, beside in rows(*size):
        print(f"{what:42s} {result:>12s}   {promised:10s} {beside}", flush=True)


if __name__ == "__main__":
    main()
