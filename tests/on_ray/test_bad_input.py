"""What is asked of a cluster of Ray and cannot be had: one clear error each, before the first trial, nothing left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from click.testing import CliRunner
from mounts import with_mounts

import sweep
from sweep.cli.main import sweep as command_line
from sweep.errors import ConfigError, ResourceError, SweepError

pytestmark = pytest.mark.ray


def train(config: dict[str, Any]) -> None:
    sweep.report(score=1)


def refused(kind: type[SweepError], *words: str, **init: Any) -> str:
    """Begin a sweep that is refused, and return what is said."""
    sweep.init(engine="ray", **init)
    began = time.monotonic()
    with pytest.raises(kind) as error:
        sweep.run(train, verbose=0, storage_path="/nonexistent-and-not-made")
    assert time.monotonic() - began < 30  # Ray itself would look for minutes
    said = str(error.value)
    for word in words:
        assert word in said, said
    assert not Path("/nonexistent-and-not-made").exists()
    return said


# --- no cluster ---


def test_an_address_where_nothing_listens_is_refused_in_seconds():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused(ConfigError, f"127.0.0.1:{port}", "Connection refused", "ray start --head", address=f"127.0.0.1:{port}")


def test_the_port_of_ray_client_is_refused(cluster, monkeypatch):
    monkeypatch.setattr("sweep.engines.cluster.ray._CLIENT_PORT", cluster.address.rpartition(":")[2])
    refused(ConfigError, "has the port of Ray Client", "6379", address=cluster.address)


def test_a_reference_to_an_object_in_rays_store_is_refused_wherever_it_is_given(joined, tmp_path):
    reference = joined.put([1, 2])

    def captures(config):
        sweep.report(score=len(joined.get(reference)))

    def given(config, data):
        sweep.report(score=len(data))

    sweep.init(engine="ray")
    for what, trainable, config in (
        ("config['data'] is a", train, {"data": reference}),
        ("captures `reference`, a", captures, {}),
        ("the object 'data'", sweep.with_parameters(given, data=reference), {}),
    ):
        with pytest.raises(SweepError) as error:
            sweep.run(trainable, config=config, verbose=0, storage_path=tmp_path)
        assert what in str(error.value)
        assert "ray.get(ref)" in str(error.value)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_address_where_something_else_listens_is_refused_in_seconds(answer):
    def serve() -> None:
        peer, _ = other.accept()
        with peer:
            peer.recv(100)
            peer.sendall(answer)
            is_refused.wait(20)

    is_refused = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        refused(ConfigError, "something else listens there", address=f"127.0.0.1:{other.getsockname()[1]}")
    is_refused.set()
    thread.join()


def test_the_address_of_a_client_and_one_without_a_port_are_refused_by_their_form():
    with pytest.raises(ConfigError, match=r"Ray Client.*ray job submit"):
        sweep.init(engine="ray", address="ray://10.0.0.1:10001")
    refused(ConfigError, "expected 'auto' or 'HOST:PORT'", address="10.0.0.1")


def test_no_address_and_no_connection_names_both_ways(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    refused(ConfigError, "address='auto'", "ray.init(...)")


def test_another_address_than_that_of_the_connection_is_refused(joined):
    refused(ConfigError, "10.9.8.7:1", "ray.shutdown()", address="10.9.8.7:1")


def test_a_directory_for_the_nodes_after_the_connection_is_refused_and_one_that_ray_refuses_is_said(joined, cluster):
    env = {"working_dir": "."}
    refused(ConfigError, "ray.init(runtime_env=...)", runtime_env=env)
    joined.shutdown()
    refused(ConfigError, "Ray refuses", "nowhere", address=cluster.address, runtime_env={"working_dir": "nowhere"})
    assert not joined.is_initialized()


TOKEN = """
import sys
from pathlib import Path
from ray.cluster_utils import Cluster
made = Cluster(
    initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.2"}
)
made.add_node(node_ip_address="127.0.0.3", num_cpus=2)
print(made.address, flush=True)
sys.stdin.read()
made.shutdown()
"""
SCRIPT = """
import sys
import sweep
address = sys.argv[1]
def train(config):
    import ray
    ray.init(address=address, log_to_driver=False)
    sweep.report(score=len(ray.nodes()))
sweep.init(engine="ray", address=sys.argv[3], cpus_per_node=1)
try:
    print(sweep.run(train, verbose=0, storage_path=sys.argv[2], metric="score", mode="max").best_result["score"])
except sweep.errors.ConfigError as error:
    print(error)
