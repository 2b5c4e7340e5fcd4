"""Observers of a run: the user's callbacks, the default loggers, the display, names of trials, what sends, demands."""

from __future__ import annotations

import hashlib
import math
import os
import pkgutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.callbacks.base import Callback
from sweep.callbacks.observed import ObservedTrial
from sweep.callbacks.watch import FailureNotices, MissingKeys, SchedulerNotices, SpaceNotice
from sweep.core.resources import Resources
from sweep.core.trial import HELD, Status, Trial
from sweep.display.ending import Ending, EndingNotice
from sweep.errors import ConfigError
from sweep.launch.build import Built, describe
from sweep.launch.description import Notices
from sweep.launch.place import Place
from sweep.launch.spec import NO_LOGGERS, RunSpec, is_set
from sweep.record.importing import importing
from sweep.results.trials import ExperimentInfo

if TYPE_CHECKING:
    from sweep.storage.mirror import Mirror
    from sweep.storage.send import Sender
    from sweep.storage.shared import SharedRecord


_VARIABLES = ("SWEEP_CALLBACKS", "RAY_TUNE_CALLBACKS")  # of the environment: "package.module.Class,other.Class"
_ALWAYS_THERE = ("training_iteration", "time_total_s")  # keys that every result has


def about_of(built: Built, place: Place, trainable_name: str, notice: Callable[[str], None]) -> ExperimentInfo:
    """Return what observers know of the experiment, with the names that the user's functions give to trials."""
    spec, most = built.spec, built.plan.max_failures
    about = ExperimentInfo(str(place.layout.root), trainable_name, built.variables, max_failures=most)
    is_named = spec.trial_name_creator is not None or spec.trial_dirname_creator is not None
    return replace(about, name_of=Namer(spec, about, notice).name_of) if is_named else about


def callbacks_from(environ: Mapping[str, str]) -> list[Callback]:
    """Return an object of every class that the environment names, made without arguments."""
    variable = next((name for name in _VARIABLES if environ.get(name)), "")
    made: list[Callback] = []
    for path in filter(None, map(str.strip, environ.get(variable, "").split(","))):
        try:
            with importing():
                kind = pkgutil.resolve_name(path)
            if not isinstance(kind, type) or not issubclass(kind, Callback):
                raise ValueError(f"it is {kind!r:.100}")
        except (ImportError, AttributeError, ValueError) as error:
            what = "expected module.Class, a subclass of sweep.Callback"
            raise ConfigError(f"{variable} names {path!r}; {what}: {error}.") from error
        made.append(kind())
    return made


def callbacks_of(built: Built, ending: Ending, notices: Notices) -> list[Callback]:
    """Return the callbacks of a run in the order in which they are called; the display becomes that of `notices`."""
    spec, plan, scheduler = built.spec, built.plan, built.policies.scheduler
    found = [*(spec.callbacks or ()), *callbacks_from(os.environ)]
    rules = dict.fromkeys(plan.required[:1], "which is the metric; the sweep ends when no trial reports it")
    rules |= dict.fromkeys(plan.stop, "which stop= names; it ends nothing until it is reported")
    if time_attr := scheduler.time_attr:
        name = describe(scheduler.inner or scheduler)
        rules[time_attr] = f"which time_attr of {name} names; it decides nothing until it is reported"
    if plan.checkpoint_score:
        rule = "which checkpoint_score_attribute names; checkpoints without it are the first to be deleted"
        rules[plan.checkpoint_score] = rule
    rules = {key: rule for key, rule in rules.items() if key not in _ALWAYS_THERE}
    found.append(MissingKeys(rules, notices.say, notices.warn))
    is_population = scheduler.is_searching and scheduler.first_judgement is not None
    found.append(SchedulerNotices(scheduler, is_population and not plan.can_save_on_demand, notices.say))
    found += [FailureNotices(notices.say), SpaceNotice(notices.warn)]
    if request := getattr(spec.engine, "request", None):  # a cluster that can grow and shrink
        limit = getattr(built.policies.searcher, "max_concurrent", None)
        found.append(Demand(request, plan.num_trials, limit))
    if spec.progress_reporter is not None:
        notices.display = spec.progress_reporter
    elif spec.verbosity:
        from sweep.display.progress import Progress

        notices.display = Progress(verbose=spec.verbosity)
    found += [] if notices.display is None else [notices.display]
    if spec.verbosity and not getattr(notices.display, "shows_ending", False):
        found.append(EndingNotice(ending, can_save_on_demand=plan.can_save_on_demand))
    return found


def take_log_files(built: Built, callbacks: list[Callback]) -> tuple[str, ...]:
    """Return which log files to write, as `LogJob` names them, and take from the callbacks what only asks for them."""
    from sweep.callbacks.loggers import CSVLoggerCallback, JsonLoggerCallback

    files = ["errors", *(["policies"] if getattr(built.policies.scheduler, "log_config", False) else [])]
    for kind, name in ((JsonLoggerCallback, "json"), (CSVLoggerCallback, "csv")):
        if not is_set(NO_LOGGERS) or any(isinstance(callback, kind) for callback in callbacks):
            files.append(name)
        callbacks[:] = [callback for callback in callbacks if type(callback) is not kind]
    return tuple(files)


