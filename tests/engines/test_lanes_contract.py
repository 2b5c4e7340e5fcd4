"""The contract of engines, held by lanes; and every scheduler and searcher, whose trials are lanes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conformance.engines import NODE, EngineContract
from every_policy import SCHEDULERS, SEARCHERS, world_of
from lanes_programs import Climbs, Plain

import sweep
from sweep.engines.lanes import LanesEngine
from sweep.errors import ConfigError
from sweep.simulation.replay import rerun
from sweep.worker.trainable import prepare


class TestLanes(EngineContract):
    """A `Kill` ends a trial between two steps: what computes in the middle of one has no process of its own."""

    inventory = (replace(NODE, custom={"lane": 16.0}),)

    def factory(self, behaviour):
        num_reports, does_raise = behaviour.num_reports, behaviour.does_raise

        class Behaves(sweep.VectorTrainable):
            framework = Plain
            num_lanes = 8
            resources_per_worker = {"cpu": 4}

            def init(self, key, config):
                return {"step": np.float64(0)}

            def step(self, state, config, batch):
                if does_raise:  # a program that has worked and then raises is the worker's end, and no trial's
                    raise ValueError("as it was told to")
                step = state["step"] + 1
                return {"step": step}, {"loss": step, "done": step >= num_reports}

        return lambda context: LanesEngine(replace(context, trainable=prepare(Behaves)))


class Sized(Climbs):
    """Reports another objective, too; `kind` decides which program a trial belongs to."""

    static = ("kind",)

    def step(self, state, config, batch, key, index):
        state, metrics = super().step(state, config, batch, key, index)
        return state, {**metrics, "size": config["layers"], "done": index + 1 >= 9}


QUICK = [("asha", "tpe"), ("pbt", "variants")]


@pytest.mark.parametrize(
    ("scheduler", "searcher"),
    [
        *QUICK,
        *(pytest.param(name, "variants", marks=pytest.mark.slow) for name in SCHEDULERS if name != "resources"),
        *(pytest.param(name, other, marks=pytest.mark.slow) for name in ("asha", "bohb") for other in SEARCHERS),
    ],
)
def test_lanes_under_every_policy_come_out_as_recorded(tmp_path: Path, scheduler: str, searcher: str) -> None:
    space, num_samples = world_of(searcher)
    is_of_two = scheduler == "moasha"  # it is told of both objectives by itself
    analysis = sweep.run(
        Sized,
        config={"kind": "a", **space},
        num_samples=num_samples,
        search_alg=SEARCHERS[searcher](),
        scheduler=SCHEDULERS[scheduler](),
        metric=None if is_of_two else "loss",
        mode=None if is_of_two else "min",
        seed=1,
        nodes=[sweep.Node(cpus=4)],
        storage_path=str(tmp_path),
        name="made",
        verbose=0,
    )
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert {trial.failures for trial in analysis.trials} == {0}
    found = sweep.replay(analysis.experiment_path)
    assert found.differences == []
    assert found.num_events > 20
    assert rerun(analysis.experiment_path).difference is None


def test_resources_of_lanes_are_not_changed(tmp_path: Path) -> None:
    scheduler = sweep.ResourceChangingScheduler()
    with pytest.raises(ConfigError, match=r"a lane is a lane\. Use another one, or engine='local'"):
        sweep.run(Climbs, config={"x": 0.5}, scheduler=scheduler, storage_path=str(tmp_path), verbose=0)
    assert list(tmp_path.iterdir()) == []
