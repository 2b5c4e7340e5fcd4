"""What there is to run on: detected, or declared with `sweep.init`."""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep.accelerators import gpu, host, tpu, tpu_host
from sweep.accelerators.gpu_types import labels_of
from sweep.checks import is_number, one_of, refuse, resource, whole
from sweep.core.config import env_vars_of
from sweep.core.resources import Device, Node, parse_bytes
from sweep.errors import ConfigError, ResourceError, refuse_unknown

# Arguments of Ray's `init` that say something about a cluster, its processes or its pages; there is none of them here.
_OF_A_CLUSTER = frozenset(
    """
    configure_logging dashboard_agent_listen_port dashboard_host dashboard_port driver_object_store_memory
    enable_object_reconstruction enable_resource_isolation huge_pages ignore_reinit_error include_dashboard
    include_webui job_config job_id labels load_code_from_local log_to_driver logging_config logging_format
    logging_level lru_evict namespace object_spilling_directory object_store_memory plasma_directory
    redis_max_memory storage system_reserved_cpu system_reserved_memory temp_dir use_pickle webui_host
    _driver_object_store_memory _enable_object_reconstruction _lru_evict _memory _metrics_export_port
    _node_ip_address _node_name _plasma_directory _redis_max_memory _redis_password _redis_username _system_config
    _temp_dir _tracing_startup_hook
    """.split()
)
# Keys of its `runtime_env` beside `env_vars`: trials have the files and packages of the driver.
_OF_AN_ENVIRONMENT = frozenset(
    """
    conda config container eager_install excludes image_uri java_jars mpi nsight pip py_executable py_modules uv
    worker_process_setup_hook working_dir
    """.split()
)
_NO_CLUSTER = "Give the address of a cluster of Ray: sweep.init(engine='ray', address='HOST:PORT')."
_NOT_HERE = {"redis_address": _NO_CLUSTER, "redis_password": _NO_CLUSTER, "node_ip_address": _NO_CLUSTER}


class _Inventory(tuple[Node, ...]):
    """The nodes, and what scripts written for Ray read of the cluster that `init` has joined or started there."""

    address_info: Mapping[str, str] = {"node_ip_address": "127.0.0.1"} | dict.fromkeys(
        ("address", "gcs_address", "redis_address", "webui_url", "session_dir", "object_store_address"), ""
    )
    dashboard_url = ""


@dataclass(frozen=True)
class _State:
    """What `init` was told."""

    nodes: tuple[Node, ...] | None = None  # declared; None: what is detected
    notices: tuple[str, ...] = ()  # what the user should know of them
    env_vars: Mapping[str, str] | None = None
    is_local_mode: bool = False
    cluster: Mapping[str, Any] | None = None  # what a sweep may use of one; None: it runs on this machine
    engine: str = "ray"  # what that is a cluster of
    is_shared: bool = True  # runs claim what their trials hold


_MACHINE = (
    *("num_cpus", "num_gpus", "num_tpus", "memory", "resources"),
    *("gpu_ids", "gpu_type", "gpu_memory", "tpu_type", "tpu_topology"),
)
OF_CLUSTER = (
    *("max_nodes", "cpus_per_node", "idle_s", "notice_command", "heartbeat_timeout_s"),
    *("accelerator_type", "label_selector", "autoscale", "hosts", "here", "sbatch"),
)
OF_ENGINE = {  # of these and the address, what each kind of cluster has that not all have
    "ray": ("address", "max_nodes", "cpus_per_node", "idle_s", "accelerator_type", "label_selector", "autoscale"),
    "agents": ("address", "hosts", "here"),
    "slurm": ("max_nodes", "cpus_per_node", "idle_s", "sbatch"),
}

_state = _State()
_warned: set[str] = set()  # arguments without effect that were named


