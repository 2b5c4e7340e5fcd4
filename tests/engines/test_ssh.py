"""Agents on machines that are reached by ssh: a server of our own on loopback, with keys of its own."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import anywhere
import pytest

import sweep
from sweep.core.resources import Node
from sweep.engines.cluster.joined import JoinedCluster, JoinedOptions
from sweep.engines.cluster.ssh import SshHost
from sweep.errors import ExperimentError

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
pytestmark = [
    pytest.mark.agents,
    pytest.mark.slow,
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="openssh-server is not installed"),
]

_SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {here}/host
PidFile {here}/pid
AuthorizedKeysFile {here}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
"""
_CLIENT = """
Host away mine
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {here}/user
  IdentitiesOnly yes
  UserKnownHostsFile {here}/known
  StrictHostKeyChecking accept-new
Host stranger
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {here}/host
  IdentitiesOnly yes
  UserKnownHostsFile {here}/known
  StrictHostKeyChecking accept-new
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Start an ssh server, and have the command `ssh` know it as `away` and `mine`."""
    here = tmp_path / "ssh"
    here.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(here / name)], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    names = {"here": here, "port": port, "user": getpass.getuser()}
    (here / "server").write_text(_SERVER.format(**names))
    (here / "client").write_text(_CLIENT.format(**names))
    command = here / "bin" / "ssh"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {here}/client "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=":")
    with (here / "log").open("w") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(here / "server")], stderr=log)
    give_up = time.monotonic() + 20
    while True:
        if process.poll() is not None:
            pytest.skip(f"sshd does not start here: {(here / 'log').read_text().strip()[-200:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert time.monotonic() < give_up
        time.sleep(0.05)
    yield here
    process.kill()
    process.wait()


def train(config):
    for step in range(3):
        time.sleep(0.1)
        sweep.report(loss=config["x"] + step)


def run(cluster, tmp_path, **options):
    return sweep.run(
        train,
        config={"x": sweep.uniform(0, 1)},
        engine=cluster,
        storage_path=tmp_path,
        name="made",
        verbose=0,
        resources_per_trial={"cpu": 1},
        **options,
    )


def test_trials_run_on_hosts_that_only_ssh_reaches(server, tmp_path):
    """Every byte of the agents goes through ssh: the driver listens on loopback, at a port that they are not told."""
    said = []
    cluster = JoinedCluster(JoinedOptions(hosts=("away", "mine"), here=False), (), said.append)
    assert [node.id for node in cluster.nodes()] == ["away", "mine"]
    assert all(node.cpus >= 1 for node in cluster.nodes())
    started = []

    class Look(sweep.Callback):
        def on_trial_start(self, trial):
            started.append(trial.placement.bundles[0].node)

    analysis = run(cluster, tmp_path, num_samples=8, callbacks=[Look()])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 8
    assert set(started) == {"away", "mine"}
    assert cluster.host == "127.0.0.1"
    assert _listening(server) == []


def test_an_agent_whose_connection_breaks_is_lost_and_another_one_is_started(server, tmp_path):
    said, killed = [], []
    cluster = JoinedCluster(JoinedOptions(hosts=("away",), here=False, heartbeat_timeout_s=5.0), (), said.append)

    class Break(sweep.Callback):
        def on_trial_complete(self, trial):
            if not killed:
                killed.append(cluster._hosts["away"].process)
                killed[0].kill()

    analysis = run(cluster, tmp_path, num_samples=4, max_concurrent_trials=1, callbacks=[Break()])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 4
    assert cluster._hosts["away"].process is not killed[0]


def test_the_example_that_runs_anywhere_has_the_same_results_by_ssh(server, tmp_path):
    anywhere.run(tmp_path, "--engine", "agents", "--hosts", "away,mine", "--not-here")
    anywhere.assert_as_at_home(tmp_path)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("stranger", "stranger does not say what it has: .*Permission denied"),
        ("nowhere.invalid", "without a password, with sweep installed for"),
        ("away:/no/python", "away does not say what it has: .*no/python"),
        (f"away:{shutil.which('true')}", "the command ended with exit code 0"),
    ],
)
def test_a_host_that_cannot_be_used_is_named_with_the_reason(host, said, server):
    with pytest.raises(ExperimentError, match=said):
        SshHost(host)


def test_a_python_is_named_behind_the_host_and_a_user_is_no_part_of_its_name(server):
    host = SshHost(f"{getpass.getuser()}@away:{sys.executable}")
    assert host.node.id == "away"
    assert isinstance(host.node, Node)
    assert host.is_here


def _listening(server: Path) -> list[str]:
    """Return the sessions that the server still has."""
    pid = (server / "pid").read_text().strip()
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return []
        time.sleep(0.1)
    return children
