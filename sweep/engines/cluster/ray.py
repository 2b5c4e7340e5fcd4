"""A cluster of Ray: Ray Core places, starts and watches one actor on each node, which is the node's agent.

What happens inside a machine is the local engine's. An actor holds in Ray what the sweep may use of its node, so that
other jobs of the cluster do not take it, and Ray ends it with the driver. Only calls that start and watch go through
Ray; commands and events have a connection of their own (see `handshake`), which carries five times as many.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import logging
import math
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from sweep.accelerators import gpu, tpu
from sweep.accelerators.gpu_types import labels_of
from sweep.accelerators.inventory import ray_address, refuse_ray_client
from sweep.core.resources import Device, Node
from sweep.engines.base import Engine, EngineContext
from sweep.engines.cluster.agent import Agent
from sweep.engines.cluster.agents import Bundles, Cluster, covers, unheld
from sweep.engines.cluster.handshake import Invitation, this_machine
from sweep.engines.cluster.heartbeat import HEARTBEAT_TIMEOUT_S
from sweep.errors import ConfigError, ExperimentError, ResourceError

_LOOK_S = 2.0  # between two looks at the cluster's nodes
_LOOKS = 4  # of these until one at what waits in the cluster
_REACH_S = 5.0
_CLIENT_PORT = "10001"  # of Ray Client's server
_SETTLE_S = 5.0  # for what was given back to be seen as free by all of Ray; it takes a tenth of a second as a rule
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # a client's preface and its settings
_SETTINGS = 4  # type of the frame that an HTTP/2 server, such as Ray's control service, says first
_TYPE = "accelerator_type:"
# Share of a node's memory above which Ray ends workers, and how much earlier an agent ends a trial.
_RAYS_MEMORY_LIMIT, _BEFORE_RAY = 0.95, 0.04
_LIMIT_VARIABLE = "RAY_memory_usage_threshold"
# Of a node's resources in Ray, those that are no things to hand out.
_NO_AMOUNT = re.compile(r"node:|accelerator_type:|object_store_memory$|memory$")
_NAMED = ("CPU", "GPU", "TPU", "memory")
_DEVICES = {"CPU", "GPU", "TPU"}
_MARK = " #"  # in the name of an actor, before what makes it the only one of that name
_HEAD = re.compile(r"TPU-.*-head$")  # Ray's way to have one worker per slice


@dataclass(frozen=True)
class RayOptions:
    """What a sweep may use of a cluster of Ray; see `sweep.init`."""

    address: str | None = None
    max_nodes: int | None = None
    cpus_per_node: float | None = None
    accelerator_type: str = ""
    label_selector: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    autoscale: Mapping[str, Any] | None = None
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    idle_s: float = 30.0
    notice_command: str = ""


@dataclass(eq=False)
class _Machine:
    """What the sweep holds of a node of the cluster; what comes free there later makes another one."""

    key: str  # Ray's id of the node
    name: str
    address: str
    amounts: dict[str, float]  # what its agent holds in Ray
    of_type: str  # of its accelerators
    slice: str  # of TPU chips that it is a host of
    node: Node | None = None  # what the agent says there is; None: it has not come yet
    actor: Any = None  # the agent
    facts: Any = None
    running: Any = None  # its call that lasts as long as it does
    began: float = field(default_factory=time.monotonic)
    left: float = math.inf  # when it was to be given back


class RayCluster(Cluster):
    """The nodes of a cluster of Ray, from `connect` until `close`."""

    def __init__(self, options: RayOptions, say: Callable[[str], None] | None = None) -> None:
        """Join the cluster and start an agent on each node that the sweep may use.

        Raises:
            ConfigError: it cannot be joined.
            ResourceError: no node has what the options ask for.
        """
        self._options = options
        self.heartbeat_timeout_s, self.idle_s = options.heartbeat_timeout_s, options.idle_s
        self.notice_command = options.notice_command
        self.notices: list[str] = []
        self._machines: dict[str, _Machine] = {}  # by name
        self._rest: tuple[Node, ...] = ()  # nodes of the cluster of which others hold something
        self._draining: frozenset[str] = frozenset()  # nodes that Ray, or who provides them, will take away
        self._num_declared = 0  # nodes that are there of the shape that `autoscale` declares
        self._demand: tuple[Bundles, Bundles] | None = None  # what waits and what runs; None: nobody has said
        self._is_met = False  # a node was idle since: more are of no use
        self._say: Callable[[str], None] = say or self.notices.append  # until there is an engine
        self._waited: set[tuple[Any, ...]] = set()  # what waited at the last look, until something was said of it
        self._has_told = False
        self._is_closed = False
        self._ray, self._is_ours = _join(options)
        # Ray uploads local directories with the connection only; actors have what it has.
        self._runtime_env = {} if self._is_ours else dict(options.runtime_env)
        self._watcher = threading.Thread(target=self._watch, name="sweep-ray", daemon=True)
        try:
            self._find_some()
            self._await_facts()
        except BaseException:
            self.close()
            raise
        self._watcher.start()

    # --- what a run sees ---------------------------------------------------------------------------------------------

    def __call__(self, context: EngineContext) -> Engine:
        self._say = context.notice or self._say
        while context.notice is not None and self.notices:  # that came before there was somebody to tell
            self._say(self.notices.pop(0))
        return super().__call__(context)

    def nodes(self) -> Sequence[Node]:
        is_near = self.host == Cluster.host  # all nodes are on this machine, and ranks are reached on loopback
        return tuple(
            replace(one.node, address="" if is_near and not one.address.startswith("127.") else one.address)
            for one in list(self._machines.values())
            if one.node is not None and one.left == math.inf
        )

    @property
    def away(self) -> Sequence[Node]:
        """The nodes of which others hold something, whole, those whose agents start or were just given back, and those
        that `autoscale` declares and are not there."""
        others = [
            one.node or _declared_node(one.name, one.amounts, one.of_type)
            for one in list(self._machines.values())
            if (one.node is None or one.left < math.inf) and not self.problem(one.name)
        ]
        declared = self._options.autoscale
        if not declared:
            return (*self._rest, *others)
        number = max(0, int(declared.get("max", 1)) - self._num_declared)
        amounts = dict(declared.get("node_type", {}))
        return (*self._rest, *others, *(_declared_node(f"autoscaled-{index + 1}", amounts) for index in range(number)))

    def leaving(self) -> Collection[str]:
        return [one.name for one in list(self._machines.values()) if one.key in self._draining]

    def summon(self, node: str, invitation: Invitation) -> None:
        machine = self._machines.get(node)
        if machine is None:
            return
        if machine.actor is None or machine.running is not None:  # the one before is lost, and may not know it
            with contextlib.suppress(Exception):
                self._ray.kill(machine.actor)
            self._start_actor(machine)
        machine.running = machine.actor.run.remote(invitation.to_json())

    def problem(self, node: str) -> str:
        machine = self._machines.get(node)
        if machine is None:
            return "it is no longer in the cluster"
        for call in (machine.running, machine.facts):
            if call is not None and (why := self._failure_of(call)):
                return why
        return ""

    def request(self, waiting: Bundles, running: Bundles) -> None:
        self._demand, self._is_met = (waiting, running), False
        if self._options.autoscale:
            self._ask_autoscaler([*waiting, *running])

    def _ask_autoscaler(self, bundles: Bundles) -> None:
        """Have Ray's autoscaler make room for these bundles, all at a time."""
        from ray.autoscaler import sdk

        with contextlib.suppress(Exception):  # a cluster without an autoscaler, or one that is going away
            sdk.request_resources(bundles=[dict(bundle) for bundle in bundles])

    def dismiss(self, node: str) -> None:
        machine = self._machines.get(node)
        if machine is not None:
            machine.left, self._is_met = time.monotonic(), True

    def close(self) -> None:
        """End the agents, give back what they hold, and leave the cluster if this run has joined it."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._watcher.is_alive():
            self._watcher.join()
        if self._options.autoscale:
            self._ask_autoscaler(())
        running = [machine.running for machine in self._machines.values() if machine.running is not None]
        with contextlib.suppress(Exception):  # a cluster that is going away, too
            if running:
                self._ray.wait(running, num_returns=len(running), timeout=2 * self.heartbeat_timeout_s)
            for machine in self._machines.values():
                if machine.actor is not None:
                    self._ray.kill(machine.actor)
            self._await_return()
        with contextlib.suppress(Exception):
            if self._is_ours:
                self._ray.shutdown()
        self._machines.clear()

    def _await_return(self) -> None:
        """Wait until Ray knows that the nodes are free again: the next sweep asks it at once."""
        give_up = time.monotonic() + _SETTLE_S
        while time.monotonic() < give_up:
            free = self._free()
            held = [one for one in self._machines.values() if one.actor is not None and one.key in free]
            if all(covers(free[one.key], one.amounts) for one in held):
                return
            time.sleep(0.02)

    # --- the cluster -------------------------------------------------------------------------------------------------

    def _find_some(self) -> None:
        """Find the first nodes; what another sweep has just given back may take a moment to be free."""
        give_up = time.monotonic() + _SETTLE_S
        while not self._look() and self._rest and time.monotonic() < give_up:
            time.sleep(0.1)
        if not self._machines and self._rest:
            self._say(f"the sweep waits for nodes of Ray: {'; '.join(node.id for node in self._rest[:4])}")
        elif not self._machines and not self.away:
            raise ResourceError(self._why_none())

    def _free(self) -> dict[str, dict[str, float]]:
        """Return what nobody holds of each node, by Ray's id of it."""
        free: dict[str, dict[str, float]] = self._ray._private.state.available_resources_per_node()
        return free

    def _look(self) -> bool:
        """Take in which nodes there are, and what of them is free that trials wait for; returns whether `nodes`, `away`
        or `leaving` has changed."""
        before = set(self._machines), self.away, self._draining
        self._look_for_draining()
        alive = {node["NodeID"]: node for node in sorted(self._ray.nodes(), key=_order) if node["Alive"]}
        for machine in list(self._machines.values()):
            if machine.key not in alive or self._is_over(machine):
                with contextlib.suppress(Exception):  # it is gone
                    self._ray.kill(machine.actor)
                del self._machines[machine.name]
        totals = {key: self._amounts(node, node["Resources"]) for key, node in alive.items()}
        for key, amounts in self._useful(alive, totals):
            node = alive[key]
            name, slice_name = _name_of(node, self._machines), node.get("Labels", {}).get("ray.io/tpu-slice-name", "")
            machine = _Machine(key, name, node["NodeManagerAddress"], amounts, _type_of(node), slice_name)
            self._machines[name] = machine
            self._start_actor(machine)
        rest = [
            (key, total)
            for key, total in totals.items()
            if total and not any(covers(one.amounts, total) for one in self._on(key)) and self._may_use(key)
        ]
        holders = self._holders() if rest else {}
        self._rest = tuple(
            _declared_node(f"{alive[key]['NodeManagerAddress']}{holders.get(key, '')}", total, _type_of(alive[key]))
            for key, total in rest
        )
        shape = dict((self._options.autoscale or {}).get("node_type", {}))
        self._num_declared = sum(covers(node["Resources"], shape) for node in alive.values())
        return before != (set(self._machines), self.away, self._draining)

    def _look_for_draining(self) -> None:
        """Take in which nodes are drained: by `ray drain-node`, or before a spot machine is taken away."""
        from ray.autoscaler.v2.sdk import get_cluster_status

        with contextlib.suppress(Exception):  # a cluster that does not tell; what is known of it stays
            status = get_cluster_status(self._ray.get_runtime_context().gcs_address)
            nodes = (*status.active_nodes, *status.idle_nodes)
            self._draining = frozenset(node.node_id or "" for node in nodes if node.node_status == "DRAINING")

    def _is_over(self, machine: _Machine) -> bool:
        """Whether it was given back and has ended, or never got what it asked for."""
        now = time.monotonic()
        if machine.node is None:
            return now > machine.began + self.start_s and not self.problem(machine.name)
        if machine.left == math.inf:
            return False
        has_ended = machine.running is None or bool(self._ray.wait([machine.running], timeout=0)[0])
        return now > machine.left + (0 if has_ended else 2 * self.heartbeat_timeout_s)

    def _on(self, key: str) -> list[_Machine]:
        return [one for one in self._machines.values() if one.key == key]

    def _may_use(self, key: str) -> bool:
        """Whether the options allow for this node beside those that are used."""
        used, limit = {one.key for one in self._machines.values()}, self._options.max_nodes
        return limit is None or key in used or len(used) < limit

    def _useful(
        self, alive: Mapping[str, Any], totals: Mapping[str, Mapping[str, float]]
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield nodes with what is free there, as long as that is what trials wait for."""
        waiting = None if self._demand is None else list(self._demand[0])
        if waiting is not None and self._is_met:
            return
        free = self._free()
        for key, node in alive.items():
            ours = self._on(key)
            if (
                key in self._draining
                or not self._may_use(key)
                or any(one.node is None or one.left < math.inf for one in ours)
            ):
                continue  # those that come or leave show soon what is free
            amounts = self._amounts(node, free.get(key, {}))
            used = sum(one.amounts.get("CPU", 0.0) for one in ours)
            if "CPU" in amounts:
                amounts["CPU"] = min(amounts["CPU"], totals[key]["CPU"] - used)
                amounts = {name: amount for name, amount in amounts.items() if amount > 0}
            rest = waiting and unheld(amounts, waiting)
            if amounts.keys() & _DEVICES and (waiting is None or rest != waiting):
                waiting = rest
                yield key, amounts

    def _holders(self) -> dict[str, str]:
        """Return who holds something of nodes, as far as is known, by Ray's id of the node."""
        ours = {one.actor._actor_id.hex() for one in self._machines.values() if one.actor is not None}
        names: dict[str, set[str]] = {}
        for actor in self._ray._private.state.actors().values():
            if actor["State"] == "ALIVE" and actor["ActorID"] not in ours:
                name = actor["Name"].partition(_MARK)[0] or f"{actor['ActorClassName']} of job {actor['JobID']}"
                names.setdefault(actor["Address"]["NodeID"], set()).add(name)
        return {key: f" (held by {', '.join(sorted(found)[:2])})" for key, found in names.items()}

    def _fits(self, node: Mapping[str, Any]) -> bool:
        """Whether a node is one of those that the options ask for, and has something to hand out when it is free."""
        options, labels = self._options, node.get("Labels", {})
        is_named = all(labels.get(name) == value for name, value in options.label_selector.items())
        is_type = options.accelerator_type.lower() in _type_of(node).lower()
        return is_named and is_type and bool(node["Resources"].keys() & _DEVICES)

    def _amounts(self, node: Mapping[str, Any], there: Mapping[str, float]) -> dict[str, float]:
        """Return what the sweep may use of what is there of a node; empty: nothing."""
        if not self._fits(node):
            return {}
        amounts = {name: float(int(there.get(name, 0.0))) for name in _NAMED}
        amounts |= {name: amount for name, amount in there.items() if name not in _NAMED and not _NO_AMOUNT.match(name)}
        if (most := self._options.cpus_per_node) is not None:
            amounts["CPU"] = min(amounts["CPU"], float(most))
        amounts = {name: amount for name, amount in amounts.items() if amount > 0}
        return amounts if amounts.keys() & _DEVICES else {}

    def _start_actor(self, machine: _Machine) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        amounts = machine.amounts
        others = {name: amount for name, amount in amounts.items() if name not in ("CPU", "GPU", "memory")}
        actor = self._ray.remote(_RayAgent).options(
            num_cpus=amounts.get("CPU", 0),
            num_gpus=amounts.get("GPU", 0),
            memory=amounts.get("memory") or None,
            resources=others,
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.key, soft=False),
            max_concurrency=2,
            max_restarts=0,
            name=f"{_who()}{_MARK}{secrets.token_hex(4)}",
            runtime_env=self._runtime_env or None,
        )
        machine.running = None
        machine.actor = actor.remote()
        machine.facts = machine.actor.facts.remote(machine.name, dict(amounts), machine.of_type)

    def _await_facts(self) -> None:
        """Wait for the agents to say what their nodes have: for all, or as long as an agent may take to come."""
        began = time.monotonic()
        while time.monotonic() < began + self.start_s:
            if not any(one.node is None and not self.problem(one.name) for one in self._machines.values()):
                break
            self._take_facts(timeout_s=0.5)
        if self._machines and not self.nodes() and not self.away:
            told = "; ".join(f"{name}: {self.problem(name)}" for name in self._machines)
            raise ExperimentError(f"Ray started no agent on any node ({told}).")

    def _take_facts(self, timeout_s: float) -> bool:
        """Take in what agents have said of their nodes; returns whether some have."""
        waiting = {one.facts: one for one in list(self._machines.values()) if one.node is None}
        if not waiting:
            return False
        ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=timeout_s)
        taken = False
        for call in ready:
            if not self._failure_of(call):
                machine = waiting[call]
                of_machine, node = self._ray.get(call)
                if of_machine != this_machine():
                    self.host = self._ray.util.get_node_ip_address()  # until then all were reached by loopback
                machine.node = replace(node, slice=machine.slice)
                taken = True
        return taken

    def _failure_of(self, call: Any) -> str:
        """Return why a call of an agent failed; empty: it has not."""
        ready, _ = self._ray.wait([call], num_returns=1, timeout=0)
        if not ready:
            return ""
        try:
            self._ray.get(call)
        except Exception as error:  # of Ray or of the agent, whatever it is
            lines = [line for line in str(error).strip().splitlines() if line.strip()]
            return lines[-1].strip() if lines else type(error).__name__
        return ""

    def _watch(self) -> None:
        looks = 0
        while not self._is_closed:
            try:
                if self._look() | self._take_facts(timeout_s=0.0):
                    self.changed()
                looks += 1
                if looks % _LOOKS == 0 and not self._has_told:
                    self._tell_who_waits()
            except Exception:  # Ray's control plane is away; what runs goes on without it
                if self._is_closed:
                    return
            deadline = time.monotonic() + _LOOK_S
            while not self._is_closed and time.monotonic() < deadline:
                time.sleep(0.1)

    def _tell_who_waits(self) -> None:
        """Say once that tasks or actors of Ray, such as those of a trial, wait for what the agents hold: neither they
        nor the trial would ever say so."""
        from ray.autoscaler.v2.sdk import get_cluster_status

        machines = list(self._machines.values())
        if any(one.node is None for one in machines):
            return  # an agent waits, too
        demands = get_cluster_status(self._ray.get_runtime_context().gcs_address).resource_demands.ray_task_actor_demand
        waiting = {tuple(sorted(each.bundle.items())) for one in demands for each in one.bundles_by_count}
        held = {one for one in waiting if any(covers(machine.amounts, dict(one)) for machine in machines)}
        for bundle in sorted(held & self._waited)[:1]:
            self._has_told = True
            self._say(
                f"a task or an actor of Ray waits for {', '.join(f'{name}={amount:g}' for name, amount in bundle)}, "
                "which this sweep holds for its trials. If a trial has started it, it waits for ever: leave some free "
                "with sweep.init(engine='ray', cpus_per_node=...)."
            )
        self._waited = held

    def _why_none(self) -> str:
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        shown = "; ".join(
            f"{node['NodeManagerAddress']} with " + (", ".join(_shown(node["Resources"])) or "nothing to hand out")
            for node in nodes[:4]
        )
        asked = [f"{name}={value!r}" for name, value in vars(self._options).items() if value and name in _FILTERS]
        wish = f" for {', '.join(asked)}" if asked else ""
        return (
            f"no node of the cluster has a free CPU, GPU or TPU{wish}. There are: {shown}. Free some, or ask for "
            "others in sweep.init."
        )


