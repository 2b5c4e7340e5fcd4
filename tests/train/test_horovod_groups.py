"""Horovod groups: what workers are told, the server that they meet at, and real ones where Horovod has been built."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import horovod_environment
import played_horovod
import psutil
import pytest
from rank_variables import horovod

import sweep
from sweep.errors import ConfigError
from sweep.integration.horovod import DistributedTrainableCreator
from sweep.train import RunConfig, ScalingConfig, get_context, report
from sweep.train.horovod import HorovodConfig, HorovodTrainer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "train-in-groups.md"


@pytest.fixture(autouse=True)
def declared(tmp_path, monkeypatch):
    """A machine of four CPUs with a `horovod` that only plays."""
    for name in [name for name in os.environ if name.startswith(("HOROVOD", "NCCL_SOCKET"))]:
        monkeypatch.delenv(name)
    played_horovod.install(tmp_path, monkeypatch)
    sweep.init(num_cpus=4, num_gpus=0)
    yield
    sweep.shutdown()
    played_horovod.forget(monkeypatch)


def run(loop, tmp_path, *, num_workers=2, horovod_config=None, env=None, **arguments):
    trainer = HorovodTrainer(
        loop,
        horovod_config=horovod_config,
        scaling_config=ScalingConfig(num_workers=num_workers),
        run_config=RunConfig(runtime_env={"env_vars": env or {}}),
    )
    return sweep.run(trainer, storage_path=tmp_path / "results", verbose=0, **arguments).trials[0]


def write(**has):
    context = get_context()
    name = f"attempt{context.get_attempt()}-rank{context.get_world_rank()}.json"
    Path(context.get_trial_dir(), name).write_text(json.dumps(has), encoding="utf-8")


def written(trial, attempt=1):
    return [json.loads(path.read_text()) for path in sorted(Path(trial.path).glob(f"attempt{attempt}-rank*.json"))]


def tell():
    write(**{name: value for name, value in os.environ.items() if name.startswith(("HOROVOD", "NCCL_SOCKET"))})
    report(is_done=True)


def listening(port):
    """Return the addresses on which anybody listens on a port."""
    found = psutil.net_connections("tcp")
    return [one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN and one.laddr.port == port]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def test_every_worker_has_the_environment_of_horovodrun_whatever_the_drivers_own_is(tmp_path, monkeypatch):
    for name in ("HOROVOD_RANK", "HOROVOD_ELASTIC", "HOROVOD_GLOO_RENDEZVOUS_PORT"):
        monkeypatch.setenv(name, "1")  # of a horovodrun in which the driver may stand
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "eth0")
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1024")
    trial = run(tell, tmp_path, num_workers=3)
    told = written(trial)
    port = told[0]["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    assert int(port) > 1
    own = {"HOROVOD_GLOO_RENDEZVOUS_PORT": port, "HOROVOD_FUSION_THRESHOLD": "1024"}
    given = [horovod(rank, 3, **own) for rank in range(3)]
    assert told == [{name: value for name, value in one.items() if value is not None} for one in given]


@pytest.mark.parametrize(
    ("config", "env", "seconds"),
    [
        (None, {}, None),
        (None, {"HOROVOD_GLOO_TIMEOUT_SECONDS": "70"}, "70"),
        (HorovodConfig(timeout_s=0.5), {"HOROVOD_GLOO_TIMEOUT_SECONDS": "70"}, "1"),
    ],
)
def test_horovods_patience_is_what_was_asked_for_or_its_own(tmp_path, config, env, seconds):
    (told,) = written(run(tell, tmp_path, num_workers=1, horovod_config=config, env=env))
    assert told.get("HOROVOD_GLOO_TIMEOUT_SECONDS") == seconds


@pytest.mark.slow
def test_the_workers_meet_at_a_server_on_loopback_and_leave_it_before_it_goes(tmp_path):
    def loop():
        import horovod.torch as hvd

        hvd.init()
        rank = os.environ["HOROVOD_RANK"]
        port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
        write(port=port, listening=listening(port), own=hvd.ask("GET", f"/global/{rank}"), head=hvd.ask("HEAD", "/")[0])
        report(rank=rank)

    trial = run(loop, tmp_path, chdir_to_trial_dir=True)
    (port,) = {has["port"] for has in written(trial)}
    assert written(trial) == [
        {"port": port, "listening": ["127.0.0.1"], "own": [200, "localhost"], "head": 501} for _ in range(2)
    ]
    assert [Path(trial.path, f"left{rank}").read_text() for rank in range(2)] == ["200", "200"]
    assert not is_open(port)


@pytest.mark.slow
def test_each_attempt_has_a_server_of_its_own_that_dies_with_it(tmp_path):
    def loop():
        import horovod.torch as hvd

        found = hvd.ask("GET", "/global/0")[0]
        port = os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]
        if get_context().get_attempt() == 1:
            hvd.init()
            write(port=port, found=found)
            report(attempt=1)
            raise ValueError("boom")
        before = json.loads(Path(get_context().get_trial_dir(), "attempt1-rank0.json").read_text())["port"]
        write(port=port, found=found, is_first_open=port != before and is_open(before))
        report(attempt=2)

    trial = run(loop, tmp_path, num_workers=1, max_failures=1)
    assert (trial.status, trial.attempt) == ("TERMINATED", 2)
    (first,), (second,) = written(trial, 1), written(trial, 2)
    assert (first["found"], second["found"], second["is_first_open"]) == (404, 404, False)
    assert not is_open(second["port"])


def test_one_worker_in_this_process_needs_no_server(tmp_path):
    def loop():
        report(port=os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", "none"))

    trial = run(loop, tmp_path, num_workers=1, engine="inline")
    assert trial.last_result["port"] == "none"


def test_without_horovod_a_trainer_says_how_to_get_it(monkeypatch, tmp_path):
    played_horovod.forget(monkeypatch)
    monkeypatch.setattr("sys.path", [])
    for make in (HorovodTrainer, DistributedTrainableCreator):
        with pytest.raises(ConfigError, match="a Horovod group needs Horovod with Gloo, which is not installed"):
            make(tell)
    (tmp_path / "empty" / "horovod").mkdir(parents=True)  # any directory of that name is a package to Python
    monkeypatch.setattr("sys.path", [str(tmp_path / "empty")])
    with pytest.raises(ConfigError, match="HOROVOD_WITH_GLOO=1 pip install horovod"):
        HorovodTrainer(tell)


@pytest.mark.parametrize("value", [0, -1, "30", True, float("inf"), float("nan")])
def test_a_timeout_is_a_number_of_seconds(value):
    with pytest.raises(ConfigError, match=f"HorovodConfig: timeout_s is {value!r}; expected seconds above 0, or None"):
        HorovodConfig(timeout_s=value)


def test_a_trainer_takes_a_horovod_config_only():
    with pytest.raises(ConfigError, match="HorovodTrainer: horovod_config is 3; expected a HorovodConfig"):
        HorovodTrainer(tell, horovod_config=3)
    assert HorovodTrainer(tell, horovod_config=HorovodConfig(timeout_s=9)).backend == HorovodConfig(9)


REAL = '''
import json, os, signal, sys, tempfile
from pathlib import Path

import psutil

import sweep
from sweep.integration.horovod import DistributedTrainableCreator



def listens():
    """Return the addresses on which this process listens."""
    found = psutil.Process().net_connections("tcp")
    return sorted({one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN})


def train(config, checkpoint_dir=None):
    import horovod.torch as hvd
    import torch

    hvd.init()
    start = int(Path(checkpoint_dir, "step").read_text()) if checkpoint_dir else 0
    torch.manual_seed(hvd.rank())  # what rank 0 has is broadcast
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    x = torch.linspace(0, 1, 16).unsqueeze(1)[hvd.rank()::hvd.size()]
    for step in range(start, 3):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), 2 * x).backward()
        optimizer.step()
        total = hvd.allreduce(torch.tensor([10.0 ** hvd.rank()]), op=hvd.Sum).item()
        weights = hvd.allgather(model.weight.detach()).flatten().tolist()
        if config["number"] == 2 and step == 2 and start == 0 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        found = hvd.allgather_object(listens())
        metrics = dict(total=total, weights=weights, size=hvd.size(), start=start, listens=found)
        if hvd.rank() == 0:
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "step").write_text(str(step + 1))
                sweep.report(metrics, checkpoint=sweep.Checkpoint(directory))
        else:
            sweep.report(metrics)
    hvd.shutdown()
    hvd.init()  # once more, at the same server
    assert hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item() == 2.0


if __name__ == "__main__":
    sweep.init(num_cpus=4, num_gpus=0)
    analysis = sweep.run(
        DistributedTrainableCreator(train, num_slots=2, timeout_s=120),
        config={"lr": 0.1, "number": sweep.grid_search([0, 1, 2, 3])},
        max_failures=1,
        storage_path=sys.argv[1],
        raise_on_failed_trial=False,
        verbose=0,
    )
    print(json.dumps([
        {"status": trial.status, "attempt": trial.attempt, "error": str(trial.error), **trial.last_result}
        for trial in analysis.trials
    ], default=str))
'''


def run_with_horovod(code, directory, *arguments):
    """Run a script in the environment that `make test-horovod` builds; return what it printed."""
    python = horovod_environment.interpreter()
    if python is None:
        pytest.skip("needs an environment with Horovod, which takes ten minutes to build: make test-horovod")
    script = directory / "script.py"
    script.write_text(code, encoding="utf-8")
    ended = subprocess.run(
        [python, script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SWEEP_STORAGE": str(directory / "results")},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_four_trials_of_two_horovod_workers_train_and_one_goes_on_after_its_worker_was_killed(tmp_path):
    trials = json.loads(run_with_horovod(REAL, tmp_path, str(tmp_path / "results")).splitlines()[-1])
    assert [(one["status"], one["error"]) for one in trials] == [("TERMINATED", "None")] * 4
    assert [(one["total"], one["size"]) for one in trials] == [(11.0, 2)] * 4
    assert [one["attempt"] for one in trials] == [1, 1, 2, 1]
    assert [one["start"] for one in trials] == [0, 0, 2, 0]
    for one in trials:
        first, second = one["weights"]
        assert first == second
        assert one["listens"] == [["127.0.0.1"], []]  # the server in rank 0; nothing on another address


@pytest.mark.slow
def test_the_example_of_the_page_trains(tmp_path):
    section = PAGE.read_text(encoding="utf-8").partition("\n### Horovod\n")[2].partition("\n#")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)
    (shown,) = re.findall(r"^```text\n(.*?)\n```", section, flags=re.M | re.S)
    assert run_with_horovod(code, tmp_path).strip() == shown