@refuse_unknown(_NOT_HERE, who="sweep.init", unlisted=_OF_A_CLUSTER)
def init(
    address: str | None = None,
    *,
    engine: str | None = None,
    num_cpus: float | None = None,
    num_gpus: int | None = None,
    num_tpus: int | None = None,
    memory: int | str | None = None,
    resources: Mapping[str, float] | None = None,
    nodes: Sequence[Node] | None = None,
    gpu_ids: Sequence[str] | None = None,
    gpu_type: str | Sequence[str] | None = None,
    gpu_memory: int | str | Sequence[int | str] | None = None,
    tpu_type: str | None = None,
    tpu_topology: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    local_mode: bool | None = None,
    max_nodes: int | None = None,
    cpus_per_node: float | None = None,
    accelerator_type: str | None = None,
    label_selector: Mapping[str, str] | None = None,
    autoscale: Mapping[str, Any] | None = None,
    hosts: Sequence[str] | None = None,
    here: bool | None = None,
    sbatch: str | None = None,
    idle_s: float | None = None,
    notice_command: str | None = None,
    heartbeat_timeout_s: float | None = None,
    shared: bool | None = None,
    **of_a_cluster: Any,
) -> tuple[Node, ...]:
    """Declare what sweeps of this process may use; what is not named is detected.

    Declaring does not enforce: more CPUs than the machine has only means more trials at a time. Declared GPUs
    beyond the detected ones exist on paper, which is how requests for a large machine are tried out on a small one;
    but a `CUDA_VISIBLE_DEVICES` that is set is law.

    Args:
        address: "local": this machine. "HOST:PORT": a cluster of Ray, as with `engine="ray"`. "auto": the cluster that
            `$RAY_ADDRESS` names or that this machine belongs to, if one answers there; else this machine, with a
            warning. None: the same where `$RAY_ADDRESS` is set and nothing is declared, else this machine.
        engine: "ray": sweeps run on the nodes of a cluster of Ray, which is joined when a sweep begins: the one at
            `address` ("auto": the one that this machine belongs to), else the one that `ray.init` has joined. What the
            nodes have is read from the cluster. "agents": on this machine and on those that join by `sweep agent
            join`; `address` is the one at which they reach this machine, found by itself as a rule. "slurm": on
            the nodes of the job of Slurm that this process runs in; where there is none, and with `sbatch`, in jobs
            that are submitted when trials wait. "local": on this machine again.
        num_cpus: CPUs to hand out, any fraction.
        num_gpus, num_tpus: devices to hand out. Where `CUDA_VISIBLE_DEVICES` names GPUs, the first of those and never
            more; where it is empty, none if the machine has any.
        memory: bytes, or a text such as "16G".
        resources: other countable things by name.
        nodes: the whole inventory, instead of all the others but `runtime_env`.
        gpu_ids: which GPUs to hand out, as `CUDA_VISIBLE_DEVICES` would name them: indices or UUIDs. They count instead
            of that list, and a run says so where they differ.
        gpu_type: what the GPUs are, for instance "A100"; one for all, or one for each.
        gpu_memory: of each GPU, in bytes or as a text such as "80GiB"; one for all, or one for each.
        tpu_type: what the TPU chips are, for instance "v6e" or "TPU-V6E".
        tpu_topology: shape of the chips, for instance "2x4"; says how many there are, too.
        runtime_env: `{"env_vars": {name: value}}`, variables for the processes of trials, until `shutdown` or until
            others are given. Alone it leaves the inventory as it is. What else Ray has there, such as `working_dir`,
            has no effect on this machine, and is handed to Ray for the nodes of its cluster.
        local_mode: True: runs that are given no `engine` run their trials one after another in this process, for
            debugging, until `shutdown` or until False is given.
        max_nodes: of the cluster, how many nodes to use at most; where jobs of Slurm are submitted, 8 by default.
        cpus_per_node: CPUs to use at most on each node; the others stay free for what trials ask of Ray themselves.
        accelerator_type: use only nodes with such devices, for instance "A100".
        label_selector: use only nodes with these labels of Ray.
        autoscale: nodes that Ray's autoscaler may add: `{"node_type": {"CPU": 8, "GPU": 1}, "max": 8}`. Trials that
            only such nodes can hold wait for them instead of being refused.
        hosts: machines that are reached by ssh without a password, as ssh knows them; an agent is started on each.
        here: False: this machine only drives, and runs no trials.
        sbatch: options with which a job of Slurm is submitted for each node, and cancelled when it is given back:
            `"--partition=gpu --time=4:00:00 --account=lab --cpus-per-task=8 --gres=gpu:1"`.
        idle_s: seconds after which a node that runs nothing is given back, and taken again when trials wait for it; 30.
        notice_command: of the shell, tried on each node every 5 s: when it succeeds, the node will be taken away, and
            its trials save and go on elsewhere. What spot machines offer for this differs by provider.
        heartbeat_timeout_s: seconds without a word of the driver after which the processes on a node end; after twice
            as long the driver counts a silent node as lost.
        shared: False: sweeps of this process neither see what other sweeps of this user hold on this machine, nor are
            they seen by them, until `shutdown` or until True is given. Alone it leaves the inventory as it is.
        of_a_cluster: what only concerns a cluster of Ray, such as `include_dashboard`, has no effect. A warning names
            it, once. With `ignore_reinit_error=True` a call after another one changes nothing.

    Returns:
        The inventory; empty for a cluster. For scripts written for Ray it has `address_info` and `dashboard_url`.

    Raises:
        ResourceError: a negative or non-numeric amount, more GPUs than `CUDA_VISIBLE_DEVICES` allows, a TPU type or
            topology that does not exist.
        ConfigError: arguments that contradict each other, or of another form; the address of a cluster; two nodes, or
            two devices of one node, with the same id.
    """
    global _state
    given = {name: value for name, value in locals().items() if value is not None and name != "of_a_cluster"}
    if engine is not None:
        one_of("sweep.init: engine", engine, ("local", *OF_ENGINE))
    for name in ("shared", "local_mode"):
        if given.get(name, True) not in (True, False):
            refuse(f"sweep.init: {name}", given[name], "True or False")
    refuse_ray_client(address)
    silent = ""
    if given.keys() <= ({"runtime_env"} if address is None else {"address", "runtime_env", "shared"}):
        address, silent = _answering(address)
    machine = {name: given[name] for name in (*_MACHINE, "nodes") if name in given}
    cluster = {name: given[name] for name in OF_CLUSTER if name in given}
    state = _state if shared is None else replace(_state, is_shared=bool(shared))
    if engine in OF_ENGINE or (engine is None and address not in (None, "local", "auto")):
        engine = engine or "ray"
        of_one_node = ("nodes",) if engine == "agents" else machine  # where this machine is a node, too, it is declared
        _check_cluster(engine, given, [name for name in (*of_one_node, "local_mode") if name in given])
        if machine:
            node, notices = _one_machine(machine)
            state = replace(state, nodes=(node,), notices=notices)
        if runtime_env is not None:
            if not isinstance(runtime_env, Mapping):
                refuse("sweep.init: runtime_env", runtime_env, "values by name, such as {'working_dir': '.'}")
            of_trials = {"env_vars": runtime_env.get("env_vars")} if engine == "ray" else runtime_env
            state = replace(state, env_vars=env_vars_of(of_trials, "sweep.init"))
        if "address" in OF_ENGINE[engine]:
            cluster["address"] = address
        if engine == "ray":
            cluster["runtime_env"] = dict(runtime_env or {})
        _state = replace(state, cluster=cluster, engine=engine)
        return _Inventory()
    for name in cluster:
        raise ConfigError(f"sweep.init: {name} is for a cluster. Add engine={engine_with([name])!r}, or leave it out.")
    if of_a_cluster.pop("ignore_reinit_error", False) and _state.nodes is not None:
        return _Inventory(available())
    unused = list(of_a_cluster)
    if isinstance(runtime_env, Mapping):
        unused += [f"runtime_env[{key!r}]" for key in runtime_env if key in _OF_AN_ENVIRONMENT]
        runtime_env = {key: value for key, value in runtime_env.items() if key not in _OF_AN_ENVIRONMENT}
    if runtime_env is not None:
        state = replace(state, env_vars=env_vars_of(runtime_env, "sweep.init"))
    if nodes is not None:
        if len(machine) > 1:
            raise ConfigError("sweep.init takes either nodes= or the amounts of one machine, not both.")
        state = replace(state, nodes=checked_nodes(nodes), notices=(), cluster=None)
    elif machine or (runtime_env is None and shared is None):
        node, notices = _one_machine(machine)
        state = replace(state, nodes=(node,), notices=notices, cluster=None)
    if (engine, local_mode, runtime_env) != (None, None, None):
        state = replace(state, cluster=None)
    if local_mode is not None:
        state = replace(state, is_local_mode=bool(local_mode))
    _state = state
    _warn_of(unused)
    if silent:
        warnings.warn(f"sweep.init: {silent}; sweeps run on this machine.", stacklevel=3)
    return _Inventory(available())


