"""Machines that join a sweep by files of its directory, and leave it; this machine stands for all of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conformance.engines import Behaviour, context

import sweep
from sweep.core.packing import Packer
from sweep.core.resources import Bundle, Device, Node, Resources
from sweep.engines.cluster import joined as joined_module
from sweep.engines.cluster.agent import UNFIT, UNREACHED
from sweep.engines.cluster.handshake import Invitation
from sweep.engines.cluster.join import Joining, Ticket, agents_directory, ticket_of
from sweep.engines.cluster.joined import JoinedCluster, JoinedOptions
from sweep.errors import ConfigError, ExperimentError

pytestmark = pytest.mark.agents

OWN = Node("local", cpus=1.0)
INVITATION = Invitation("127.0.0.1", 1, "f", "k", "far")


def joins(root, *words):
    """Start `sweep agent join` as a person would."""
    command = [sys.executable, "-m", "sweep.cli.main", "agent", "join", str(root), *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def cluster(own=(OWN,), **options):
    said = []
    made = JoinedCluster(JoinedOptions(heartbeat_timeout_s=5.0, **options), own, said.append)
    return made, said


@pytest.fixture
def directory(tmp_path):
    """Return where machines join, without a driver."""
    agents_directory(tmp_path).mkdir(0o700)
    return agents_directory(tmp_path)


def train(config):
    for step in range(3):
        time.sleep(0.1)
        sweep.report(loss=step)


def test_a_machine_joins_is_used_leaves_in_order_and_another_one_stays_to_the_end(tmp_path):
    """The driver's machine runs nothing itself: every trial runs on one that has joined."""
    started, said, asked = [], [], []

    class Join(sweep.Callback):
        def setup(self, *, experiment_dir, **info):
            started.extend(joins(experiment_dir, "--cpus", "1") for _ in range(2))

        def on_trial_complete(self, trial):
            if not asked and sum("joins: 1" in line for line in notes) == 2:
                asked.append(trial.id)
                started[0].send_signal(signal.SIGTERM)

    made, notes = cluster(here=False)
    analysis = sweep.run(
        train, engine=made, num_samples=6, storage_path=tmp_path, name="made", verbose=0, callbacks=[Join()]
    )
    for one in started:
        said.append(one.communicate(timeout=20)[1])
        assert one.returncode == 0
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 6
    assert "trials wait for machines that join: sweep agent join" in notes[0]
    assert sum("joins: 1 CPUs" in line for line in notes) == 2
    assert "has left made" in said[0]
    assert "made has ended" in said[1]
    assert not agents_directory(tmp_path / "made").exists()


@pytest.mark.slow
def test_when_the_driver_is_killed_the_machine_waits_and_joins_whoever_resumes(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import sweep, time\ndef train(config):\n    for i in range(8):\n        time.sleep(0.2)\n"
                      "        sweep.report(loss=i)\n")  # fmt: skip
    words = [sys.executable, "-m", "sweep.cli.main"]
    where = ["--engine", "agents", "--cluster", "here=false"]
    asked = ["run", f"{script}:train", "x=uniform(0,1)", "--minimize", "loss", "--trials", "4", "--name", "made"]
    environ = {**os.environ, "SWEEP_STORAGE": str(tmp_path)}
    driver = subprocess.Popen([*words, *asked, *where], env=environ, stderr=subprocess.DEVNULL)
    await_(agents_directory(tmp_path / "made").exists)
    machine = joins(tmp_path / "made", "--cpus", "2")
    await_(lambda: any("checkpoint" in name or "output.log" in name for name in files(tmp_path / "made")))
    driver.kill()
    driver.wait()
    assert agents_directory(tmp_path / "made").exists()
    again = subprocess.run([*words, "resume", "made", *where], env=environ, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
    said = machine.communicate(timeout=20)[1]
    assert machine.returncode == 0
    assert said.count("has joined made") == 2


def test_a_second_driver_is_refused_and_the_first_one_keeps_its_machines(tmp_path):
    machines, refused = [], []

    class Second(sweep.Callback):
        def setup(self, *, experiment_dir, **info):
            machines.append(joins(experiment_dir, "--cpus", "1"))

        def on_trial_complete(self, trial):
            if not refused:
                again = f"import sweep; sweep.run(print, storage_path={str(tmp_path)!r}, name='made', resume=True)"
                command = [sys.executable, "-c", f"{again.removesuffix(')')}, engine='agents')"]
                refused.append(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False))

    made, notes = cluster(here=False)
    analysis = sweep.run(
        train, engine=made, num_samples=3, storage_path=tmp_path, name="made", verbose=0, callbacks=[Second()]
    )
    said = machines[0].communicate(timeout=20)[1]
    assert f"made is in use by another driver (pid {os.getpid()}" in refused[0].stderr
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3
    assert said.count("has joined made") == 1
    assert not any("lost" in note for note in notes)


