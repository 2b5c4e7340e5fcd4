"""The creator for Horovod, with the arguments that it had in Tune."""

from __future__ import annotations

from typing import Any

import played_horovod
import pytest

import sweep
from sweep.core.resources import Bundle, Resources
from sweep.errors import ConfigError, ResourceError
from sweep.integration.horovod import DistributedTrainableCreator
from sweep.train import report
from sweep.train.horovod import HorovodConfig


@pytest.fixture(autouse=True)
def _played(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    played_horovod.install(tmp_path, monkeypatch)
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path / "results"))
    yield
    sweep.shutdown()
    played_horovod.forget(monkeypatch)


def train(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
    import os

    report(size=int(os.environ["HOROVOD_SIZE"]), cross=os.environ["HOROVOD_CROSS_SIZE"], lr=config["lr"])


@pytest.mark.parametrize(
    ("arguments", "num_workers", "bundle", "strategy"),
    [
        ({}, 1, Bundle(cpu=1.0), "PACK"),
        ({"num_slots": 3}, 3, Bundle(cpu=1.0), "PACK"),
        ({"num_slots": 2, "num_hosts": 1}, 2, Bundle(cpu=1.0), "STRICT_PACK"),
        ({"num_slots": 1, "num_hosts": 2}, 2, Bundle(cpu=1.0), "STRICT_SPREAD"),
        ({"num_slots": 2, "num_cpus_per_slot": 4}, 2, Bundle(cpu=4.0), "PACK"),
        ({"num_slots": 2, "use_gpu": True}, 2, Bundle(cpu=1.0, gpu=1.0), "PACK"),
    ],
    ids=str,
)
def test_the_arguments_of_the_creator_are_a_request(arguments, num_workers, bundle, strategy):
    trainer = DistributedTrainableCreator(train, **arguments)
    assert trainer.resources_of({}) == Resources((bundle,) * num_workers, strategy)
    assert (trainer.spec_of({}).framework, trainer.spec_of({}).visibility) == ("horovod", "share")


def test_the_creator_bears_the_name_of_its_function_and_passes_its_timeout_on():
    trainer = DistributedTrainableCreator(train, timeout_s=60, replicate_pem=False)
    assert trainer.__sweep_trainable__().name == "train"
    assert trainer.backend == HorovodConfig(60)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_slots": 0}, ConfigError, "num_slots is 0; expected a whole number of workers, at least 1"),
        ({"num_slots": True}, ConfigError, "num_slots is True; expected a whole number"),
        ({"num_slots": 2.0}, ConfigError, r"num_slots is 2\.0; expected a whole number"),
        ({"num_hosts": 0}, ConfigError, "num_hosts is 0; expected a whole number of machines, at least 1, or None"),
        ({"num_hosts": 2, "num_slots": 2}, ConfigError, "num_hosts is 2 and num_slots is 2; expected .*num_slots=4"),
        ({"replicate_pem": True}, ConfigError, "replicate_pem is True; .* no key is copied. Leave it out"),
        ({"timeout_s": 0}, ConfigError, "timeout_s is 0; expected seconds above 0"),
        ({"num_cpus_per_slot": -1}, ResourceError, "cpu=-1"),
        ({"num_workers": 2}, ConfigError, "no parameter 'num_workers'. Horovod's word for it is num_slots"),
        ({"num_gpus_per_worker": 1}, ConfigError, "no parameter 'num_gpus_per_worker'. Write use_gpu=True"),
    ],
    ids=str,
)
def test_an_argument_of_the_creator_that_is_wrong_is_named_with_what_was_expected(arguments, error, words):
    with pytest.raises(error, match=words):
        DistributedTrainableCreator(train, **arguments)


def test_a_sweep_as_tunes_guide_wrote_it_and_hosts_that_are_declared_nodes():
    sweep.init(nodes=[sweep.Node("one", cpus=2), sweep.Node("two", cpus=2)])
    config = {"lr": sweep.grid_search([0.1, 0.2])}
    analysis = sweep.run(DistributedTrainableCreator(train, num_slots=2), config=config, verbose=0)
    results = [trial.last_result for trial in analysis.trials]
    assert [(one["size"], one["cross"], one["lr"]) for one in results] == [(2, "1", 0.1), (2, "1", 0.2)]
    spread = DistributedTrainableCreator(train, num_hosts=2)
    (trial,) = sweep.run(spread, config={"lr": 1}, verbose=0).trials
    assert (trial.last_result["size"], trial.last_result["cross"]) == (2, "2")
