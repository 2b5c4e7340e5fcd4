"""Jobs, made from trials: what a worker needs to know of its attempt, and the files that they name."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import cloudpickle

from sweep.core.resources import Device, Node, Placement
from sweep.core.trial import Trial
from sweep.engines.base import EngineContext
from sweep.record.layout import ExperimentLayout
from sweep.worker import environment, wire
from sweep.worker.group_environment import LOOPBACK_ADDRESS, GroupSpec, group_job, nodes_of, plan_ranks
from sweep.worker.nested import process_mark
from sweep.worker.parameters import store_objects
from sweep.worker.rendezvous import Port, interface_of, open_ports
from sweep.worker.script import script_of_driver
from sweep.worker.shipping import store_code

if TYPE_CHECKING:
    from sweep.worker.trainable import PreparedTrainable


@dataclass(frozen=True, slots=True)
class Payload:
    """What a job says of a trial that is made of the user's own objects, or by the searcher, which only the driver has.

    Attributes:
        config: as cloudpickle bytes.
        group: what the group of the trial is; None: it is no group.
        name: that the user gives to the trial, or an empty text.
        nodes: those of a group whose ranks lie on several machines, as the driver knows them; empty: on one.
        script: that the driver runs, for processes that a trial starts.
        seed: of the trial's global generators.
    """

    config: bytes
    group: GroupSpec | None = None
    name: str = ""
    nodes: tuple[Node, ...] = ()
    script: str = ""
    seed: int = 0


def payload_of(trial: Trial, context: EngineContext) -> Payload:
    """Return what only the driver can say of a trial."""
    group = context.trainable.group
    return Payload(
        # Plain pickle of an enum of `__main__` succeeds here and fails in the worker.
        cloudpickle.dumps(dict(trial.config)),
        None if group is None else group(trial.config),
        context.name_of(trial) if context.name_of is not None else "",
        script=script_of_driver(),
        seed=environment.trial_seed(context.seed, context.seeded_as(trial.id) if context.seeded_as else trial.id),
    )


class Stored(NamedTuple):
    """Files with a trainable and its shared objects; empty when the worker is the driver's process."""

    code: str = ""
    objects: str = ""


def store_trainable(trainable: PreparedTrainable, layout: ExperimentLayout) -> Stored:
    """Write a trainable and what it shares into the experiment.

    Raises:
        TrainableError: objects given by `with_parameters` cannot be stored.
    """
    layout.code.mkdir(parents=True, exist_ok=True)
    return Stored(
        store_code(trainable.payload, layout.code),
        store_objects(trainable.objects, layout.code) if trainable.objects else "",
    )