def files(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*")]


def await_(is_so, seconds=30.0):
    give_up = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_asked_twice_a_machine_ends_what_it_runs_at_once(tmp_path, directory):
    joining = Joining(tmp_path, OWN, print)
    deaf = "import signal, time; signal.signal(15, print); print(flush=True); time.sleep(99); time.sleep(99)"
    joining._agent = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    joining._agent.stdout.read(1)
    for _ in range(2):
        assert joining._agent.poll() is None
        joining._on_signal()
        joining._hear()
    assert joining._agent.wait(20) == -signal.SIGKILL
    joining._agent.stdout.close()
    assert not list(directory.iterdir())


def test_a_sweep_without_a_driver_that_takes_machines_says_how_to_start_one(tmp_path):
    with pytest.raises(ExperimentError, match="Start the sweep with --engine agents"):
        Joining(tmp_path, OWN, print)


def test_who_waits_in_vain_gives_up_and_takes_its_file_away(tmp_path, directory):
    joining = Joining(tmp_path, OWN, lambda text: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(ExperimentError, match=r"no driver of .* took this machine"):
            joining.run(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not list(directory.iterdir())


def test_two_machines_of_one_name_have_two(tmp_path, directory):
    names = [Joining(tmp_path, OWN, print)._name for _ in range(3)]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_what_a_machine_says_of_itself_arrives_whole():
    device = Device("0", type="NVIDIA A100", memory=1 << 36, labels=("A100", "A100-80G"), vendor="nvidia")
    ticket = Ticket(Node("n", 3.5, 1 << 40, (device,), {"disk": 2.0}, address="10.0.0.5"), ("boot", "net"))
    assert Ticket.from_json(ticket.to_json()) == ticket


def test_a_group_with_a_machine_for_each_worker_waits_for_all_of_them():
    made, _ = cluster(here=False)
    group = Resources((Bundle(cpu=1.0, gpu=8.0),) * 4, "STRICT_SPREAD")
    assert made.nodes() == ()
    packer = Packer(made.nodes(), made.away)
    assert packer.could_ever_fit(group)
    assert "waits for nodes 'a machine that joins (1)' (cpu=4096, gpu=16)" in packer.absence(group)
    assert "a machine that joins (5)" not in packer.absence(group)


@contextlib.contextmanager
def looking(made, tmp_path):
    """Let a cluster look at who has joined, without a run."""
    made._directory = agents_directory(tmp_path)
    try:
        yield made
    finally:
        made.close()


def write(directory, name, text):
    (directory / f"{name}.json").write_text(text)


def test_one_that_no_trial_could_run_on_is_told_why_and_not_used(tmp_path, directory):
    made, said = cluster()
    good = replace(ticket_of(OWN), node=replace(OWN, id="other"))
    write(directory, "old", replace(good, node=replace(OWN, id="old"), version="0.0.1").to_json())
    write(directory, "local", replace(good, node=OWN).to_json())  # the driver's own
    write(directory, "strange", '{"node": {"id": "strange", "devices": 3}}')
    write(directory, "half", "{")
    write(directory, "good", replace(good, node=replace(OWN, id="good")).to_json())
    with looking(made, tmp_path):
        assert made._look()
        assert not made._look()  # each is named once
        assert [node.id for node in made.nodes()] == ["local", "good"]
        assert len(said) == 5
        answers = {path.stem: json.loads(path.read_text()) for path in directory.glob("*.invitation")}
    assert answers.keys() == {"old", "local", "strange", "half"}
    assert "it has sweep 0.0.1, the driver" in answers["old"]["refused"]


def test_a_machine_on_which_no_trial_can_run_ends_instead_of_waiting(tmp_path, directory):
    joining = Joining(tmp_path, OWN, print)
    joining._agent = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({UNFIT})"])
    joining._agent.wait()
    with pytest.raises(ExperimentError, match="cannot take part"):
        joining._on_agent_gone()


def test_an_invitation_that_leads_nowhere_is_tried_again_until_another_one_comes(tmp_path, directory, monkeypatch):
    """The network between both may be away for a while, and a driver that was killed has left its invitation."""
    monkeypatch.setattr("sweep.engines.cluster.join._AGAIN_S", 0.0)
    joining, given = Joining(tmp_path, OWN, print), []
    code = UNREACHED

    def start(invitation):
        given.append(invitation.port)
        return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])

    monkeypatch.setattr("sweep.engines.cluster.join.start_agent", start)

    def look():
        joining._accept()
        if joining._agent is not None:
            joining._agent.wait()
            joining._on_agent_gone()

    for port in (1, None, 2, None, None):
        if port is not None:
            invitation = replace(INVITATION, port=port).to_json()
            (directory / f"{joining._name}.invitation").write_text(invitation)
        look()
    assert given == [1, 1, 2, 2, 2]
    code = 0
    look()
    look()  # that agent had found its driver: the invitation is used up
    assert given == [1, 1, 2, 2, 2, 2]


def test_a_refused_machine_ends_with_the_reason(tmp_path, directory):
    joining = Joining(tmp_path, OWN, print)
    (directory / f"{joining._name}.invitation").write_text('{"refused": "it is too old"}')
    with pytest.raises(ExperimentError, match="does not take this machine: it is too old"):
        joining._accept()


def test_an_invitation_is_for_its_owner_alone_and_from_nobody_else(tmp_path, directory, monkeypatch):
    made, _ = cluster()
    joining = Joining(tmp_path, OWN, print)
    with looking(made, tmp_path):
        made._look()
        made.summon(joining._name, INVITATION)
        (invitation,) = directory.glob("*.invitation")
        assert invitation.stat().st_mode & 0o777 == 0o600
        monkeypatch.setattr(os, "geteuid", lambda: invitation.stat().st_uid + 1)
        with pytest.raises(ExperimentError, match="is another user's"):
            joining._accept()
        monkeypatch.undo()
        invitation.rename(tmp_path / "elsewhere")
        invitation.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError):
            joining._accept()