def engine_with(names: Iterable[str]) -> str:
    """Return the first kind of cluster for which all these arguments are, as far as they are for one."""
    special = set(names) & {name for known in OF_ENGINE.values() for name in known}
    return next((engine for engine, known in OF_ENGINE.items() if special <= set(known)), "ray")


def refuse_ray_client(address: str | None) -> None:
    """Refuse an address of Ray Client.

    Raises:
        ConfigError: it is one.
    """
    if address is not None and address.startswith("ray://"):
        raise ConfigError(
            f"address={address!r} is one of Ray Client, through which no agent could be reached. Run the script on a "
            "node of the cluster, with address='auto', or submit it: ray job submit -- python script.py"
        )


def ray_address(given: str | None) -> str:
    """Return where the cluster is that an address means to Ray; empty: there is none.

    None is `$RAY_ADDRESS`; "auto" is that, too, else the cluster that `ray start` has joined here last, else one of
    which a process runs here.
    """
    address = given if given not in (None, "auto") else os.environ.get("RAY_ADDRESS") or given or ""
    if address != "auto":
        return address
    import psutil

    with suppress(OSError):
        return Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster").read_text().strip()
    words = (word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ())
    return next((word.partition("=")[2] for word in words if word.startswith("--gcs-address=")), "")


def _answering(address: str | None) -> tuple[str | None, str]:
    """Return the address of the cluster that "auto" or `$RAY_ADDRESS` mean in Ray, and why it is none; see `init`."""
    if address not in (None, "auto"):
        return address, ""
    named = ray_address(address)
    if named == "local":
        return address and named, ""
    if not named:
        is_asked = address or os.environ.get("RAY_ADDRESS")
        return "local", "this machine belongs to no cluster of Ray, which address='auto' means" if is_asked else ""
    host, _, port = named.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 2.0).close()
    except (OSError, ValueError, OverflowError):
        return "local", f"no cluster of Ray answers at {named}"
    return named, ""


