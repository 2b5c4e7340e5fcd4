"""`Trainer.fit()` inside a trial: a group on the resources that the trial holds."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep import train
from sweep.checkpoints.store import Checkpoint, discard
from sweep.core.config import CheckpointConfig, FailureConfig
from sweep.core.group import START_ERROR
from sweep.core.messages import Continue, Reported, Saved, Stop, Waiting
from sweep.core.nesting import place_inside
from sweep.core.ranking import best_of
from sweep.core.resources import Node, Placement, Resources
from sweep.core.results import TrialResult, fill, reported, score
from sweep.core.retention import Kept, expendable
from sweep.core.trial import CheckpointRef, Outcome
from sweep.errors import CheckpointError, MetricError, TrialsFailed, UserCodeError
from sweep.record.importing import unpickle
from sweep.record.layout import check_name
from sweep.worker import wire
from sweep.worker.channel import ChannelClosed, Packets, SocketChannel, start_group
from sweep.worker.environment import MEMORY_FRACTIONS, THREAD_VARIABLES
from sweep.worker.group_environment import group_job, plan_ranks
from sweep.worker.parameters import store_objects
from sweep.worker.rendezvous import close_ports, open_ports
from sweep.worker.session import Session, StopRequested
from sweep.worker.shipping import store_code

if TYPE_CHECKING:
    import pandas as pd

    from sweep.train.trainer import DataParallelTrainer

__all__ = ["NestedResult", "TrainingFailedError", "TuneReportCallback", "fit_inside"]

TrainingFailedError = TrialsFailed

_MAX_STARTS = 3
_UPPER = ("cpu", "gpu", "tpu")
_numbers = itertools.count(1)


class TuneReportCallback:
    """In the `RunConfig(callbacks=[...])` of a `fit()` inside a trial: rank 0's reports are the trial's own.

    The sweep then judges them, checkpoints included, and a trial that is stopped early stops its group. A trial that is
    started again, after a failure or from another's checkpoint, gives that checkpoint to the first `fit()`.
    """


@dataclass(frozen=True)
class NestedResult:
    """How a `fit()` inside a trial turned out.

    Attributes:
        metrics: rank 0's last report, exactly as it was made.
        checkpoint: the latest, or None.
        path: directory of its logs and checkpoints.
        config: the train loop's.
        history: rank 0's reports with what is filled in (`training_iteration`, `time_total_s` ...), oldest first.
        best_checkpoints: the kept ones, oldest first, each with the metrics it was taken at.
    """

    metrics: dict[str, Any]
    checkpoint: Checkpoint | None
    path: str
    config: dict[str, Any]
    history: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    best_checkpoints: tuple[tuple[Checkpoint, dict[str, Any]], ...] = field(default=(), repr=False)
    error: None = None

    @property
    def metrics_dataframe(self) -> pd.DataFrame:
        """One row for each report, filled-in columns included."""
        return train.metrics_frame(self.history)

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """Return the kept checkpoint whose report was the best of all by `metric`, not the last; NaN is never best.

        Raises:
            CheckpointError: none is kept. MetricError: none of their reports has a number there.
        """
        if not self.best_checkpoints:
            raise CheckpointError("no checkpoint was reported. Report one: report(metrics, checkpoint=...).")
        found = ((checkpoint, TrialResult(metrics).get(metric)) for checkpoint, metrics in self.best_checkpoints)
        best = best_of(found, mode, infinite=True)
        if best is None:
            raise MetricError(f"no report with a checkpoint has a number under {metric!r}.")
        return best[0]


def fit_inside(trainer: DataParallelTrainer, session: Session) -> NestedResult:
    """Run a trainer's group on the resources of the trial that this process is."""
    if session.job.rank is not None:
        raise UserCodeError("fit() was called inside a train loop; a worker of a group cannot have a group of its own.")
    if session.control is None:
        raise UserCodeError("fit() inside a trial needs processes of its own; run the sweep with engine='local'.")
    if session.is_fitting:
        raise UserCodeError("fit() runs in another thread of this trial already; one at a time has all that it holds.")
    nested = _Nested(trainer, session, session.control)
    session.is_fitting = True
    try:
        return nested.run()
    finally:
        session.is_fitting = False


