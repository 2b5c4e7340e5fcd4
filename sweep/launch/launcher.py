"""One run of the driver: everything is checked and built, then opened, driven, and closed in the opposite order."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from searchers.wrapper import Enqueued
from sweep.accelerators import inventory
from sweep.callbacks.dispatch import Dispatcher
from sweep.checkpoints.store import discard_in
from sweep.core.config import SyncConfig, level_of_caller
from sweep.core.messages import Tick
from sweep.core.plan import Plan
from sweep.core.reports import silent_trials
from sweep.core.sweep import Sweep
from sweep.display.ending import Ending
from sweep.engines.base import Engine, EngineContext
from sweep.engines.local.orphans import end_orphans
from sweep.errors import ConfigError, ExperimentError, MetricError, RecordError
from sweep.launch.build import build, prepared, seed_of
from sweep.launch.description import COMPLETE, Notices, meta_of_run, resumption, setup_info, surprises, unjudged
from sweep.launch.drive import drive
from sweep.launch.interrupt import interruptible, woken_by_signals
from sweep.launch.observers import about_of, callbacks_of, sender_of, take_log_files
from sweep.launch.place import place_of, start_from
from sweep.launch.requests import Requests, continued
from sweep.launch.spec import NO_LOGGERS, NOT_STRICT, RunSpec, is_set, stop_grace_s
from sweep.logs.follower import LogJob
from sweep.logs.writer import LogWriter
from sweep.record.encoding import is_same
from sweep.record.files import first_free
from sweep.record.guard import DirectoryGuard, make_writable, refusing_full_disk
from sweep.record.journal import Journal, flush_log
from sweep.record.layout import checked_trial_id
from sweep.record.lock import DriverLock, mark_of_dead_driver
from sweep.record.resume import Loaded, load, retell
from sweep.record.saved_spec import recorded_points, write_saved_spec
from sweep.storage.location import check_writable
from sweep.storage.nodes import Home
from sweep.storage.send import Sender
from sweep.storage.shared import shared_record
from sweep.worker import limits
from sweep.worker.nested import process_mark
from sweep.worker.output import parse_log_to_file
from sweep.worker.shipping import refuse_unpicklable

if TYPE_CHECKING:
    from sweep.engines.cluster.agents import Cluster
    from sweep.results.analysis import ExperimentAnalysis


class Launch:
    """One run of the driver: of what was asked for, which as bytes is kept for a restore."""

    def __init__(self, spec: RunSpec, saved_spec: bytes | None) -> None:
        self._saved_spec = saved_spec
        with contextlib.ExitStack() as self._stack:  # what must be let go of, also when a check fails
            self._stack.callback(limits.Raised().close)
            self._check_and_build(spec)
            self._stack = self._stack.pop_all()

    def _check_and_build(self, spec: RunSpec) -> None:
        limits.refuse_too_few()
        spec, self.trainable = prepared(spec)
        self.notices = Notices(spec.verbosity)
        # The saved spec was made before: a restored run follows what is declared in its own time.
        engine = spec.engine if spec.engine is not None else inventory.default_engine()
        if engine in inventory.OF_ENGINE:
            if spec.nodes is not None:
                raise ConfigError(
                    f"engine={engine!r} and nodes= were both given; leave nodes= out: they are the cluster's."
                )
            engine = _cluster(engine, inventory.cluster_options(engine), self.notices.say)
        if not isinstance(engine, (str, type)):
            self._stack.callback(getattr(engine, "close", lambda: None))  # a cluster is held from here on
        spec = replace(spec, engine=engine, strict_metric=spec.strict_metric and not is_set(NOT_STRICT))
        refuse_unpicklable(spec.config, is_warned=True)
        self.outputs = parse_log_to_file(spec.log_to_file)
        self.start_from = start_from(spec.restore)
        away = tuple(getattr(engine, "away", ()))  # before those that are there: who comes in between is in both
        if hasattr(engine, "nodes"):
            nodes = tuple(engine.nodes())
        else:
            nodes = inventory.available() if spec.nodes is None else inventory.checked_nodes(spec.nodes, "run")
        if engine == "lanes" and self.trainable.lanes is not None:
            from sweep.engines.lanes import lane_nodes

            nodes = lane_nodes(nodes, self.trainable.lanes)
        self.place = place_of(spec, self.trainable)
        self._stack.callback(self.place.let_go)
        self.layout = self.place.layout
        self.shared = shared_record(self.layout.root) if self.place.storage.remote is None else None
        self.database = self.layout.database if self.shared is None else self.shared.database
        self.lock: DriverLock | None = None
        self.loaded = Loaded()
        self._said: list[str] = []  # what the user should know of the record that is continued
        if self.place.exists:
            make_writable(self.layout, is_resumed=True)
            self.lock = self._lock()  # from here on no other driver writes it
            self.loaded = load(self.database, root=self.layout.root)
            asked, spec = spec.warm_start, replace(spec, warm_start=recorded_points(self.loaded.meta))
            if asked is not None and not is_same(asked, spec.warm_start):
                self._said.append("warm_start is left out: the searcher goes on from what the first run was given")
        goes_on = self.loaded.trials if spec.resuming.unfinished else []
        open_requests = {trial.resources for trial in goes_on if not trial.is_ended}
        self.built = build(
            spec,
            self.trainable,
            nodes,
            seed=seed_of(spec.seed, self.loaded.meta),
            away=away,
            open_requests=open_requests,
            prefix=checked_trial_id(self.loaded.meta.get("prefix") or uuid.uuid4().hex[:5]),
            lost=self.loaded.lost,
            stop_grace_s=stop_grace_s(),
            interrupt_grace_s=stop_grace_s(Plan.interrupt_grace_s),
        )
        self.built = replace(self.built, plan=continued(self.built.plan, self.loaded))
        self.spec, self.policies = spec, self.built.policies
        self.searcher = Enqueued(self.policies.searcher)
        self.about = about_of(self.built, self.place, self.trainable.name, self.notices.say)
        self.ending = Ending(self.built.plan.interrupt_grace_s, can_kill=spec.engine != "inline")

    def close(self) -> None:
        """Let go of what was opened, without a run."""
        self._stack.close()

    def run(self) -> tuple[ExperimentAnalysis, int]:
        """Drive to the end; returns the analysis and the signal that interrupted it, 0 if none did."""
        with self._stack as stack:
            if not self.place.exists:
                make_writable(self.layout)
            check_writable(self.place.storage)
            lock = self.lock or self._lock()
            if self._saved_spec is not None:
                with refusing_full_disk(self.layout):
                    write_saved_spec(self.layout.root, self._saved_spec)
            meta = meta_of_run(self.built, self.place, self.trainable, self.outputs, self.loaded.meta)
            if self.place.exists:
                self._bring_back(meta)
            for text in (*self._said, *surprises(self.built, self.place, self.trainable)):
                self.notices.say(text)
            sweep = self._drive(stack, lock, meta)
        is_interrupted = self.ending.times > 0
        if not is_interrupted and (error := sweep.metric_error()) is not None:
            raise MetricError(f"{error} Everything is kept in {self.layout.root}.")
        if not self.spec.verbosity and (silent := silent_trials(sweep.trials, self.built.plan)):
            warnings.warn(f"{self.place.name}: {silent}", stacklevel=level_of_caller())
        if is_interrupted and not getattr(self.notices.display, "says_how_to_resume", False):
            self.notices.say(f"stopped; everything is kept. Continue with: {self.place.resume_command}")
        from sweep.results.analysis import own_analysis

        return own_analysis(self.layout.root), self.ending.signal if is_interrupted else 0

    def _lock(self) -> DriverLock:
        def take_over(dead: str) -> None:
            end_orphans(self.layout.root.absolute(), dead, mark_of_dead_driver, self._said.append)

        mark = process_mark(os.getpid())
        lock = DriverLock(self.layout.lock, mark, is_shared=self.shared is not None, take_over=take_over)
        self._stack.callback(lock.release)
        try:
            flush_log(self.database)  # what a killed driver left is acted on from here on
        except OSError as error:
            what = f"{self.database} could not be flushed to its disk: {error}"
            raise ExperimentError(f"{what}. Check the disk; nothing was changed.") from error
        if self.shared is not None:
            self._said += self.shared.take(was_left=bool(lock.dead))
        return lock

    def _bring_back(self, meta: Mapping[str, Any]) -> None:
        """Bring searcher and scheduler up to the record, and remove what nothing refers to."""
        for path in self.loaded.strays:
            self._discard(path)
        for name in self.loaded.strangers:
            aside = first_free(str(self.layout.root / f"unknown_{name}"))
            os.rename(self.layout.root / name, aside)
            self.notices.say(f"the record knows nothing of the trial of {name} (a power cut?): moved to {aside}")
        retell(self.database, self.policies.scheduler, self.searcher, self.built.spec.stop_rules.judge)
        for text in resumption(self.built, self.place, self.loaded, meta):
            self.notices.say(text)

    def _discard(self, path: str) -> None:
        if not discard_in(self.layout.root, path):
            self.notices.say(f"{path} is not deleted: a symbolic link leads out of {self.layout.root}")

    def _drive(self, stack: contextlib.ExitStack, lock: DriverLock, meta: Mapping[str, Any]) -> Sweep:
        """Open everything in order, and drive; the stack closes it in the opposite order."""
        built, loaded, policies, notices = self.built, self.loaded, self.policies, self.notices
        self._open_record(stack, meta)
        with refusing_full_disk(self.layout):
            engine = self._engine(lock.fd)
        importlib.import_module("sweep.results.analysis")  # while the fork server imports, so that it costs no time
        end_orphans(self.layout.root.absolute(), "", mark_of_dead_driver, notices.say)
        sweep = Sweep(built.plan, policies.scheduler, built.packer, loaded.trials, kept=loaded.kept, seq=loaded.seq)
        dispatcher = self._open_observers(stack, engine, sweep, meta)
        requests = Requests(
            self.layout.root,
            self.journal,
            sweep,
            engine,
            policies,
            self.searcher,
            asked=loaded.asked,
            samples=self.spec.samples,
            seed=built.seed,
            notice=notices.say,
            attend=self.journal.attend,
            replanned=self._replanned,
        )
        loop = partial(drive, sweep, engine, self.searcher, dispatcher, requests, inbox=requests.inbox)
        loop = partial(loop, attend=requests.attend, request_of=built.request_of, complete=self._complete)
        try:
            engine.run_loop(lambda: loop(judge=built.spec.stop_rules.judge))
            self.guard.check()
            self.journal.flush()  # before anybody is told that it is over
        except BaseException as error:
            if not (isinstance(error, (RecordError, KeyboardInterrupt)) and self.ending.times):
                self.ending.error = error
                raise
            if str(error):
                notices.warn(str(error))
        idle = "" if self.ending.times or sweep.ending else unjudged(policies.scheduler, sweep.trials.values())
        for text in filter(None, (*engine.notices, *policies.notices, idle)):
            notices.say(text)
        return sweep

    def _replanned(self, plan: Plan) -> None:
        """Let those who look see what a person has changed."""
        self.journal.set_meta({"num_trials": plan.num_trials})
        if show := getattr(self.notices.display, "replan", None):
            show(plan)

    def _complete(self, config: Mapping[str, Any], trial_id: str) -> Mapping[str, Any]:
        completed = self.policies.complete(config, trial_id)
        refuse_unpicklable(completed)
        return completed

    def _open_record(self, stack: contextlib.ExitStack, meta: Mapping[str, Any]) -> None:
        """Open the journal, and what sends it elsewhere."""
        self.sender = sender = sender_of(self.built, self.place, self.shared, self.outputs or (), self.notices)
        self.guard = guard = DirectoryGuard(self.layout, self.database)
        stack.callback(guard.close)
        self.notices.is_mute = lambda: bool(guard.problem)  # everything fails then, for one reason, and that is raised

        def check(anew: bool) -> None:
            guard.check(anew=anew)
            if sender is not None:
                sender.check()

        self.journal = Journal(
            self.database,
            durability=self.spec.durability,
            discard=self._discard if sender is None else sender.mirror.discard,
            notice=self.notices.warn,
            is_interrupted=lambda: self.ending.is_interrupted,
            check=check,
            name_of=self.about.name_of,
        )
        if sender is not None:
            sender.mirror.await_flush = self.journal.flush
            stack.callback(self._finish_sending, sender)  # last of all: the record is closed by then
        stack.callback(self.journal.close)
        self.journal.set_meta(meta)

    def _finish_sending(self, sender: Sender) -> None:
        if self.guard.problem or self.journal.problem:
            sender.stop()  # there is nothing left to send, and what lies there is whole
            return
        with contextlib.suppress(KeyboardInterrupt):  # the user does not want to wait; what is missing was said
            sender.finish()

    def _open_observers(
        self, stack: contextlib.ExitStack, engine: Engine, sweep: Sweep, meta: Mapping[str, Any]
    ) -> Dispatcher:
        """Start what hears of the sweep: callbacks, log files, what sends, signals."""
        built, journal, notices, sender = self.built, self.journal, self.notices, self.sender
        callbacks = [*callbacks_of(built, self.ending, notices), *([] if sender is None else [sender])]
        if self.trainable.observers is not None:
            callbacks += self.trainable.observers(notices.say, built.policies.scheduler.first_judgement is not None)
        job = LogJob(
            root=str(self.layout.root.absolute()),
            database=self.database.absolute(),
            kinds=take_log_files(built, callbacks),
            seq=journal.seq,
            is_complete=not self.place.exists or bool(self.loaded.meta.get(COMPLETE)),  # else they are written anew
            changed=tuple(self.policies.scheduler.mutated_paths),
            variables=built.variables,
        )
        writer = LogWriter(job, lambda: journal.seq, notices.say)
        if sender is not None and self.shared is None:
            sender.await_files = writer.catch_up
        dispatcher = Dispatcher(callbacks, notices.say, notices.warn, about=self.about, files=writer)
        leave = getattr(notices.display, "leave", lambda: None)
        # Until the callbacks are closed, which may take its time.
        stack.enter_context(interruptible(engine, self.ending.hear, leave, lambda: dispatcher.driver_is_in is not None))
        stack.callback(self._close_callbacks, dispatcher, writer, sweep)
        dispatcher.setup(**setup_info(built, self.place, self.ending, meta), trials=tuple(self.loaded.trials))
        stack.callback(engine.close)  # before the callbacks are closed, so that they hear of everything
        writer.start()
        try:
            dispatcher.start(lambda: engine.post(Tick()))
            self.guard.start()
            if self.shared is not None:
                with self.shared.working():
                    self.shared.sync()  # so that other machines see the sweep from its first trial on
            if sender is not None:
                sender.start(lambda: engine.post(Tick()))  # likewise
        except RuntimeError as error:  # no thread is free
            raise limits.refusal(OSError(errno.EAGAIN, str(error))) from error
        stack.enter_context(woken_by_signals(engine))
        return dispatcher

    def _engine(self, lock_fd: int | None) -> Engine:
        """Return the engine, made now unless the run was given one."""
        spec, built, place = self.spec, self.built, self.place
        if isinstance(spec.engine, Engine):
            return spec.engine
        remote = place.storage.remote
        home = None if remote is None else Home(remote / place.name, spec.sync_config or SyncConfig())
        if self.trainable.payload_for is not None:
            self.trainable = replace(self.trainable, payload=self.trainable.payload_for(built.policies.metric))
        context = EngineContext(
            directory=self.layout.root,
            trainable=self.trainable,
            nodes=built.packer.nodes,
            start_at=self.loaded.at,
            seed=built.seed,
            seeded_as=getattr(spec.search_alg, "seeded_as", None),  # of a race, whose repeats have common seeds
            experiment_name=place.name,
            env={**inventory.env_vars(), **(spec.env or {})},
            is_chdir=bool(spec.chdir_to_trial_dir),
            has_company=built.has_company,
            name_of=self.about.name_of,
            start_from=self.start_from,
            log_to_file=self.outputs,
            report_timeout_s=spec.failures.report_limit_s,
            lock_fd=lock_fd,
            is_shared=inventory.is_shared(),
            home=home,
            notice=self.notices.say,
            **{name: getattr(spec, name) for name in ("reuse_actors", "start_method", "preload")},
        )
        make: Any = spec.engine
        if make == "inline":
            from sweep.engines.inline import InlineEngine as make
        elif make == "local":
            from sweep.engines.local.engine import LocalEngine as make
        elif make == "lanes":
            from sweep.engines.lanes import LanesEngine as make
        engine: Engine = make(context)
        return engine

    def _close_callbacks(self, dispatcher: Dispatcher, writer: LogWriter, sweep: Sweep) -> None:
        if self.guard.problem:
            writer.abandon()
        is_all_told = dispatcher.close(list(sweep.trials.values()))
        if is_all_told and not is_set(NO_LOGGERS) and not self.guard.problem:
            with contextlib.suppress(RecordError):  # a full disk: a resume writes the files anew
                self.journal.set_meta({COMPLETE: True})
        if dispatcher.fatal is not None and self.ending.error is None:
            raise dispatcher.fatal  # after the last step


def _cluster(engine: str, options: Mapping[str, Any], say: Callable[[str], None]) -> Cluster:
    """Return the machines of an engine that runs on several."""
    if engine == "ray":
        from sweep.engines.cluster.ray import RayCluster, RayOptions

        return RayCluster(RayOptions(**options), say)
    if engine == "slurm":
        from sweep.engines.cluster.slurm import SlurmCluster, SlurmOptions

        return SlurmCluster(SlurmOptions(**options), say)
    from sweep.engines.cluster.joined import JoinedCluster, JoinedOptions

    return JoinedCluster(JoinedOptions(**options), inventory.available(), say)