def _one_machine(declared: Mapping[str, Any]) -> tuple[Node, tuple[str, ...]]:
    """Return this machine as it was declared, and what the user should know of its GPUs; see `init`."""
    num_cpus, num_gpus, num_tpus, memory, resources, gpu_ids, gpu_type, gpu_memory, tpu_type, tpu_topology = map(
        declared.get, _MACHINE
    )
    for name in _MACHINE[:3]:
        value, is_whole = declared.get(name), name != "num_cpus"
        if value is not None and not (is_number(value) and value >= 0 and (value % 1 == 0 or not is_whole)):
            resource.refuse(f"sweep.init: {name}", value, f"a {'whole ' * is_whole}number of at least 0")
    found = detected()[0]
    num_found = sum(device.kind == "gpu" for device in found.devices)
    note = found.gpu_note if gpu_ids is None and num_gpus in (None, num_found or None) else ""
    gpus = _gpus([d for d in found.devices if d.kind == "gpu"], num_gpus, gpu_ids, gpu_type, gpu_memory)
    tpus = _tpus([d for d in found.devices if d.kind == "tpu"], num_tpus, tpu_type, tpu_topology)
    cpus = found.cpus if num_cpus is None else float(num_cpus)
    num_bytes = found.memory if memory is None else parse_bytes(memory)
    node = Node("local", cpus, num_bytes, (*gpus, *tpus), dict(resources or {}), found.slice, note)
    return node, _notices_of(gpus, is_named=gpu_ids is not None)