def sender_of(
    built: Built, place: Place, shared: SharedRecord | None, log_files: tuple[str, ...], notices: Notices
) -> Sender | None:
    """Return what sends the experiment, or its record, to where other machines reach it; None when none does."""
    mirror: Mirror | None = shared
    if place.storage.remote is not None:
        from sweep.storage.filesystems import remember_home
        from sweep.storage.mirror import Mirror

        remote = place.storage.remote / place.name
        remember_home(place.layout.root, remote)
        mirror = Mirror(remote, place.layout.root, log_files=log_files)
    if mirror is None:
        return None
    from sweep.storage.send import Sender

    return Sender(mirror, built.spec.sync_config, notice=notices.say if shared is None else notices.warn)


_MAX_BYTES = 240  # of a link's name, which a file system takes up to 255 of; a trial's number may follow


class Namer:
    """Give each trial its name, and its directory a second one, by the user's functions; asked once per trial.

    Whatever goes wrong in them is said once and costs the name only, never the sweep.
    """

    def __init__(self, spec: RunSpec, about: ExperimentInfo, notice: Callable[[str], None]) -> None:
        self._spec, self._about, self._notice = spec, about, notice
        self._names: dict[str, str] = {}
        self._said: set[str] = set()

    def name_of(self, trial: Trial) -> str:
        """Return the trial's name; empty: the usual one."""
        if trial.id not in self._names:
            self._names[trial.id] = self._created("trial_name_creator", trial)
            self._created("trial_dirname_creator", trial)
        return self._names[trial.id]

    def _created(self, which: str, trial: Trial) -> str:
        if (creator := getattr(self._spec, which)) is None:
            return ""
        try:
            name = creator(ObservedTrial(trial, self._about))
            if not isinstance(name, str):
                raise TypeError(f"it returned {name!r:.100}; expected a text")
            name = "".join(letter if letter.isprintable() else "_" for letter in name.strip())
            if which == "trial_dirname_creator" and name not in ("", trial.id):
                _link(Path(self._about.root), trial, name)
            return name
        except Exception as error:  # the user's own function: a name is not worth a sweep
            if which not in self._said:
                self._said.add(which)
                self._notice(f"{which} failed for trial {trial.id}: {type(error).__name__}: {error}")
            return ""


def _link(root: Path, trial: Trial, name: str) -> None:
    if os.sep in name or name in (".", ".."):
        raise ValueError(f"it returned {name!r}, which cannot name a directory. Leave separators out")
    if len(data := name.encode()) > _MAX_BYTES:
        name = f"{data[: _MAX_BYTES - 9].decode(errors='ignore')}_{hashlib.sha256(data).hexdigest()[:8]}"
    link = root / name
    if os.path.lexists(link) and not (link.is_symlink() and os.readlink(link) == trial.id):
        link = root / f"{name}_{trial.number:05d}"  # two trials of one name: the id tells them apart
    if not os.path.lexists(link):
        os.makedirs(root / trial.id, exist_ok=True)  # a link to nothing cannot be copied
        os.symlink(trial.id, link)


_EVERY_S = 2.0
_MOST_UNASKED = 256  # trials that the searcher has not been asked for yet; it is when there is room

Bundles = list[dict[str, float]]


class Demand(Callback):
    """Tells what the trials that wait ask for and what those that run hold, soon after that has changed.

    Those that are still to come wait, too, so many as may run; they ask for what the last one did. One that comes is
    news though it asks for that. `request` hears both lists of bundles, in Ray's names; it may take a while: it is
    called on a thread of its own."""

    def __init__(
        self,
        request: Callable[[Bundles, Bundles], None],
        num_trials: int | None = 0,
        max_concurrent: int | None = None,
    ) -> None:
        self._request = request
        self._num_trials = math.inf if num_trials is None else num_trials
        self._max_concurrent = max_concurrent or math.inf
        self._unasked: Bundles = []
        self._open: dict[str, tuple[bool, Bundles]] = {}  # by trial: whether it runs, and what it asks for
        self._has_news = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="sweep-demand", daemon=True)
        self._thread.start()

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        for trial_id in changed if self._open else trials:  # at first those of an earlier run, too
            trial = trials[trial_id]
            if trial.status in (*HELD, Status.PENDING):
                self._open[trial_id] = trial.status is not Status.PENDING, _bundles(trial.resources)
            else:
                self._open.pop(trial_id, None)
        number = min(self._num_trials - len(trials), self._max_concurrent - len(self._open), _MOST_UNASKED)
        last = trials[changed[-1]].resources if changed else None
        if last is not None:
            self._unasked = _bundles(last) * max(0, int(number))
        self._has_news.set()

    def on_experiment_end(self, trials: Sequence[Any]) -> None:
        self._is_over.set()
        self._has_news.set()
        self._thread.join()

    def _tell(self) -> None:
        last: list[Bundles] = [[], [], []]
        while self._has_news.wait() and not self._is_over.is_set():
            self._has_news.clear()
            asked = list(self._open.values())
            wanted = [[one for runs, bundles in asked if runs is is_run for one in bundles] for is_run in (False, True)]
            if (now := [*wanted, unasked := self._unasked]) != last:
                last = now
                self._request([*wanted[0], *unasked], wanted[1])
            self._is_over.wait(_EVERY_S)


def _bundles(resources: Resources) -> Bundles:
    names = {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU"}
    given = [bundle.amounts for bundle in resources.bundles if not bundle.is_empty]
    return [{names.get(name, name): float(amount) for name, amount in amounts.items()} for amounts in given]
