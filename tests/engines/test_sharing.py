"""The local engine on a machine that another sweep uses, too; and two real drivers, one waiting for the other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from conformance.engines import collect, context, has_released, play_out, shapes, trial

import sweep
from sweep.core.messages import ClaimsChanged, Declined, Released, Start
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.trial import evolve
from sweep.engines.local.claims import Claims, Sharing, open_claims
from sweep.engines.local.engine import LocalEngine
from sweep.engines.loop import Loop
from sweep.record.reader import ExperimentReader
from sweep.simulation.replay import replay, rerun

GPU = Resources((Bundle(gpu=1),))
NODE = Node("local", cpus=8, devices=(Device("0"), Device("1")))


def at(device: str) -> Placement:
    return Placement((BundlePlacement("local", ((device, 1.0),)),))


def on(device: str, number: int = 0, attempt: int = 1):
    """Return a trial that was granted one GPU."""
    return evolve(trial(number, attempt), resources=GPU, placement=at(device))


def train(config):
    from sweep.worker.session import report

    report({"loss": 1.0})


@pytest.fixture
def registry(tmp_path, monkeypatch):
    path = tmp_path / "claims"
    path.mkdir()
    monkeypatch.setenv("SWEEP_CLAIMS", str(path))
    return path


@pytest.fixture
def other(registry):
    claims = Claims(registry, (NODE,), "other")
    yield claims
    claims.close()


@contextmanager
def engine_in(directory, **fields):
    engine = LocalEngine(context(directory, train, **{"nodes": (NODE,), **fields}))
    try:
        yield engine
    finally:
        engine.close()


def news(events):
    """Return what is told of claims: the devices that others hold, and the trials that were declined."""
    return [
        [device for claim in event.others for _, _, device, _ in claim.held]
        if isinstance(event, ClaimsChanged)
        else event.trial_id
        for event in events
        if isinstance(event, (ClaimsChanged, Declined))
    ]


def has(number):
    return lambda seen: len(news(seen)) >= number


def test_a_start_for_which_another_sweep_was_faster_is_declined_and_nothing_runs(tmp_path, other):
    with engine_in(tmp_path / "exp") as engine:
        assert engine.claims() == ()
        other.take("theirs", GPU, at("0"))
        engine.execute(Start(on("0")))
        engine.execute(Start(on("0", 1)))
        events = collect(engine, has(3))
        assert news(events) == [["0"], "abcde_00000", "abcde_00001"]
        assert shapes(events) == []
        assert not list((tmp_path / "exp").glob("abcde_*"))
        engine.want(GPU)
        other.give_back("theirs")
        assert news(collect(engine, has(1))) == [[]]
        engine.execute(Start(on("0")))
        assert [kind for kind, *_ in shapes(collect(engine, has_released(1)))] == [
            "started",
            "reported",
            "exited",
            "released",
        ]
        assert other.take("theirs", GPU, at("0")), "what was released is given back"


class Shared:
    """The part of an engine that claims, without processes: what it says and tells."""

    def __init__(self, directory):
        self.loop, self.events, self.said = Loop(), [], []
        self.claims = open_claims(context(directory, train, nodes=(NODE,)), self.said.append)
        self.sharing = Sharing(self.claims, self.loop, emit=self.events.append, end_idle=lambda: None)

    def wait_for_news(self):
        give_up = time.monotonic() + 30
        while not self.events:
            assert time.monotonic() < give_up
            self.loop.run_once(0.05)
        return news(self.events)


@pytest.fixture
def shared(tmp_path):
    made = []

    def make():
        made.append(Shared(tmp_path / "exp"))
        return made[-1]

    yield make
    for one in made:
        one.claims.close()
        one.loop.close()


def test_what_is_declined_without_news_is_not_tried_again_at_once(shared, other):
    other.take("theirs", GPU, at("0"))
    one = shared()
    assert len(one.sharing.begin()) == 1
    assert not one.sharing.take(on("0"))
    assert one.events == []
    assert one.wait_for_news() == ["abcde_00000"]


def test_what_another_sweep_gives_back_is_noticed(shared, other):
    other.take("theirs", GPU, at("0"))
    one = shared()
    one.sharing.begin()
    other.close()
    assert one.wait_for_news() == [[]]


def test_an_engine_that_takes_what_another_waits_for_is_told_to_let_it_go_first(tmp_path, other):
    with engine_in(tmp_path / "exp") as engine:
        engine.claims()
        engine.execute(Start(on("0")))
        other.awaited = GPU
        other.look()
        engine.execute(Start(on("1", 1)))
        (told,) = [event for event in collect(engine, has(1)) if isinstance(event, ClaimsChanged)]
        assert told.others[0].wants == (("local", "gpu", "", 1),)
        collect(engine, has_released(1))


def test_an_idle_reused_worker_gives_its_device_up_when_another_sweep_waits_for_it(tmp_path, other):
    with engine_in(tmp_path / "exp", reuse_actors=True) as engine:
        engine.claims()
        assert any(isinstance(event, Released) for event in play_out_on(engine, "0"))
        assert not other.take("theirs", GPU, at("0")), "the worker may hold memory of it"
        other.awaited = GPU
        deadline = time.monotonic() + 30
        while not other.take("theirs", GPU, at("0")):
            assert time.monotonic() < deadline
            engine.next_events(engine.now() + 0.05)


def play_out_on(engine, device):
    engine.execute(Start(on(device)))
    return collect(engine, has_released(1))


def test_hosts_hold_the_claim_and_trials_do_not(tmp_path, registry):
    def look(config):
        import os

        from sweep.worker.session import report

        def files_of(pid):
            names = []
            for number in os.listdir(f"/proc/{pid}/fd"):
                try:
                    names.append(os.readlink(f"/proc/{pid}/fd/{number}"))
                except FileNotFoundError:
                    continue
            return sum(name.endswith(".claim") for name in names)

        report({"loss": 1.0, "mine": files_of(os.getpid()), "supervisors": files_of(os.getppid())})

    for start_method in ("forkserver", "spawn"):
        engine = LocalEngine(context(tmp_path / start_method, look, start_method=start_method))
        try:
            (report,) = [event.metrics for event in play_out(engine) if hasattr(event, "metrics")]
        finally:
            engine.close()
        assert (report["mine"], report["supervisors"]) == (0, 1)


def test_a_sweep_that_opts_out_sees_nothing_is_not_seen_and_says_so_in_one_line(tmp_path, other, registry, capfd):
    other.take("theirs", GPU, at("0"))
    other.take("too", GPU, at("1"))
    before = sorted(registry.iterdir())
    seen = []

    class Look(sweep.Callback):
        def on_trial_start(self, trial):
            seen.append(sorted(registry.iterdir()))

    try:
        sweep.init(nodes=[NODE], shared=False)
        sweep.run(train, name="alone", storage_path=str(tmp_path), resources_per_trial={"gpu": 1}, callbacks=[Look()])
    finally:
        sweep.shutdown()
    assert seen == [before]
    printed = "".join(capfd.readouterr())
    assert printed.count("sweep.init(shared=False): other sweeps of this machine are not seen") == 1


def test_a_sweep_inside_a_trial_uses_what_that_trial_holds(shared, other, monkeypatch):
    """Its driver cannot be seen from here, for instance from another PID namespace: otherwise it would be refused."""
    other.take("theirs", GPU, at("0"))
    monkeypatch.setenv("SWEEP_TRIAL", "outer_00003")
    one = shared()
    assert one.sharing.begin() == ()
    assert one.sharing.take(on("0"))
    (said,) = one.said
    assert "runs inside trial outer_00003 of another one: it uses what that one holds, and claims nothing" in said


def test_where_claims_cannot_be_kept_everything_is_granted_and_that_is_said_once(shared, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWEEP_CLAIMS", str(tmp_path / "file"))
    one = shared()
    assert one.sharing.take(on("0"))
    assert one.claims.fd < 0
    (said,) = one.said
    assert f"other sweeps of this machine are not seen, and do not see this one: {tmp_path / 'file'} is -rw" in said


HOLDER = """
import os, sys, time, sweep
root = sys.argv[1]