def _check_cluster(engine: str, cluster: Mapping[str, Any], own: Iterable[str]) -> None:
    """Refuse values for a cluster that make no sense, and what was declared of this machine beside it."""
    for other, names in OF_ENGINE.items():
        for name in names:
            if name in cluster and name not in OF_ENGINE[engine]:
                raise ConfigError(
                    f"sweep.init: {name} is for engine={other!r}, and engine is {engine!r}. Leave it out."
                )
    for name in own:
        raise ConfigError(
            f"sweep.init: {name} declares this machine, and engine={engine!r} runs on the nodes of a cluster, which "
            "say what they have. Leave it out; max_nodes and cpus_per_node limit what a sweep uses."
        )
    if "max_nodes" in cluster:
        whole("sweep.init: max_nodes", cluster["max_nodes"], least=1)
    for name in ("cpus_per_node", "idle_s", "heartbeat_timeout_s"):
        value = cluster.get(name)
        if value is not None and not (is_number(value) and value > 0):
            raise ConfigError(f"sweep.init: {name} is {value!r}; expected a number above 0.")
    hosts = cluster.get("hosts", ())
    if isinstance(hosts, str) or not all(isinstance(one, str) and one and one[0] != "-" for one in hosts):
        refuse("sweep.init: hosts", hosts, "names of machines in a list, such as ['node1', 'me@node2']")
    if cluster.get("here", True) not in (True, False):
        refuse("sweep.init: here", cluster["here"], "True or False")
    if not isinstance(cluster.get("sbatch", ""), str):
        refuse("sweep.init: sbatch", cluster["sbatch"], "options in a text, such as '--partition=gpu --time=4:00:00'")
    if not isinstance(cluster.get("accelerator_type", ""), str):
        refuse("sweep.init: accelerator_type", cluster["accelerator_type"], "a text, such as 'A100'")
    labels = cluster.get("label_selector", {})
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for text in (*labels, *labels.values())):
        refuse("sweep.init: label_selector", labels, "texts by name, such as {'zone': 'a'}")
    scale = cluster.get("autoscale", {"node_type": {}})
    is_mapping = isinstance(scale, Mapping) and isinstance(scale.get("node_type"), Mapping)
    if not is_mapping or {*scale} - {"node_type", "max"}:
        raise ConfigError(
            f"sweep.init: autoscale is {scale!r:.100}; expected {{'node_type': {{'CPU': 8, 'GPU': 1}}, 'max': 8}}."
        )


def _warn_of(unused: Iterable[str]) -> None:
    """Name arguments that have no effect, each once, in a warning at the line that calls `init`."""
    new = [name for name in unused if name not in _warned]
    _warned.update(new)
    if new:
        warnings.warn(
            f"sweep.init: {', '.join(new)} {'has' if len(new) == 1 else 'have'} no effect: there is no cluster; sweeps "
            "run on this machine.",
            stacklevel=4,
        )


def _gpus(
    found: list[Device],
    number: int | None,
    ids: Sequence[str] | None,
    types: str | Sequence[str] | None,
    memory: int | str | Sequence[int | str] | None,
) -> list[Device]:
    """Return the declared GPUs: the named ones, else the first detected ones, and then some on paper."""
    if ids is not None:
        gpus = _named_gpus(ids)
        if number is not None and number != len(gpus):
            raise ConfigError(
                f"sweep.init: gpu_ids names {len(gpus)} and num_gpus is {number}; expected the same number. "
                "Leave num_gpus out."
            )
    elif number is not None:
        gpus = found[: int(number)] + _gpus_on_paper(int(number), len(found))
    else:
        gpus = found
    names = _for_each("gpu_type", types, len(gpus))
    amounts = _for_each("gpu_memory", memory, len(gpus))
    return [_as_declared(*declared) for declared in zip(gpus, names, amounts, strict=True)]


def _gpus_on_paper(number: int, num_found: int) -> list[Device]:
    """Return the GPUs that are declared beyond the detected ones, if the parent's list of devices allows them."""
    if number <= num_found:
        return []
    there, seen = gpu.count(), gpu.look()
    if seen.law and (there or not seen.is_blank):
        allowed = f"{num_found} GPU{'' if num_found == 1 else 's'}"
        raise ResourceError(
            f"sweep.init: num_gpus is {number} and this process may use {allowed}: {seen.why}. Lower num_gpus or "
            f"change {seen.law.partition('=')[0]}; gpu_ids=[...] or nodes=[...] declare other devices."
        )
    first = max(there, num_found)
    return [Device(str(index), "gpu") for index in range(first, first + number - num_found)]


