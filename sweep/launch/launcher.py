"""One run of the driver: everything is checked and built, then driven, then closed in the opposite order."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from searchers import ConcurrencyLimiter
from searchers.space import Domain
from searchers.variants import grid_values, has_domains, path_name, walk
from sweep import __version__
from sweep.accelerators import inventory
from sweep.callbacks.base import Callback
from sweep.callbacks.dispatch import Dispatcher
from sweep.callbacks.named import callbacks_from
from sweep.callbacks.observed import ExperimentInfo, ObservedTrial
from sweep.callbacks.space import SpaceNotice
from sweep.callbacks.watch import AlikeFailures, DamageNotice, ErrorFileCallback, MissingKeys
from sweep.core.expected import told_of_silence
from sweep.core.messages import Ask, Tick, Verdict
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.ranking import objectives_of
from sweep.core.resources import Node, Resources, parse_resources
from sweep.core.results import Result
from sweep.core.sweep import Sweep
from sweep.core.trial import Trial
from sweep.core.values import shown
from sweep.display.ending import Ending, EndingNotice
from sweep.engines.base import Engine, EngineContext
from sweep.engines.leftovers import end_leftovers
from sweep.errors import ConfigError, ExperimentError, MetricError, RecordError, ResourceError, nearest
from sweep.launch.arguments import HAS_NO_RESUME, Request, metric_and_mode, seconds_of, stop_rules
from sweep.launch.drive import drive
from sweep.launch.interrupt import interruptible
from sweep.launch.policies import build_policies, describe, refuse_foreign_domains, unsearched_lists
from sweep.launch.settings import NO_LOGGERS, NOT_STRICT, is_set, stop_grace_s
from sweep.launch.trial_names import Namer
from sweep.record.guard import DirectoryGuard, make_writable, refusing_full_disk
from sweep.record.journal import Journal
from sweep.record.layout import ExperimentLayout, checked_trial_id, tidy_name
from sweep.record.lock import DriverLock, mark_of_dead_driver
from sweep.record.recipe import space_keys, write_recipe
from sweep.record.remote import check_writable, download_experiment, has_experiment, parse_storage
from sweep.record.resume import Loaded, load, meta_of, retell
from sweep.schedulers.resource_changing import ResourceChangingScheduler
from sweep.worker import limits
from sweep.worker.nested import process_mark
from sweep.worker.output import parse_log_to_file

if TYPE_CHECKING:
    from sweep.callbacks.mirror import MirrorCallback
    from sweep.results.analysis import ExperimentAnalysis
    from sweep.worker.trainable import PreparedTrainable

__all__ = ["Launch"]

_COMPLETE = "are_log_files_complete"  # the last driver ended in order, and its callbacks had heard of everything


class Launch:
    """One run of the driver: everything is checked and built, then driven, then closed in the opposite order."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._stack = contextlib.ExitStack()  # what must be let go of, also when a check fails
        self._stack.callback(limits.Raised().close)
        try:
            self._check_and_build()
        except BaseException:
            self._stack.close()
            raise

    def _check_and_build(self) -> None:
        from sweep.worker.shipping import refuse_unpicklable
        from sweep.worker.trainable import prepare

        request = self.request
        limits.refuse_too_few()
        request.check_numbers()
        metric_and_mode(request.metric, request.mode)  # a wrong one is said before anything else is looked at
        self.trainable: PreparedTrainable = prepare(request.trainable)
        if request.trainable_name:
            self.trainable = replace(self.trainable, name=request.trainable_name)
        if self.trainable.space is not None:
            self.request = request = replace(request, config=self.trainable.space(request.config or {}))
        refuse_foreign_domains(request.config)
        refuse_unpicklable(request.config, is_warned=True)
        self.nodes = self._nodes()
        self.request_of = self._request_function()
        self.storage = parse_storage(request.storage_path, request.storage_filesystem)
        self.layout, self.exists = self._place()
        if self.exists:
            make_writable(self.layout, is_resumed=True)
        self.notices: list[str] = []
        self.display: Callback | None = None
        self.lock: DriverLock | None = self._lock() if self.exists else None  # from here on nobody else writes it
        self.loaded: Loaded = load(self.layout.database) if self.exists else Loaded()
        self.old_meta: dict[str, Any] = meta_of(self.layout.database) if self.exists else {}
        self.seed = self._seed()
        policies = self.policies = build_policies(
            request.search_alg,
            request.scheduler,
            config=request.config,
            metric=request.metric,
            mode=request.mode,
            num_samples=None if request.num_samples == -1 else request.num_samples,
            max_concurrent=request.max_concurrent,
            seed=self.seed,
        )
        self.searcher, self.scheduler = policies.searcher, policies.scheduler
        self.metric, self.mode = policies.metric, policies.mode
        if self.trainable.group is not None and isinstance(self.scheduler, ResourceChangingScheduler):
            raise ConfigError(
                "ResourceChangingScheduler changes what a trial asks for, and a training group keeps its size: its "
                "request comes from its ScalingConfig alone. Use another scheduler, or search over num_workers."
            )
        self.stopper, self.stop_at, budget = stop_rules(request.stop)
        self.plan = self._plan(budget)
        self.outputs = parse_log_to_file(request.log_to_file)
        self.start_from = _start_from(request.start_from)
        self.variables = self._variables()
        self.namer = self._namer()
        self.guard: DirectoryGuard | None = None
        self.is_interrupted = False  # a person ended a wait for the disk
        self.ending = Ending(self.plan.interrupt_grace_s, can_kill=request.engine != "inline")
        self.packer = Packer(self.nodes)
        self._refuse_what_never_fits()

    # --- checks ---

    def _nodes(self) -> tuple[Node, ...]:
        engine = self.request.engine
        if isinstance(engine, Engine):
            return tuple(engine.nodes())
        if engine not in ("local", "inline"):
            raise ConfigError(f"engine is {engine!r}. {nearest(str(engine), ['local', 'inline'])}")
        if self.request.nodes is not None:
            return inventory.checked_nodes(self.request.nodes, "run")
        return inventory.available()

    def _request_function(self) -> Callable[[Mapping[str, Any]], Resources]:
        given, own = self.request.resources_per_trial, self.trainable.resources
        if given is not None and own is not None:
            where = "in one place" if self.trainable.group is None else "by the trainer's ScalingConfig only"
            raise ResourceError(
                f"resources were given twice: by resources_per_trial and by the trainable itself. Give them {where}."
            )
        wanted = given if given is not None else own
        if callable(wanted):
            return lambda config: parse_resources(wanted(config))
        fixed = parse_resources(wanted)
        return lambda config: fixed

    def _place(self) -> tuple[ExperimentLayout, bool]:
        """Return the experiment's directory and whether it is to be continued."""
        storage = self.storage
        name = self.request.name
        if name is None:
            stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
            base = name = f"{tidy_name(self.trainable.name)}_{stamp}"
            number = 1
            while (storage.local_root / name).exists() or has_experiment(storage, name):
                number += 1
                name = f"{base}_{number}"
        elif name != tidy_name(name):
            raise ConfigError(
                f"name={name!r} cannot name a directory; use letters, digits, '.', '_' and '-', for instance "
                f"{tidy_name(name)!r}."
            )
        layout = ExperimentLayout(storage.local_root / name)
        if self.request.resume.is_wanted and storage.is_remote:
            download_experiment(storage, name)
        exists = layout.database.exists()
        if not self.request.resume.is_wanted and (exists or has_experiment(storage, name)):
            is_typed = bool(self.request.import_path)  # by the command line
            resume, other = ("--resume", "another --name") if is_typed else ("resume=True", "another name=")
            raise ExperimentError(
                f"there already is an experiment {name!r} in {storage.uri or storage.local_root}. Continue it with "
                f"{resume}, give {other}, or delete it: {storage.deletion(name, is_shell=is_typed)}"
            )
        return layout, exists

    def _seed(self) -> int:
        if self.request.seed is not None:
            seed = self.request.seed
            if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
                raise ConfigError(f"seed is {seed!r}; expected a whole number of at least 0.")
            return seed
        recorded = self.old_meta.get("seed")
        return int(recorded) if recorded is not None else _fresh_seed()

    def _plan(self, budget: float | None) -> Plan:
        request, keep = self.request, self.request.checkpoints
        is_class = self.trainable.can_save_on_demand
        if keep.checkpoint_frequency and not is_class:
            raise ConfigError("checkpoint_frequency is for class trainables; a function reports checkpoints by itself.")
        if keep.checkpoint_at_end and not is_class:
            raise ConfigError("checkpoint_at_end is for class trainables; a function reports checkpoints by itself.")
        budgets = [b for b in (seconds_of(request.time_budget_s), budget) if b is not None]
        samples = None if request.num_samples == -1 else request.num_samples
        ahead = 1 if self.searcher.is_adaptive else min(64, request.max_concurrent or 64)
        prefix = self.old_meta.get("prefix") or (self.loaded.plan.prefix if self.loaded.plan else uuid.uuid4().hex[:5])
        return Plan(
            prefix=checked_trial_id(prefix),
            num_trials=self.searcher.num_trials(samples),
            ask_ahead=max(ahead, 2) if not self.searcher.is_adaptive else 1,
            metric=self.metric,
            mode=self.mode,
            required=self.policies.optimised if request.is_metric_strict and not is_set(NOT_STRICT) else (),
            numbers=self.policies.numbers(self.stop_at),
            stop=self.stop_at,
            time_budget_s=min(budgets) if budgets else None,
            can_save_on_demand=is_class,
            max_failures=request.failures.max_failures,
            retry_on=request.failures.retried,
            out_of_memory=request.failures.out_of_memory,
            nan=request.failures.nan,
            trial_timeout_s=request.failures.trial_limit_s,
            fail_fast=bool(request.failures.fail_fast),
            num_to_keep=keep.num_to_keep,
            checkpoint_score=keep.checkpoint_score_attribute or "",
            checkpoint_mode=keep.checkpoint_score_order,
            checkpoint_frequency=keep.checkpoint_frequency,
            checkpoint_at_end=is_class if keep.checkpoint_at_end is None else keep.checkpoint_at_end,
            retry_errored=request.resume.errored,
            retry_unfinished=request.resume.unfinished,
            lost=self.loaded.lost,
            stop_grace_s=stop_grace_s(),
            interrupt_grace_s=stop_grace_s(Plan.interrupt_grace_s),
        )

    def _variables(self) -> list[str] | None:
        """Return the flattened config paths that vary among trials; None when only the searcher knows."""
        config = self.request.config or {}
        if self.request.search_alg is not None and not has_domains(config):
            return None
        varied = [p for p, leaf in walk(config) if isinstance(leaf, Domain) or grid_values(leaf) is not None]
        return list(dict.fromkeys([*map(path_name, varied), *self.scheduler.mutated_paths]))

    def _namer(self) -> Namer | None:
        name, dirname = self.request.trial_name_creator, self.request.trial_dirname_creator
        for which, creator in (("trial_name_creator", name), ("trial_dirname_creator", dirname)):
            if creator is not None and not callable(creator):
                raise ConfigError(f"{which} is {creator!r:.100}; expected a function of a trial that returns a text.")
        if name is None and dirname is None:
            return None
        about = self._about()
        return Namer(self.layout.root, lambda trial: ObservedTrial(trial, about), name, dirname, self._notice)

    def _about(self, name_of: Callable[[Trial], str] | None = None) -> ExperimentInfo:
        """Return what observers know of the experiment besides the trials themselves."""
        return ExperimentInfo(
            root=str(self.layout.root),
            trainable_name=self.trainable.name,
            variables=None if self.variables is None else tuple(self.variables),
            name_of=name_of,
            max_failures=self.request.failures.max_failures,
        )

    def _refuse_what_never_fits(self) -> None:
        """A request that can never be granted is refused with the arithmetic, before anything is written."""
        wanted = self.request.resources_per_trial
        if wanted is None:
            wanted = self.trainable.resources
        requests = set() if callable(wanted) else {parse_resources(wanted)}
        if self.trainable.requests is not None:
            found = self.trainable.requests(self.request.config or {})
            if self.request.engine == "inline" and found and all(len(resources.bundles) > 1 for resources in found):
                raise ConfigError(
                    "engine='inline' runs trials in this process, and a group of several workers needs processes. Use "
                    "engine='local', or ScalingConfig(num_workers=1) to debug."
                )
            # Of several sizes of a group those that fit may run; the trials of the others say why they cannot.
            if found and not any(self.packer.could_ever_fit(resources) for resources in found):
                requests.add(min(found, key=lambda resources: len(resources.bundles)))
        if self.request.resume.unfinished:
            requests |= {trial.resources for trial in self.loaded.trials if not trial.is_ended}
        for resources in requests:
            if not self.packer.could_ever_fit(resources):
                why = self.packer.why_never(resources)
                if self.trainable.group is not None:  # its request comes from its ScalingConfig alone
                    why = why.replace("Lower resources_per_trial", "Lower num_workers or resources_per_worker")
                raise ResourceError(why)

    # --- running ---

    def run(self) -> tuple[ExperimentAnalysis, bool]:
        """Drive to the end; returns the analysis and whether a person interrupted it."""
        from sweep.results.analysis import ExperimentAnalysis

        with self._stack as stack:
            if not self.exists:
                make_writable(self.layout)
            check_writable(self.storage)
            if self.lock is None:
                self.lock = self._lock()
            if self.request.recipe is not None:
                with refusing_full_disk(self.layout):
                    write_recipe(self.layout.root, self.request.recipe)
            self._bring_back()
            self._say_what_surprises()
            sweep = self._drive(stack, self.lock)
        is_interrupted = self.is_interrupted or sweep.ending is Ask.INTERRUPT
        if not is_interrupted and (error := sweep.metric_error()) is not None:
            raise MetricError(f"{error} Everything is kept in {self.layout.root}.")
        if not self.request.verbose and (silent := told_of_silence(sweep.trials, self.plan)):
            warnings.warn(f"{self.layout.root.name}: {silent}", stacklevel=3)
        if is_interrupted and not getattr(self.display, "says_how_to_resume", False):
            self._notice(f"stopped; everything is kept. Continue with: {self._resume_command()}")
        return ExperimentAnalysis._of_this_process(self.layout.root), is_interrupted

    def _lock(self) -> DriverLock:
        lock = DriverLock(self.layout.lock, process_mark(os.getpid()))
        self._stack.callback(lock.release)
        return lock

    def _bring_back(self) -> None:
        """Bring searcher and scheduler up to the record, and remove what nothing refers to."""
        if not self.exists:
            return
        for path in self.loaded.strays:
            self._discard(path)
        for path in self.loaded.missing:
            self._notice(f"the checkpoint {path} is gone; its trial continues from the one before, or from the start")
        retell(self.layout.database, self.scheduler, self.searcher, self._judge())
        self._print_differences()

    def _discard(self, path: str) -> None:
        from sweep.record.checkpoints import discard_in

        if not discard_in(self.layout.root, path):
            self._notice(f"{path} is not deleted: a symbolic link leads out of {self.layout.root}")

    def _drive(self, stack: contextlib.ExitStack, lock: DriverLock) -> Sweep:
        mirror = self._mirror()
        self.guard = guard = DirectoryGuard(self.layout)
        stack.callback(guard.close)
        if mirror is not None:
            stack.callback(_finish, mirror, guard)  # last of all: the record is closed by then
        journal = Journal(
            self.layout.database,
            durability=self.request.durability,
            discard=self._discard,
            notice=self._warn,
            is_interrupted=lambda: self.ending.is_interrupted,
            check=guard.check,
            name_of=self.namer.name_of if self.namer is not None else None,
        )
        stack.callback(journal.close)
        journal.set_meta(self._meta())
        with refusing_full_disk(self.layout):
            engine = self._engine(lock)
        # While the zygote boots, so that it costs no time.
        end_leftovers(self.layout.root.absolute(), lock.dead, mark_of_dead_driver, self._notice)
        sweep = Sweep(
            self.plan, self.scheduler, self.packer, self.loaded.trials, kept=self.loaded.kept, seq=self.loaded.seq
        )
        about = self._about(self.namer.name_of if self.namer is not None else None)
        callbacks = [*self._callbacks(), *([mirror] if mirror is not None else [])]
        dispatcher = Dispatcher(callbacks, self._notice, about=about)

        def close_callbacks() -> None:
            is_all_told = dispatcher.close(list(sweep.trials.values()))
            if is_all_told and not is_set(NO_LOGGERS) and not guard.problem:
                with contextlib.suppress(RecordError):  # a full disk: a resume compares the files with the record
                    journal.set_meta({_COMPLETE: True})

        stack.callback(close_callbacks)
        dispatcher.setup(**self._setup_info())
        stack.callback(engine.close)  # before the callbacks are closed, so that they hear of everything
        try:
            dispatcher.start()
            guard.start(lambda: engine.post(Tick()))  # wakes the loop, whose next commit is refused
        except RuntimeError as error:  # no thread is free
            raise limits.refusal(OSError(errno.EAGAIN, str(error))) from error
        leave = getattr(self.display, "leave", lambda: None)
        stack.enter_context(interruptible(engine, self.ending.hear, leave))

        def loop() -> None:
            drive(
                sweep,
                engine,
                self.searcher,
                dispatcher,
                journal,
                request_of=self.request_of,
                judge=self._judge(),
                complete=self._complete,
            )

        try:
            engine.run_loop(loop)
            guard.check()
        except BaseException as error:
            if not (isinstance(error, RecordError) and self.ending.is_interrupted):
                self.ending.error = error
                raise
            self._warn(str(error))
            self.is_interrupted = True
        for text in (*engine.notices, *self.policies.notices, *self.scheduler.notices):
            self._notice(text)
        return sweep

    def _complete(self, config: Mapping[str, Any], trial_id: str) -> Mapping[str, Any]:
        from sweep.worker.shipping import refuse_unpicklable

        completed = self.policies.complete(config, trial_id)
        refuse_unpicklable(completed)
        return completed

    def _engine(self, lock: DriverLock) -> Engine:
        request = self.request
        if isinstance(request.engine, Engine):
            return request.engine
        context = EngineContext(
            directory=self.layout.root,
            trainable=self.trainable,
            nodes=self.nodes,
            start_at=self.loaded.at,
            seed=self.seed,
            experiment_name=self.layout.root.name,
            is_chdir=request.is_chdir,
            name_of=self.namer.name_of if self.namer is not None else None,
            start_from=self.start_from,
            log_to_file=self.outputs,
            report_timeout_s=request.failures.report_limit_s,
            lock_fd=lock.fd,
            notice=self._notice,
            **{**request.engine_options, "env": {**inventory.env_vars(), **request.engine_options["env"]}},
        )
        if request.engine == "inline":
            from sweep.engines.inline import InlineEngine

            return InlineEngine(context)
        from sweep.engines.local import LocalEngine

        return LocalEngine(context)

    def _mirror(self) -> MirrorCallback | None:
        """Return what copies the experiment to remote storage; None when it is stored here."""
        if not self.storage.is_remote:
            return None
        from sweep.callbacks.mirror import MirrorCallback

        sync = self.request.sync
        return MirrorCallback(
            self.storage,
            self.layout.root,
            sync.sync_period,
            sync_timeout_s=sync.sync_timeout,
            sync_artifacts=sync.sync_artifacts,
            sync_artifacts_on_checkpoint=sync.sync_artifacts_on_checkpoint,
            log_files=self.outputs or (),
            notice=self._notice,
        )

    def _judge(self) -> Callable[[str, Result], Verdict] | None:
        stopper = self.stopper
        if stopper is None:
            return None

        def judge(trial_id: str, result: Result) -> Verdict:
            is_over = stopper(trial_id, result)
            return Verdict.STOP_ALL if stopper.stop_all() else Verdict.STOP if is_over else Verdict.NONE

        return judge

    def _callbacks(self) -> list[Callback]:
        from sweep.callbacks.loggers import CSVLoggerCallback, JsonLoggerCallback

        found = [*self.request.callbacks, *callbacks_from(os.environ)]
        rules = dict.fromkeys(self.plan.stop, "which stop= names; it ends nothing until it is reported")
        base = getattr(self.scheduler, "base_scheduler", self.scheduler)
        if time_attr := getattr(base, "time_attr", ""):
            rules[time_attr] = f"which time_attr of {describe(base)} names; it decides nothing until it is reported"
        rules = {key: rule for key, rule in rules.items() if key not in ("training_iteration", "time_total_s")}
        metric, score = self.metric if self.plan.required else "", self.plan.checkpoint_score
        if metric or rules or score:
            found.append(MissingKeys(metric, rules, score, self._notice))
        found += [ErrorFileCallback(), AlikeFailures(self._notice), DamageNotice(self._notice), SpaceNotice(self._warn)]
        if getattr(self.scheduler, "log_config", False):
            from sweep.callbacks.policy import PolicyFiles

            found.append(PolicyFiles(self.scheduler.mutated_paths))
        for kind in (JsonLoggerCallback, CSVLoggerCallback):
            if not is_set(NO_LOGGERS) and not any(isinstance(callback, kind) for callback in found):
                found.append(kind())
        if self.request.reporter is not None:
            self.display = self.request.reporter
            found.append(self.request.reporter)
        elif self.request.verbose:
            from sweep.display.progress import Progress

            self.display = Progress(verbose=self.request.verbose)
            found.append(self.display)
        if self.request.verbose and not getattr(self.display, "shows_ending", False):
            found.append(EndingNotice(self.ending, can_save_on_demand=self.plan.can_save_on_demand))
        return found

    def _setup_info(self) -> dict[str, Any]:
        limit = f" (limit {self.request.max_concurrent})" if self.request.max_concurrent else ""
        inner = self.searcher.searcher if isinstance(self.searcher, ConcurrencyLimiter) else self.searcher
        return {
            "experiment_dir": str(self.layout.root),
            "stop": self.request.stop,
            "num_samples": self.request.num_samples,
            "total_num_samples": self.plan.num_trials,
            "plan": self.plan,
            "num_trials": self.plan.num_trials,
            "name": self.layout.root.name,
            "searcher": describe(inner, self.request.config) + limit,
            "scheduler": describe(self.scheduler),
            "seed": self.seed,
            "verbose": self.request.verbose,
            "nodes": self.nodes,
            "objectives": objectives_of(self.policies.metrics, self.policies.modes or self.mode),
            "resume_command": self._resume_command(),
            "ending": self.ending,
            "is_resumed": self.exists,
            "resumed": self.exists and not self.old_meta.get(_COMPLETE),  # files must be compared with the record
            "trials": tuple(self.loaded.trials),
        }

    def _resume_command(self) -> str:
        root = self.layout.root
        is_usual = root.parent == parse_storage().local_root
        where = "" if is_usual else f" --storage {self.storage.uri or root.parent}"
        if self.request.import_path:  # the command line started it, and can start it again
            return f"sweep resume {root.name}{where}"
        if HAS_NO_RESUME.get():
            uri = self.storage.uri
            place = f"{uri.rstrip('/')}/{root.name}" if uri else os.path.relpath(root)
            is_named = self.trainable.group is None and self.trainable.name != "lambda"
            return f"sweep.Tuner.restore({place!r}, {self.trainable.name if is_named else 'trainable'}).fit()"
        return f"the same call with name={root.name!r}, resume=True"

    def _import_path(self) -> str:
        return self.request.import_path or self.trainable.import_path

    def _meta(self) -> dict[str, Any]:
        request = self.request
        return {
            _COMPLETE: False,  # until the end
            "name": self.layout.root.name,
            "prefix": self.plan.prefix,
            "created": self.old_meta.get("created", time.time()),
            "version": __version__,
            "trainable": {"name": self.trainable.name, "kind": self.trainable.kind},
            "import_path": self._import_path(),
            "metric": self.metric,
            "mode": self.mode if self.metric else None,
            "metrics": _list_of(self.policies.metrics),
            "modes": _list_of(self.policies.modes),
            "space": {key: shown(value, 100_000) for key, value in (request.config or {}).items()},
            "space_keys": space_keys(request.config or {}),
            "variables": self.variables,
            "log_to_file": list(self.outputs) if self.outputs else None,
            "searcher": describe(self.searcher, self.request.config),
            "scheduler": describe(self.scheduler),
            "num_samples": request.num_samples,
            "num_trials": self.plan.num_trials,
            "resources_per_trial": (
                None
                if callable(request.resources_per_trial)
                else parse_resources(request.resources_per_trial).to_json()
            ),
            "seed": self.seed,
            "storage_path": self.storage.uri or str(self.layout.root.parent),
            "resume_command": self._resume_command(),
            "python": sys.version.split()[0],
        }

    def _print_differences(self) -> None:
        """Say what is different from the last run, so that nobody extends a sweep without noticing how."""
        before = self.loaded.plan
        if before is None or not self.request.verbose:
            return
        now = replace(self.plan, retry_errored="", retry_unfinished=True, lost=())
        then = replace(before, retry_errored="", retry_unfinished=True, lost=())
        changes = [
            f"{key} {old!r} -> {new!r}"
            for key, new in now.to_json().items()
            if (old := then.to_json()[key]) != new and key not in ("prefix", "ask_ahead", "required", "numbers")
        ]
        for key in ("searcher", "scheduler", "space"):
            old, new = self.old_meta.get(key), self._meta()[key]
            if old != new:
                changes.append(f"{key} {old} -> {new}")
        ended = sum(trial.is_ended for trial in self.loaded.trials)
        text = f"resuming {self.layout.root.name}: {ended} of {len(self.loaded.trials)} trials have ended"
        self._notice(text + (f"; changed: {', '.join(changes)}" if changes else ""))

    def _say_what_surprises(self) -> None:
        """Say in one line each what silently costs people a day: nothing to resume, a search too wide, unseen GPUs."""
        if self.request.resume.is_wanted and not self.request.resume.is_auto and not self.exists:
            where = self.storage.uri or self.layout.root.parent
            self._notice(f"there is no experiment {self.layout.root.name!r} in {where} to resume; a new one starts")
        wanted = self.request.resources_per_trial
        best = self.searcher.best_concurrency
        if best is not None and self.request.verbose and (width := self._width()) > best:
            self._notice(
                f"{width} trials at a time: {describe(self.searcher)} suggests from fewer results than it could have; "
                f"up to {best} at a time it loses little. max_concurrent_trials={best} waits for them."
            )
        is_given = isinstance(self.request.engine, Engine) or self.request.nodes is not None
        of_groups = self.trainable.notices(self.request.config or {}) if self.trainable.notices is not None else ()
        for text in (*(() if is_given else inventory.notices()), *of_groups):
            self._notice(text)
        lists = unsearched_lists(self.request.search_alg, self.scheduler, self.request.config)
        if lists and self.request.verbose:
            self._notice(lists)
        if not self.request.verbose or self.trainable.resources is not None or callable(wanted):
            return
        gpus = sum(device.kind == "gpu" for node in self.nodes for device in node.devices)
        if gpus and not any(bundle.gpu for bundle in parse_resources(wanted).bundles):
            self._notice(
                f"{gpus} GPU{'s are' if gpus > 1 else ' is'} here and trials ask for none: they will not see any. "
                "Pass resources_per_trial={'cpu': 1, 'gpu': 1} to use them."
            )

    def _width(self) -> int:
        """Return how many trials will run at a time, as far as their CPUs and GPUs say."""
        wanted = self.request.resources_per_trial
        limits = [self.plan.num_trials or sys.maxsize, self.request.max_concurrent or sys.maxsize]
        if not callable(wanted) and self.trainable.resources is None:
            bundles = parse_resources(wanted).bundles
            gpus = sum(device.kind == "gpu" for node in self.nodes for device in node.devices)
            for total, each in ((sum(n.cpus for n in self.nodes), "cpu"), (gpus, "gpu")):
                share = sum(getattr(bundle, each) for bundle in bundles)
                limits += [int(total / share)] if share else []
        else:
            return 1  # it depends on the config
        if isinstance(self.searcher, ConcurrencyLimiter):
            limits.append(self.searcher.max_concurrent)
        return min(limits)

    def _warn(self, text: str) -> None:
        """Say what concerns everybody: also when nothing is to be printed."""
        self._notice(text, is_always=True)

    def _notice(self, text: str, *, is_always: bool = False) -> None:
        if self.guard is not None and self.guard.problem:
            return  # everything fails now, for one reason, and that is raised
        self.notices.append(text)
        if not self.request.verbose and not is_always:
            return
        show = getattr(self.display, "notice", None)
        if show is not None:
            show(text)
        else:
            with contextlib.suppress(OSError):  # nobody reads it any more
                print(f"sweep: {text}", file=sys.stderr, flush=True)


def _finish(mirror: MirrorCallback, guard: DirectoryGuard) -> None:
    if guard.problem:
        return  # there is nothing left to copy, and what lies there is whole
    with contextlib.suppress(KeyboardInterrupt):  # somebody does not want to wait; what is missing was said
        mirror.finish()


def _start_from(path: str | os.PathLike[str] | None) -> str:
    """Return the checkpoint that trials start from, absolute; empty: none.

    Raises:
        ConfigError: there is no such directory.
    """
    if path is None:
        return ""
    found = os.path.abspath(getattr(path, "path", path))
    if not os.path.isdir(found):
        raise ConfigError(f"restore is {found!r}; expected the directory of a checkpoint.")
    return found


def _fresh_seed() -> int:
    """Draw a seed from numpy's global generator, so that `np.random.seed(...)` before a run makes it repeatable."""
    import numpy as np

    return int(np.random.randint(2**32, dtype=np.uint64))


def _list_of(names: str | Sequence[str] | None) -> list[str] | None:
    """Return the names of several objectives; None when there is one, or none."""
    return list(names) if names and not isinstance(names, str) else None