class _Nested:
    """One `fit()` inside a trial: attempts of a group, one after another."""

    def __init__(self, trainer: DataParallelTrainer, session: Session, control: Packets) -> None:
        self._trainer = trainer
        self._session = session
        self._control = control
        run = trainer.run_config
        self._failures = run.failure_config or FailureConfig()
        self._keep = run.checkpoint_config or CheckpointConfig()
        self._is_forwarding = any(isinstance(one, TuneReportCallback) for one in run.callbacks or ())
        check_name(name := run.name or f"fit_{next(_numbers)}")
        self._home = os.path.join(session.job.home or session.job.trial_id, name)
        self._history: list[dict[str, Any]] = []
        self._kept: list[tuple[Checkpoint, dict[str, Any], int]] = []
        start = trainer.resume_from_checkpoint
        if start is None and self._is_forwarding and not session.has_fitted:
            start = session.get_checkpoint()  # where a trial goes on whose checkpoints are its group's
        self._start = start
        self._resources, self._placement = self._place()
        for text in trainer.notices_of({}):
            print(f"sweep: {text}", flush=True)

    def run(self) -> NestedResult:
        """Run attempts until one ends well or `max_failures` is used up."""
        failures = starts = 0
        while not (outcome := self._attempt(1 + failures + starts)).is_good:
            is_start = outcome.class_name == START_ERROR
            starts, failures = starts + is_start, failures + (not is_start)
            if starts > _MAX_STARTS or 0 <= self._failures.max_failures < failures:
                raise TrialsFailed(f"{outcome.error}. Logs: {self._path}") from _cause(outcome)
            print(f"sweep: the group starts again after: {outcome.error}", flush=True)
        return NestedResult(
            metrics=self._last,
            checkpoint=self._kept[-1][0] if self._kept else None,
            path=self._path,
            config=dict(self._trainer.train_loop_config),
            history=tuple(self._history),
            best_checkpoints=tuple((checkpoint, metrics) for checkpoint, metrics, _ in self._kept),
        )

    @property
    def _last(self) -> dict[str, Any]:
        return reported(self._history[-1]) if self._history else {}

    @property
    def _path(self) -> str:
        return os.path.join(self._session.job.directory, self._home)

    def _place(self) -> tuple[Resources, Placement]:
        """Return the group's request and its place within the trial's; where it has none, the trial starts again."""
        session, job = self._session, self._session.job
        wanted = self._trainer.resources_of({})
        held, placement = job.resources, job.placement
        assert placement is not None
        kinds = {(node, device.id): device.kind for node, device in job.devices}
        found = place_inside(wanted, held, placement, kinds, only=job.node)
        if found is None and job.node:
            is_spread = wanted.strategy == "STRICT_SPREAD" and len(wanted.bundles) > 1
            if is_spread or place_inside(wanted, held, placement, kinds) is not None:
                raise UserCodeError(
                    f"fit() needs {wanted}, and inside a trial its workers run on the trial's node, here {job.node}. "
                    "Ask for all on one node, resources_per_trial=sweep.PlacementGroupFactory([...], "
                    "strategy='STRICT_PACK'), or give the trainer itself to sweep.run."
                )
            wanted = replace(wanted, strategy="STRICT_PACK")  # so that it is this node, or another, that has all
        is_guess = job.is_guess and not session.has_fitted
        if found is None or (is_guess and held.bundles[1:] != wanted.bundles):
            print(f"sweep: fit() needs {wanted}; the trial starts again as soon as that is free.", flush=True)
            asked = wanted.to_json()["bundles"]
            bundles = [{}, *({(k.upper() if k in _UPPER else k): n for k, n in bundle.items()} for bundle in asked)]
            session.ask_for(
                wanted,
                f"fit() asks for {wanted}, and finds no room in the {held} that its trial holds. Ask for it at once: "
                f"resources_per_trial=sweep.PlacementGroupFactory({bundles!r})",
            )
        session.has_fitted = True
        return wanted, found

    def _attempt(self, attempt: int) -> Outcome:
        """Run the group once; return its outcome."""
        session, trainer = self._session, self._trainer
        own = session.job
        spec = trainer.spec_of({})
        start, _, count = self._kept[-1] if self._kept else (self._start, {}, 0)
        nodes = {node: tuple(device for at, device in own.devices if at == node) for node, _ in own.devices}
        environ = self._environ()
        number = len(self._placement.bundles) - spec.has_head if spec.num_ports < 0 else spec.num_ports
        ports = open_ports(number, spec.port_kind)
        try:
            plans = plan_ranks(
                self._resources,
                self._placement,
                spec,
                nodes=[Node(node, devices=held) for node, held in nodes.items()],
                environ=environ,
                trial_id=own.trial_id,
                attempt=attempt,
                ports=[port.number for port in ports],
            )
            import cloudpickle

            prepared = trainer.__sweep_trainable__()
            code = os.path.join(own.directory, "code")
            job = own._replace(
                attempt=attempt,
                code=store_code(prepared.payload, code),
                kind="function",
                name=prepared.name,
                objects=store_objects(prepared.objects, Path(code)) if prepared.objects else "",
                config=cloudpickle.dumps({}),
                variables={**own.variables, **environ},
                base_count=count,
                checkpoint=start.path if start is not None else "",
                home=self._home,
                rank=None,
            )
            upstream = start_group(self._control, [port.holder for port in ports])
        finally:
            close_ports(ports)
        with upstream:
            group = group_job(job, plans, spec, log_limit_bytes=job.log_limit_bytes)
            upstream.sendall(wire.frame(group))
            return self._serve(SocketChannel(upstream.fileno()), job)

    def _environ(self) -> dict[str, str]:
        """Return this process's environment as its group's, less what was set for this process alone."""
        own = self._session.job
        environ = dict(os.environ)
        for name in (*THREAD_VARIABLES, *MEMORY_FRACTIONS):
            if name in environ and environ[name] == own.variables.get(name):
                del environ[name]
        if own.own_threads:
            environ["OMP_NUM_THREADS"] = own.own_threads
        return environ

    def _serve(self, channel: SocketChannel, job: wire.Job) -> Outcome:
        """Answer the group's reports until it is over, and hear whether the trial is told to stop meanwhile."""

        def tell(answer: Continue | Stop) -> None:
            # One that was stopped may have closed its end by now, and what it had sent is still to be read.
            with contextlib.suppress(ChannelClosed):
                channel.send(wire.frame(answer))

        count = job.base_count
        is_stopping = False
        while True:
            if not is_stopping and self._is_told_to_stop(channel):
                is_stopping = True
                tell(Stop(*job.key))
            try:
                message = channel.receive()
            except ChannelClosed:
                os._exit(1)  # the supervisor is gone
            match message:
                case Reported(_, _, seq, metrics, path):
                    count += 1
                    self._note(metrics, path, count)
                    if self._is_forwarding and not is_stopping:
                        try:
                            self._session.report(dict(metrics), self._kept[-1][0] if path else None)
                        except StopRequested:
                            is_stopping = True
                    tell(Stop(*job.key, seq) if is_stopping else Continue(*job.key, seq))
                case Saved(checkpoint=path):
                    self._note(None, path, count)
                case Waiting(_, reason, cause):
                    if reason:
                        print(f"sweep: {reason}", flush=True)
                    self._session.say_waiting(reason, cause)
                case wire.Done(outcome=outcome):
                    if is_stopping:
                        raise StopRequested
                    return outcome

    def _is_told_to_stop(self, channel: SocketChannel) -> bool:
        """Wait for the group, or for a stop of the trial itself, whichever comes first."""
        own = self._session.channel
        assert isinstance(own, SocketChannel)
        poll = select.poll()
        for one in (own, channel):
            poll.register(one.fileno(), select.POLLIN)
        while True:
            if own.wait(0) and self._session.hear_stop():
                return True
            if channel.wait(0):
                return False
            poll.poll()

    def _note(self, metrics: Mapping[str, Any] | None, path: str | None, count: int) -> None:
        if metrics is not None:
            last = self._history[-1] if self._history else {}
            self._history.append(
                fill(
                    metrics,
                    trial_id=self._session.job.trial_id,
                    count=count,
                    since_restore=len(self._history) + 1,
                    time_before_s=last.get("time_total_s", 0.0),
                    restored_s=0.0,
                )
            )
        if path:
            checkpoint = Checkpoint(os.path.join(self._session.job.directory, path))
            self._kept.append((checkpoint, self._last, count))
            self._discard_surplus()

    def _discard_surplus(self) -> None:
        """Keep as many checkpoints as were asked for: the best by score, and the latest in any case."""
        key, order = self._keep.checkpoint_score_attribute, self._keep.checkpoint_score_order
        kept = [
            Kept(CheckpointRef(checkpoint.path), score(TrialResult(metrics).get(key), order) if key else 0.0)
            for checkpoint, metrics, _ in self._kept
        ]
        lost = {item.ref.path for item in expendable(kept, self._keep.num_to_keep, bool(key))}
        self._kept = [item for item in self._kept if item[0].path not in lost]
        for path in lost:
            discard(path)


def _cause(outcome: Outcome) -> BaseException:
    """Return what the rank raised, or its words when it could not travel; an exception travels without its frames."""
    with contextlib.suppress(Exception):  # whatever loading a user's exception raises
        raised: BaseException = unpickle(outcome.pickled)
        if outcome.traceback:
            raised.add_note(outcome.traceback)
        return raised
    return UserCodeError(f"{outcome.error}\n{outcome.traceback}".strip())