def checked_nodes(nodes: Iterable[Node], who: str = "sweep.init") -> tuple[Node, ...]:
    """Return a declared inventory in which (node, device) names one thing only.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(nodes, Iterable):
        raise ConfigError(f"{who}: nodes is {nodes!r:.100}; expected a list of sweep.Node.")
    found = tuple(nodes)
    for node in found:
        if not isinstance(node, Node):
            raise ConfigError(f"{who}: nodes has {node!r:.100}; expected sweep.Node(...).")
    if (twice := _twice(node.id for node in found)) is not None:
        raise ConfigError(f"{who}: nodes has two with the id {twice!r}; expected an id of its own for each.")
    for node in found:
        if (twice := _twice(device.id for device in node.devices)) is not None:
            raise ConfigError(
                f"{who}: the node {node.id!r} has two devices with the id {twice!r}; expected an id of its own for "
                "each. Devices of different nodes may have the same."
            )
    return found


def _twice(ids: Iterable[str]) -> str | None:
    return next((name for name, number in Counter(ids).items() if number > 1), None)


def _as_declared(device: Device, name: Any, memory: Any) -> Device:
    """Return a GPU with another type and another amount of memory, where they are given."""
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ConfigError(f"sweep.init: gpu_type has {name!r}; expected a text such as 'A100'.")
    if name is None and memory is None:
        return device
    try:
        num_bytes = device.memory if memory is None else parse_bytes(memory)
    except ResourceError:
        raise ResourceError(
            f"sweep.init: gpu_memory has {memory!r}; expected bytes or a text such as '80GiB'."
        ) from None
    name = device.type if name is None else name.strip()
    is_amd = re.match(r"amd\b", name, re.IGNORECASE) is not None
    vendor = device.vendor or ("amd" if is_amd else "")
    return replace(device, type=name, memory=num_bytes, labels=labels_of(name, num_bytes), vendor=vendor)


def _for_each(argument: str, value: Any, number: int) -> list[Any]:
    """Return one value for each of the GPUs, None where nothing is given."""
    if value is None:
        return [None] * number
    if number == 0:
        raise ConfigError(f"sweep.init: {argument} is {value!r} and there is no GPU. Give num_gpus or gpu_ids as well.")
    if isinstance(value, (list, tuple)):
        if len(value) != number:
            raise ConfigError(
                f"sweep.init: {argument} has {len(value)} entries and there are {number} GPUs; expected one value, or "
                "one for each GPU."
            )
        return list(value)
    return [value] * number


def _named_gpus(ids: Any) -> list[Device]:
    """Return the GPUs of these names: what is known of those that this machine has, the others on paper."""
    if not isinstance(ids, (list, tuple)):
        raise ConfigError(f"sweep.init: gpu_ids is {ids!r}; expected a list of indices or UUIDs, such as ['0', '1'].")
    named: dict[str, Device] = {}
    for given in ids:
        name = str(given).strip() if isinstance(given, int | str) and not isinstance(given, bool) else ""
        if not name or "," in name or name.startswith("-"):
            raise ConfigError(f"sweep.init: gpu_ids has {given!r}; expected the index or the UUID of one GPU.")
        # To both vendors it is the only one, so that each reads the name by its own rules.
        environ = {**os.environ, "CUDA_VISIBLE_DEVICES": name, "HIP_VISIBLE_DEVICES": name}
        there = gpu.detect(environ, trust=False)
        device = there[0] if there else Device(name, "gpu", visible=name)
        if device.id in named:
            raise ConfigError(f"sweep.init: gpu_ids names the GPU {device.id} twice; expected each once.")
        named[device.id] = device
    return list(named.values())


def _notices_of(gpus: Sequence[Device], *, is_named: bool) -> tuple[str, ...]:
    """Return what the user should know of the GPUs that were declared."""
    seen = gpu.look()
    if not is_named:
        return seen.notices if gpus else ()
    allowed = {device.id for device in seen.devices}
    hidden = [device.visible or device.id for device in gpus if device.id not in allowed]
    if not hidden or not seen.law:
        return ()
    return (f"sweep.init(gpu_ids=...) names {', '.join(hidden)}, which {seen.law} does not; gpu_ids counts",)


def _tpus(found: list[Device], number: int | None, name: str | None, topology: str | None) -> list[Device]:
    """Return the declared TPU chips: the first detected ones, and then some on paper."""
    if name is not None and not isinstance(name, str):
        raise ResourceError(f"sweep.init: tpu_type is {name!r}; expected a text such as 'v6e'.")
    try:
        generation = None if name is None else tpu.parse_generation(name)
        chips = None if topology is None else _chips_of(topology, generation)
    except ResourceError as error:
        raise ResourceError(f"sweep.init: {error}") from None
    if number is not None and chips is not None and number != chips:
        raise ConfigError(
            f"sweep.init: tpu_topology {topology!r} has {chips} chips and num_tpus is {number}; expected the same "
            "number. Leave one of them out."
        )
    number = chips if number is None else int(number)
    paper = [Device(f"tpu{i}", "tpu", visible=str(i), vendor="google") for i in range(len(found), number or 0)]
    tpus = found if number is None else found[:number] + paper
    if generation is None:
        return tpus
    if not tpus:
        raise ConfigError(f"sweep.init: tpu_type is {name!r} and there is no TPU chip. Give num_tpus or tpu_topology.")
    return [replace(chip, type=generation.type, labels=generation.labels) for chip in tpus]


def _chips_of(topology: str, generation: tpu.Generation | None) -> int:
    """Return the number of chips of a topology; of a known generation only a topology that it has."""
    if generation is not None:
        return math.prod(tpu.parse_topology(topology, generation))
    if not isinstance(topology, str) or re.fullmatch(r"\s*[1-9]\d*(x[1-9]\d*){1,2}\s*", topology.lower()) is None:
        raise ResourceError(f"topology is {topology!r}; expected numbers of chips with x between them, such as '2x4'.")
    return math.prod(int(number) for number in topology.lower().split("x"))


def env_vars() -> dict[str, str]:
    """Return the environment variables that `init` was given for the processes of trials."""
    return dict(_state.env_vars or {})


def notices() -> tuple[str, ...]:
    """Return what the user should know of how the GPUs of `available()` were found."""
    return _state.notices if _state.nodes is not None else gpu.look().notices


def shutdown() -> None:
    """Forget what was declared."""
    global _state
    _state = _State()
    _warned.clear()


def default_engine() -> str:
    """Return the name of the engine of a run that is given none: another than "local" where `init` has said so."""
    return _state.engine if _state.cluster is not None else "inline" if _state.is_local_mode else "local"


def cluster_options(engine: str = "ray") -> dict[str, Any]:
    """Return what `init` was told of a cluster of this kind."""
    return dict(_state.cluster or {}) if _state.engine == engine else {}


def is_shared() -> bool:
    """Whether a run claims what its trials hold, so that the sweeps of this machine keep off each other's devices."""
    return _state.is_shared