"""


def test_a_cluster_with_tokens_takes_the_right_one_and_another_is_named_at_once(tmp_path):
    pytest.importorskip("ray")
    right = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": {**os.environ, **right}}
    with subprocess.Popen([sys.executable, "-c", TOKEN], **options) as made:
        try:
            address = made.stdout.readline().strip()
            for changed, named, words in (
                ({}, address, "2\n"),
                ({"RAY_AUTH_MODE": None, "RAY_ADDRESS": address}, "auto", "2\n"),  # as `ray.init` does it then
                ({"RAY_AUTH_TOKEN": "b" * 64}, address, "cannot be joined: RPC error: InvalidAuthToken: "),
                ({"RAY_AUTH_MODE": "disabled"}, address, "RAY_AUTH_MODE is currently 'disabled'"),
            ):
                began = time.monotonic()
                command = [sys.executable, "-c", SCRIPT, address, str(tmp_path), named]
                environ = {name: value for name, value in {**os.environ, **right, **changed}.items() if value}
                ended = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120, check=False)
                assert words in ended.stdout, ended.stdout + ended.stderr
                assert words == "2\n" or time.monotonic() - began < 15  # Ray itself tries for 20 s
        finally:
            made.stdin.close()
            made.wait(60)


# --- another Ray ---


def test_without_ray_the_error_says_what_to_install(tmp_path):
    code = """
        import sys
        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "ray":
                    raise ModuleNotFoundError("No module named 'ray'", name="ray")
        sys.meta_path.insert(0, Blocker())
        import sweep
        sweep.init(engine="ray", address="127.0.0.1:1")
        try:
            sweep.run(lambda config: None, verbose=0, storage_path=sys.argv[1])
        except sweep.errors.ConfigError as error:
            print(error)
    """
    lines = [line[8:] for line in code.splitlines()]
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), str(tmp_path / "made")], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout.startswith("engine='ray' needs Ray: pip install 'ray>=2.50'"), ended.stderr
    assert not (tmp_path / "made").exists()


def test_another_major_version_of_ray_is_refused(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "__version__", "3.0.1")
    refused(ConfigError, "works with Ray 2", "3.0.1", address="127.0.0.1:1")


def test_a_cluster_of_another_version_of_ray_is_refused_with_what_ray_says(cluster, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "__version__", "2.51.0")
    refused(ConfigError, "2.51.0", "cannot be joined", address=cluster.address)
    assert not ray.is_initialized()


# --- nodes that do not fit ---


def test_a_request_that_no_node_can_hold_is_refused_with_the_arithmetic(run, tmp_path, left):
    with pytest.raises(ResourceError) as error:
        run(train, resources_per_trial={"cpu": 6})
    assert "6" in str(error.value)
    assert "4" in str(error.value)
    assert left(tmp_path / "made") == []


def test_wishes_that_no_node_fulfils_are_refused_with_what_there_is(cluster, left, tmp_path):
    said = refused(ResourceError, "accelerator_type='H100'", address=cluster.address, accelerator_type="H100")
    assert "127.0.0.3 with CPU=4, GPU=2" in said
    refused(ResourceError, "zone", address=cluster.address, label_selector={"zone": "b"})
    assert left(tmp_path) == []


def test_a_driver_in_whose_mounts_the_directory_is_another_is_told_so(cluster, tmp_path, left):
    code = f"""
import sweep
sweep.init(engine="ray", address={cluster.address!r})
def train(config):
    sweep.report(score=1)
try:
    sweep.run(train, verbose=0, storage_path={str(tmp_path / "shared")!r}, name="made")
except sweep.errors.ExperimentError as error:
    print(error)
"""
    (tmp_path / "shared").mkdir()
    command = with_mounts([f"mount -t tmpfs -o size=20m tmpfs {tmp_path / 'shared'}"], [sys.executable, "-c", code])
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
    assert "does not see the files" in ended.stdout, ended.stderr
    assert left(tmp_path / "shared" / "made") == []


# --- contradictions ---


def test_nodes_of_this_machine_and_a_cluster_contradict(cluster, tmp_path):
    sweep.init(engine="ray", address=cluster.address)
    with pytest.raises(ConfigError, match="nodes="):
        sweep.run(train, nodes=[sweep.Node(cpus=2)], verbose=0, storage_path=tmp_path)


def test_the_command_line_refuses_an_address_of_another_engine(tmp_path):
    (tmp_path / "mine.py").write_text("def train(config):\n    return {'score': 1}\n")
    arguments = ["run", f"{tmp_path}/mine.py:train", "--engine", "local", "--address", "auto"]
    ended = CliRunner().invoke(command_line, arguments)
    assert isinstance(ended.exception, ConfigError) or ended.exit_code != 0
    assert "--address" in (str(ended.exception) + ended.output)


cloudpickle.register_pickle_by_value(sys.modules[__name__])
