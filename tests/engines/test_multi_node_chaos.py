"""Groups on two nodes while anything dies or is ended at any time: every attempt exits once and is released once."""

from __future__ import annotations

import random
import signal
from collections import defaultdict

import pytest
from conformance.multi_node import ONE_EACH, Driver
from conformance.processes import Watch, of_experiment

import sweep
from sweep.core.messages import Continue, Exited, Kill, Released, Reported, Start, Stop, Tick
from sweep.engines.local.processes import send
from sweep.record.proc import children_of

NUM_TRIALS = 40
PLACES = (ONE_EACH, ONE_EACH[::-1], (*ONE_EACH, ("n", 1)), ONE_EACH[:1])
PATIENCE_S = 30.0  # only for a broken engine


def report_often(rank, at):
    for step in range(20):
        sweep.report({"rank": rank, "step": step})


class Harm:
    """Ends attempts, ranks, hosts and agents as its dice fall."""

    def __init__(self, driver, draw):
        self.driver, self.draw = driver, draw

    def do(self, running):
        """Do something of this kind."""
        agent = self.draw.choice(list(self.driver.cluster.processes.values())).pid
        hosts = [host for fork_server in children_of(agent) for host in children_of(fork_server)]
        ranks = [rank for host in hosts for rank in children_of(host)]
        key = self.draw.choice(sorted(running))
        match self.draw.randrange(6):
            case 0:
                self.driver.engine.execute(Kill(*key))
            case 1:
                self.driver.engine.execute(Stop(*key))
            case 2:
                send(signal.SIGKILL, *hosts[:1])
            case 3:
                send(signal.SIGKILL, *ranks[:1])
            case 4:  # a stopped host is ended when it has not carried out a kill
                send(signal.SIGSTOP, *hosts[-1:])
                for one in running:
                    self.driver.engine.execute(Kill(*one))
            case 5 if self.draw.random() < 0.3:
                send(signal.SIGKILL, agent)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(3))
def test_whatever_dies_or_is_ended_whenever_every_attempt_exits_once_and_is_released_once(tmp_path, seed):
    draw = random.Random(seed)
    driver = Driver(tmp_path)
    engine, harm = driver.engine, Harm(driver, draw)
    running: set[tuple[str, int]] = set()
    told = defaultdict(list)
    last = engine.now()
    try:
        while len(told) < NUM_TRIALS or running:
            while len(running) < 3 and len(told) + len(running) < NUM_TRIALS and len(engine.nodes()) == 2:
                one = driver.trial(report_often, draw.choice(PLACES))
                running.add((one.id, 1))
                engine.execute(Start(one))
            for event in engine.next_events(engine.now() + draw.choice([0.001, 0.01, 0.1])):
                assert not isinstance(event, Tick) or engine.now() < last + PATIENCE_S, running
                if not isinstance(event, Tick):
                    last = engine.now()
                if isinstance(event, Reported):
                    engine.execute(Continue(event.trial_id, event.attempt, event.seq))
                if isinstance(event, Exited | Released):
                    told[event.trial_id].append(type(event))
                if isinstance(event, Released):
                    running.remove((event.trial_id, event.attempt))
            if running and draw.random() < 0.15:
                harm.do(running)
    finally:
        engine.close()
    assert list(told.values()) == [[Exited, Released]] * NUM_TRIALS
    assert Watch(of_experiment(tmp_path)).left() == []  # below agents that were killed it ends by itself