_FILTERS = ("max_nodes", "cpus_per_node", "accelerator_type", "label_selector")


class _RayAgent:
    """The actor on a node; Ray gives it what the sweep may use there."""

    def facts(self, name: str, amounts: Mapping[str, float], of_type: str) -> tuple[tuple[str, str], Node]:
        """Return which machine this is, and the node as a sweep sees it."""
        import ray

        held = ray.get_runtime_context().get_accelerator_ids()
        gpus = gpu.detect(os.environ)[: len(held.get("GPU", ()))] if amounts.get("GPU") else ()
        chips = tuple(Device(f"tpu{chip}", "tpu", visible=str(chip), vendor="google") for chip in held.get("TPU", ()))
        devices = tuple(_typed(device, of_type) for device in (*gpus, *chips))
        custom = {key: amount for key, amount in amounts.items() if key not in _NAMED and not _HEAD.match(key)}
        memory = int(amounts.get("memory", 0))
        return this_machine(), Node(name, amounts.get("CPU", 0.0), memory, devices, custom)

    def run(self, invitation: str) -> str:
        """Be the agent until the driver is gone; returns why it ended."""
        import ray

        given = ray.get_runtime_context().runtime_env.get("env_vars") or {}
        environ = trial_environ(os.environ, given)
        limit = float(os.environ.get(_LIMIT_VARIABLE, _RAYS_MEMORY_LIMIT)) - _BEFORE_RAY
        return Agent(Invitation.from_json(invitation), environ=environ, memory_limit=limit).run()