class JobMaker:
    """Makes jobs for the trials of one engine.

    Attributes:
        environ: the variables of the engine's machine and those that the run and the trainable add for all trials.
        payload: returns what the driver says of a trial.
    """

    def __init__(
        self,
        context: EngineContext,
        stored: Stored = Stored(),  # noqa: B008  # a constant
        *,
        payload: Callable[[Trial], Payload] | None = None,
    ) -> None:
        """Take what all jobs have in common.

        Args:
            stored: where the trainable lies.
            payload: returns what the driver says of a trial; None: this process is the driver.
        """
        self.payload: Callable[[Trial], Payload] = payload or (lambda trial: payload_of(trial, context))
        self._context = context
        self._trainable = context.trainable
        self._nodes = tuple(context.nodes)
        self._directory = str(context.directory.absolute())
        self._driver = process_mark(os.getpid())
        self._caller = os.getcwd()
        self._env = {**context.trainable.env, **context.env}
        environ = os.environ if context.environ is None else context.environ
        self.environ: Mapping[str, str] = {**environ, **self._env}
        self._stored = stored

    @property
    def is_group(self) -> bool:
        """Whether trials are training groups."""
        return self._trainable.group is not None

    def is_multi_node(self, trial: Trial) -> bool:
        """Whether a trial is a group with ranks on other machines, too."""
        return self.is_group and bool(self._context.node) and bool(self.payload(trial).nodes)

    def is_remote(self, trial: Trial) -> bool:
        """Whether rank 0 of a group is on another machine."""
        if not self.is_multi_node(trial):
            return False
        assert trial.placement is not None
        return nodes_of(trial.placement, self._spec(self.payload(trial)))[0] != self._context.node

    def open_ports(self, trial: Trial, payload: Payload) -> list[Port]:
        """Return the ports of a trial's group that are on this machine; none for a trial that is no group.

        Raises:
            ConfigError: this machine does not have the address of its node.
            OSError: no port or descriptor is free.
        """
        if not self.is_group:
            return []
        spec = self._spec(payload)
        assert trial.placement is not None
        nodes = [place.node for place in trial.placement.bundles[spec.has_head :]]
        own, number = self._context.node, spec.num_ports
        if number < 0:
            number = nodes.count(own) if payload.nodes else len(nodes)
        elif payload.nodes and nodes[0] != own:
            number = 0
        address = next((node.address for node in payload.nodes if node.id == own), "")
        return open_ports(number, spec.port_kind, address or LOOPBACK_ADDRESS)

    def _spec(self, payload: Payload) -> GroupSpec:
        spec = payload.group
        assert spec is not None
        limit_s = self._context.report_timeout_s  # that of the run wins over that of a trainer alone
        return spec if limit_s is None else dataclasses.replace(spec, hang_s=limit_s)

    def make(
        self,
        trial: Trial,
        ports: Sequence[int] | Mapping[str, Sequence[int]] = (),
        payload: Payload | None = None,
    ) -> wire.Job | wire.GroupJob:
        """Return the job of an attempt.

        Args:
            payload: of the trial, where it was asked for before.
            ports: numbers of those that `open_ports` returned; by node where ranks are on several machines.

        Raises:
            ConfigError: NCCL was chosen and two ranks share a GPU.
        """
        payload = payload or self.payload(trial)
        return self._group(trial, ports, payload) if self.is_group else self.one(trial, payload)

    def _group(
        self, trial: Trial, ports: Sequence[int] | Mapping[str, Sequence[int]], payload: Payload
    ) -> wire.GroupJob:
        spec = self._spec(payload)
        assert trial.placement is not None
        address = next((node.address for node in payload.nodes if node.id == self._context.node), "")
        plans = plan_ranks(
            trial.resources,
            trial.placement,
            spec,
            nodes=payload.nodes or self._nodes,
            environ=self.environ,
            trial_id=trial.id,
            attempt=trial.attempt,
            ports=ports,
            interface=interface_of(address or LOOPBACK_ADDRESS),
        )
        return group_job(
            self.one(trial, payload, start_from=spec.checkpoint),
            plans,
            spec,
            is_spawned=self._context.start_method == "spawn",
            log_limit_bytes=self._context.log_limit_bytes,
            node=self._context.node if payload.nodes else "",
        )

    def one(self, trial: Trial, payload: Payload | None = None, *, start_from: str = "") -> wire.Job:
        """Return the job of a single process; `start_from` is the checkpoint of a trial that has none of its own."""
        payload = payload or self.payload(trial)
        variables = environment.attempt_variables(
            experiment=self._directory,
            driver=self._driver,
            script=payload.script,
            trial_id=trial.id,
            attempt=trial.attempt,
            resources=trial.resources,
            placement=self._here(trial.placement),
            nodes=self._nodes,
            environ=self.environ,
        )
        start = trial.checkpoint
        return wire.Job(
            trial_id=trial.id,
            attempt=trial.attempt,
            experiment=self._context.experiment_name or self._context.directory.name,
            directory=self._directory,
            code=self._stored.code,
            kind=self._trainable.kind,
            name=self._trainable.name,
            objects=self._stored.objects,
            config=payload.config,
            variables={**self._env, **variables, environment.CALLER_VARIABLE: self._caller},
            num_threads=environment.num_threads(trial.resources, self.environ),
            seed=payload.seed,
            base_count=start.count if start is not None else 0,
            checkpoint=os.path.join(self._directory, start.path)
            if start is not None
            else start_from or self._context.start_from,
            resources=trial.resources,
            is_chdir=self._context.is_chdir,
            has_company=self._context.has_company,
            placement=trial.placement,
            devices=self._held(trial),
            own_threads=self.environ.get("OMP_NUM_THREADS", ""),
            log_limit_bytes=self._context.log_limit_bytes,
            outputs=self._context.log_to_file or (),
            trial_name=payload.name,
            is_guess=trial.escalation is not None and trial.escalation.is_guess,
            node=self._context.node,
            is_staged=self._context.is_staged,
            node_ip=next((node.address for node in self._nodes if node.id == self._context.node), ""),
        )

    def _here(self, placement: Placement | None) -> Placement | None:
        """Return the part of a placement that lies on the engine's own machine."""
        node = self._context.node
        if placement is None or not node:
            return placement
        return Placement(tuple([place for place in placement.bundles if place.node == node]))

    def _held(self, trial: Trial) -> tuple[tuple[str, Device], ...]:
        """Return the devices of a trial with their nodes, for a group that it may start itself."""
        held = set(trial.placement.placed_devices if trial.placement is not None else ())
        return tuple(
            [(node.id, device) for node in self._nodes for device in node.devices if (node.id, device.id) in held]
        )