def hold(config):
    open(root + "/held", "w").close()
    give_up = time.monotonic() + 60
    while not os.path.exists(root + "/let-go") and time.monotonic() < give_up:
        time.sleep(0.005)
    sweep.report(loss=1.0)

sweep.run(hold, name="holder", storage_path=root, config={}, metric="loss", mode="min", verbose=0,
          nodes=[sweep.Node(cpus=4, devices=(sweep.Device("0"), sweep.Device("1")))],
          resources_per_trial={"cpu": 1, "gpu": 1})
"""


def test_a_second_sweep_uses_the_free_gpu_at_once_and_the_other_as_soon_as_it_is_let_go(tmp_path, registry):
    root = str(tmp_path)

    def wait(name):
        give_up = time.monotonic() + 60
        while not os.path.exists(f"{root}/{name}"):
            assert time.monotonic() < give_up, f"there is no {name}"
            time.sleep(0.005)

    def work(config):
        if config["x"] == 0:  # on the free one: until the other trial has run on the one that was let go
            reader = ExperimentReader(Path(root) / "second")
            give_up = time.monotonic() + 60
            while "holder" not in (reason := [row.reason for row in reader.trials()][-1]):
                assert time.monotonic() < give_up, reason
            Path(root, "let-go").touch()
            wait("done")
            sweep.report(loss=0.0, device=os.environ["CUDA_VISIBLE_DEVICES"], reason=reason)
        else:
            Path(root, "done").touch()
            sweep.report(loss=1.0, device=os.environ["CUDA_VISIBLE_DEVICES"], reason="")

    holder = subprocess.Popen([sys.executable, "-c", HOLDER, root])
    try:
        wait("held")
        analysis = sweep.run(
            work,
            name="second",
            storage_path=root,
            config={"x": sweep.grid_search([0, 1])},
            metric="loss",
            mode="min",
            nodes=[Node("local", 4, devices=NODE.devices)],
            resources_per_trial={"cpu": 1, "gpu": 1},
            verbose=0,
        )
        assert holder.wait(60) == 0
    finally:
        holder.kill()
        holder.wait()
    first, second = (row.last_result for row in analysis.trials)
    assert (first["device"], second["device"]) == ("1", "0")
    assert first["reason"] == (
        f"waits for gpu=1; 0 of 2 free, some held by 00000; GPU 0 is held by experiment 'holder' (pid {holder.pid})"
    )
    assert replay(tmp_path / "second").is_same
    assert rerun(tmp_path / "second").is_same
    assert [path.name for path in registry.iterdir()] == ["lock"]
