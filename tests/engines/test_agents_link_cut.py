"""A link between machines that drops every packet and tells nobody: nodes in network namespaces of their own."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from orphans import MARK, wait_until_gone

import sweep
from sweep.core.messages import Exited, ExitKind, NodesChanged
from sweep.engines.local.processes import descendants, send
from sweep.record.facts import read_facts

pytestmark = [pytest.mark.agents, pytest.mark.timeout(180)]

# What is sent to an address of nobody's is lost; the interfaces stay up, and no side is told. What goes to the far
# node, what comes from there, or both; or the interface itself goes down.
_TO = "ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:09 dev near nud permanent"
_FROM = "INSIDE ip neigh replace 10.9.0.1 lladdr 02:00:00:00:00:09 dev far nud permanent"
_HEAL = ["ip neigh flush dev near nud permanent", "INSIDE ip neigh flush dev far nud permanent"]
SILENT, ENDED = "nothing was heard of its agent for", "its agent ended"
LOSE = {
    "both ways": ([_TO, _FROM], _HEAL, SILENT),
    "to the node": ([_TO], _HEAL, ENDED),
    "from the node": ([_FROM], _HEAL, SILENT),
    "interface": (["ip link set near down"], ["ip link set near up"], SILENT),
}

# The far node's namespace lives as long as the process that waits in it.
SCRIPT = """
import contextlib, fcntl, json, os, pathlib, sqlite3, subprocess, sys, threading, time
import agent_processes
import sweep
from sweep import Node
from sweep.engines.cluster import agents
from agent_processes import AgentProcesses

root, lose, heal = pathlib.Path(sys.argv[1]), *json.loads(sys.argv[2])

def sh(*commands):
    for text in commands:
        subprocess.run(text.replace("INSIDE", inside).split(), check=True)

def train(config):
    where = "far" if os.readlink("/proc/self/ns/net") == config["far"] else "near"
    alive = os.open(f"{config['root']}/alive-{config['i']}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two at a time would fail here
    pathlib.Path(config["root"], f"{config['i']}-{where}-{os.getpid()}").touch()
    sweep.report(step=1)
    while not os.path.exists(f"{config['root']}/go-{config['i']}"):
        time.sleep(0.05)
    sweep.report(step=2)

class Apart(AgentProcesses):
    host = "10.9.0.1"
    def summon(self, node, invitation):
        own = sys.executable
        # Only the agent of that node is started on the other side of the link.
        agent_processes.sys = type("sys", (), {"executable": str(root / "in-far") if node == "far" else own})
        super().summon(node, invitation)

def until(is_so):
    while not is_so():
        time.sleep(0.02)

def num_lost():
    with contextlib.closing(sqlite3.connect(f"file:{root}/cut/sweep.db?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM events WHERE kind = 'Exited'").fetchone()[0]

def conduct():
    until(lambda: len(list(root.glob("*-far-*"))) == 2 and len(list(root.glob("*-near-*"))) == 3)  # both are full
    there = [path.name[0] for path in root.glob("*-far-*")]
    sh(*lose)
    until(lambda: num_lost() == 2)
    for number in there:
        with open(root / f"alive-{number}") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                (root / f"outlived-{number}").touch()
    for path in root.glob("*-near-*"):
        (root / f"go-{path.name[0]}").touch()
    until(lambda: any(list(root.glob(f"{number}-near-*")) for number in there))  # it starts again, on this side
    sh(*heal)
    until(lambda: len(list(root.glob("*-far-*"))) == 3)  # the node is used again
    for number in range(7):
        (root / f"go-{number}").touch()

if __name__ == "__main__":
    far = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
    try:
        while os.readlink(f"/proc/{far.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        inside = f"nsenter --target {far.pid} --net"
        sh("ip link set lo up")
        sh("ip link add near type veth peer name far")
        sh(f"ip link set far netns {far.pid}")
        sh("ip addr add 10.9.0.1/24 dev near")
        sh("INSIDE ip addr add 10.9.0.2/24 dev far")
        sh("ip link set near up", "INSIDE ip link set lo up", "INSIDE ip link set far up")
        (root / "in-far").write_text(f'#!/bin/sh\\nexec {inside} {sys.executable} "$@"\\n')
        (root / "in-far").chmod(0o755)
        agents._AGAIN_S = (0.5,)
        threading.Thread(target=conduct, daemon=True).start()
        sweep.run(
            train, name="cut", storage_path=root, resources_per_trial={"cpu": 1}, verbose=0,
            config={
                "i": sweep.grid_search(list(range(7))), "root": str(root),
                "far": os.readlink(f"/proc/{far.pid}/ns/net"),
            },
            engine=Apart(
                [Node("near", cpus=3, address="10.9.0.1"), Node("far", cpus=2, address="10.9.0.2")],
                heartbeat_timeout_s=2.0,
            ),
            failure_config=sweep.FailureConfig(max_failures=0),
        )
    finally:
        far.kill()
        far.wait()
"""


@functools.cache
def namespace() -> tuple[str, ...]:
    """Return the words before a command that give it a network of its own, or skip the test."""
    if shutil.which("ip") is None:
        pytest.skip("`ip` is not installed: apt-get install iproute2")
    for user in ((), ("--user", "--map-root-user")):
        words = ("unshare", *user, "--net")
        test = "ip link add near type veth peer name far"
        if subprocess.run([*words, *test.split()], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("network namespaces are refused here")


@pytest.mark.parametrize("how", LOSE)
def test_a_node_behind_a_dead_link_is_lost_its_trials_start_elsewhere_and_it_comes_back(tmp_path, how):
    lose, heal, why = LOSE[how]
    script, mark = tmp_path / "drive.py", uuid.uuid4().hex
    script.write_text(SCRIPT)
    command = [*namespace(), sys.executable, str(script), str(tmp_path), json.dumps([lose, heal])]
    with (tmp_path / "log").open("w") as log:
        driver = subprocess.Popen(
            command,
            env={**os.environ, MARK: mark, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=log,
            stderr=log,
        )
        try:
            code = driver.wait(100)
        finally:
            for pid in descendants(driver.pid):
                send(signal.SIGKILL, pid)
            driver.kill()
            driver.wait()
    assert code == 0, Path(log.name).read_text()
    assert not wait_until_gone(mark)
    assert not list(tmp_path.glob("outlived-*")), "a trial still ran when its node counted as lost"
    facts = [fact.event for fact in read_facts(tmp_path / "cut" / "sweep.db")]
    lost = [event.exit for event in facts if isinstance(event, Exited) and event.exit.kind is not ExitKind.FINISHED]
    assert [one.kind for one in lost] == [ExitKind.NODE_LOST] * 2
    assert all(f"node far was lost: {why}" in one.error for one in lost)
    there = [[node.id for node in event.nodes] for event in facts if isinstance(event, NodesChanged)]
    assert there == [["near", "far"], ["near"], ["near", "far"]]
    frame = sweep.ExperimentAnalysis(tmp_path / "cut").dataframe(full=True)
    assert list(frame["state"]) == ["finished"] * 7
    assert sorted(frame["attempt"]) == [1, 1, 1, 1, 1, 2, 2]