def test_a_directory_that_others_see_is_refused(tmp_path, directory):
    directory.chmod(0o755)
    made, _ = cluster()
    with pytest.raises(ExperimentError, match="open to others than you"):
        made(context(tmp_path, Behaviour(num_reports=1).as_function()))
    made.close()


def test_a_machine_elsewhere_is_invited_to_an_address_and_one_here_to_loopback(tmp_path, directory, monkeypatch):
    """The driver listens on loopback only until a machine joins that does not share it."""
    made, _ = cluster()
    here = replace(ticket_of(OWN), node=replace(OWN, id="near", address="10.1.1.1"))
    write(directory, "near", here.to_json())
    with looking(made, tmp_path):
        made._look()
        assert made.host == "127.0.0.1"
        assert [node.address for node in made.nodes()] == ["", ""]
        write(directory, "far", replace(here, node=replace(here.node, id="far"), machine=("other", "1")).to_json())
        made._look()
        assert made.host == "0.0.0.0"
        monkeypatch.setattr(joined_module, "address_towards", lambda host: {"10.1.1.1": "10.1.1.9"}[host])
        assert [node.address for node in made.nodes()] == ["10.1.1.9", "10.1.1.1", "10.1.1.1"]
        for name in ("near", "far"):
            made.summon(name, replace(INVITATION, host="0.0.0.0"))
        hosts = {path.stem: json.loads(path.read_text())["host"] for path in directory.glob("*.invitation")}
    assert hosts == {"near": "127.0.0.1", "far": "10.1.1.9"}


def test_one_that_says_nothing_any_more_is_gone(tmp_path, directory, monkeypatch):
    made, _ = cluster()
    write(directory, "near", replace(ticket_of(OWN), node=replace(OWN, id="near")).to_json())
    with looking(made, tmp_path):
        assert made._look()
        monkeypatch.setattr(joined_module, "_GONE_S", 0.0)
        os.utime(directory / "near.json")
        made._look()
        assert made.problem("near") == ""
        time.sleep(0.01)
        assert made._look()
        assert made.problem("near") == "it has left"
        assert made.leaving() == {"near"}  # what runs there saves and goes on elsewhere
        assert not list(directory.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"hosts": "a,b"}, "hosts is 'a,b'"),
        ({"hosts": ["-oProxyCommand=x"]}, "hosts is"),
        ({"here": 3}, "here is 3"),
        ({"autoscale": {"node_type": {"CPU": 1}}}, "autoscale is for engine='ray'"),
        ({"nodes": [OWN]}, "nodes declares this machine"),
    ],
)
def test_what_a_sweep_with_joining_machines_does_not_know_is_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        sweep.init(engine="agents", **arguments)