def trial_environ(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of Ray's worker without what Ray has set there; those `given` in `env_vars` stay."""
    # OMP_NUM_THREADS is set to the CPUs of the actor, which are all that the sweep may use.
    rays = {name for name in environ if name.startswith(("RAY_", "__RAY")) or name in ("OMP_NUM_THREADS", "SPT_NOENV")}
    rays -= {name for name in rays if name.startswith("RAY_AUTH_")}  # with which a trial joins the cluster, too
    if environ.get("PYTHONBREAKPOINT", "").startswith("ray."):  # a debugger of Ray's, which has no task here
        rays.add("PYTHONBREAKPOINT")
    return {name: value for name, value in environ.items() if name in given or name not in rays}


def _join(options: RayOptions) -> tuple[Any, bool]:
    """Return the module `ray`, connected, and whether this call has connected it."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"engine='ray' needs Ray: pip install 'ray>=2.50' ({error}).") from error
    version = str(getattr(ray, "__version__", f"no Ray at all in {list(getattr(ray, '__path__', ()))}"))
    if not version.startswith("2."):
        raise ConfigError(f"engine='ray' works with Ray 2, found {version}: pip install 'ray>=2.50,<3'.")
    named = options.address or os.environ.get("RAY_ADDRESS")
    refuse_ray_client(named)
    if ray.is_initialized():
        _refuse_other(ray, named)
        _refuse_upload(options.runtime_env)
        return ray, False
    if not named:
        raise ConfigError(
            "engine='ray' and no address: name the cluster, sweep.init(engine='ray', address='auto') on one of its "
            "nodes, or call ray.init(...) before. For this machine alone leave the engine out."
        )
    address = ray_address(named)
    _refuse_unreachable(address)
    try:
        if named == "auto" and "RAY_AUTH_MODE" not in os.environ:  # then Ray looks for a token, too
            with contextlib.suppress(ImportError, AttributeError):  # earlier ones do not
                tokens: Any = importlib.import_module("ray._private.authentication.authentication_token_setup")
                tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        raylet: Any = importlib.import_module("ray._raylet")
        raylet.GcsClient(address=address)  # names a wrong token at once; `ray.init` tries for 20 s and does not
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env=dict(options.runtime_env) or None,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"sweep.init: Ray refuses runtime_env={dict(options.runtime_env)!r:.200}: {error}") from error
    except ConnectionError as error:
        raise ConfigError(
            f"there is no cluster of Ray at address={address!r}: {str(error).splitlines()[0]} Start one with "
            "`ray start --head`, and the other nodes with `ray start --address=...`."
        ) from error
    except (RuntimeError, ray.exceptions.RayError) as error:  # other versions of Ray or Python; the token
        said = " ".join(line.strip() for line in str(error).splitlines())
        raise ConfigError(f"the cluster of Ray at address={address!r} cannot be joined: {said}") from error
    return ray, True


def _refuse_other(ray: Any, address: str | None) -> None:
    """Refuse an address that is not that of the cluster which this process has joined."""
    there = ray.get_runtime_context().gcs_address
    if address not in (None, "", "auto", "local", there) and address.rpartition(":")[2] != there.rpartition(":")[2]:
        raise ConfigError(
            f"address is {address!r}, and this process has joined the cluster at {there} with ray.init. Give that "
            "address, or 'auto', or call ray.shutdown() before."
        )


def _refuse_upload(runtime_env: Mapping[str, Any]) -> None:
    """Refuse local directories where the connection has been made: Ray uploads them with it."""
    modules = runtime_env.get("py_modules") or ()
    for place in (runtime_env.get("working_dir"), *modules):
        if place is not None and "://" not in str(place):
            raise ConfigError(
                f"sweep.init: runtime_env has the directory {str(place)!r}, which Ray uploads when a process joins the "
                "cluster, and this one has joined. Give it to ray.init(runtime_env=...): nodes get it from there."
            )


def _refuse_unreachable(address: str) -> None:
    """Refuse at once what Ray would look for during more than a minute."""
    if not address:
        raise ConfigError(
            "this machine belongs to no cluster of Ray, which address='auto' means. Run the script on one of its "
            "nodes, name it, address='HOST:PORT', or start one here with `ray start --head`."
        )
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ConfigError(f"address is {address!r}; expected 'auto' or 'HOST:PORT', such as '10.0.0.1:6379'.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _REACH_S) as peer:
            why = "" if os.environ.get("RAY_USE_TLS") == "1" or _speaks_http2(peer) else "something else listens there"
    except (OSError, ValueError, OverflowError) as error:
        why = str(getattr(error, "strerror", None) or error)
    if not why and port == _CLIENT_PORT:
        raise ConfigError(
            f"address={address!r} has the port of Ray Client, through which no agent could be reached. Expected that "
            "of the cluster, 6379 as a rule, or 'auto' on one of its nodes."
        )
    if why:
        raise ConfigError(
            f"there is no cluster of Ray at address={address!r}: {why}. Start one with `ray start --head`, which says "
            "its address (port 6379 as a rule), or say address='auto' on one of its nodes."
        )


def _speaks_http2(peer: socket.socket) -> bool:
    """Whether what listens may be Ray's control service: Ray itself asks anything else for two minutes."""
    peer.sendall(_HTTP2)
    with contextlib.suppress(TimeoutError):
        answer = peer.recv(9)
        return len(answer) > 3 and answer[3] == _SETTINGS
    return False


def _type_of(node: Mapping[str, Any]) -> str:
    """Return the type of a node's accelerators, as Ray names it; empty: it has none, or it is not known."""
    named = [name.removeprefix(_TYPE) for name in node["Resources"] if name.startswith(_TYPE)]
    return named[0] if named else str(node.get("Labels", {}).get("ray.io/accelerator-type", ""))


def _order(node: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return by what nodes are ordered: hosts of a TPU slice by their numbers, others by address."""
    labels = node.get("Labels", {})
    worker = str(labels.get("ray.io/tpu-worker-id", ""))
    return labels.get("ray.io/tpu-slice-name", ""), int(worker or 0), node["NodeManagerAddress"], node["NodeID"]


def _name_of(node: Mapping[str, Any], taken: Collection[str]) -> str:
    """Return a name for what is held of a node: its host's, and a number if that is taken."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", node["NodeManagerHostname"] or node["NodeManagerAddress"])
    return next(one for one in chain([name], (f"{name}-{number}" for number in count(2))) if one not in taken)


def _who() -> str:
    """Return who holds what this process holds, for the others of the cluster."""
    user = str(os.getuid())
    with contextlib.suppress(OSError, KeyError):  # the user has no name
        user = getpass.getuser()
    return f"{Path(sys.argv[0]).name or 'sweep'} of {user}@{socket.gethostname()} (pid {os.getpid()})"


def _typed(device: Device, of_type: str) -> Device:
    """Return a device with the type that Ray knows it by, where nothing better is known."""
    if device.type or not of_type:
        return device
    if device.kind == "tpu":
        with contextlib.suppress(ResourceError):
            generation = tpu.parse_generation(of_type)
            return replace(device, type=generation.type, labels=generation.labels)
    return replace(device, type=of_type, labels=labels_of(of_type))


def _declared_node(name: str, amounts: Mapping[str, float], of_type: str = "") -> Node:
    """Return a node of the shape in which Ray's resources declare it."""
    gpus = [Device(str(number)) for number in range(int(amounts.get("GPU", 0)))]
    chips = [Device(f"tpu{number}", "tpu", vendor="google") for number in range(int(amounts.get("TPU", 0)))]
    devices = tuple(_typed(device, of_type) for device in (*gpus, *chips))
    custom = {key: float(amount) for key, amount in amounts.items() if key not in _NAMED and not _HEAD.match(key)}
    return Node(name, float(amounts.get("CPU", 0.0)), int(amounts.get("memory", 0)), devices, custom)


def _shown(resources: Mapping[str, float]) -> list[str]:
    named = {name: amount for name, amount in sorted(resources.items()) if not _NO_AMOUNT.match(name)}
    return [f"{name}={amount:g}" for name, amount in named.items()]