def is_initialized() -> bool:
    """Whether something was declared."""
    return any(one is not None for one in (_state.nodes, _state.env_vars, _state.cluster))


def available() -> tuple[Node, ...]:
    """Return the declared inventory, else the detected one."""
    return _state.nodes if _state.nodes is not None else detected()


def cluster_resources() -> dict[str, float]:
    """Return the totals of the inventory, under the names that requests use in upper case (`CPU`, `GPU`, `memory`).

    With `engine="ray"` those of the cluster that this process has joined.
    """
    if (ray := _joined_ray()) is not None:
        return dict(ray.cluster_resources())
    totals: dict[str, float] = defaultdict(float)
    for node in available():
        totals["CPU"] += node.cpus
        for device in node.devices:
            totals[device.kind.upper()] += 1
        if node.memory:
            totals["memory"] += node.memory
        for name, amount in node.custom.items():
            totals[name] += amount
    return dict(totals)


def available_resources() -> dict[str, float]:
    """Return what the next run of this process may hand out: all of `cluster_resources`, for a run that has ended holds
    nothing. What a run holds at this moment is shown by `sweep why`. With `engine="ray"` what is free in the cluster.
    """
    if (ray := _joined_ray()) is not None:
        return dict(ray.available_resources())
    return cluster_resources()


def _joined_ray() -> Any:
    """Return the module `ray` where sweeps run on its cluster and this process has joined it; None elsewhere."""
    ray = sys.modules.get("ray")
    return ray if default_engine() == "ray" and ray is not None and ray.is_initialized() else None


def detected() -> tuple[Node, ...]:
    """Return this machine: the CPUs and the memory that this process may use, its GPUs and TPU chips."""
    chips = tpu_host.detect()
    slice_name = tpu_host.describe().slice_name if chips else ""
    gpus = gpu.look()
    return (Node("local", host.cpus(), host.memory(), (*gpus.devices, *chips), slice=slice_name, gpu_note=gpus.why),)
