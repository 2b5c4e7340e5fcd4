"""Observers of a run: the user's callbacks, the default loggers, the display, what gives notices, what sends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sweep.callbacks.base import Callback
from sweep.callbacks.named import callbacks_from
from sweep.callbacks.observed import ObservedTrial
from sweep.callbacks.watch import AlikeFailures, DamageNotice, MissingKeys, SchedulerNotices, SlowStarts, SpaceNotice
from sweep.display.ending import Ending, EndingNotice
from sweep.launch.build import Built
from sweep.launch.notices import Notices
from sweep.launch.place import Place
from sweep.launch.policies import describe
from sweep.launch.settings import NO_LOGGERS, is_set
from sweep.launch.trial_names import Namer
from sweep.results.trials import ExperimentInfo

if TYPE_CHECKING:
    from sweep.storage.record_copy import RecordCopy
    from sweep.storage.send import Sender
    from sweep.storage.shared import SharedRecord


_ALWAYS_THERE = ("training_iteration", "time_total_s")  # keys that every result has


def about_of(built: Built, place: Place, trainable_name: str, notice: Callable[[str], None]) -> ExperimentInfo:
    """Return what observers know of the experiment, with the names that the user's functions give to trials."""
    spec, root = built.spec, place.layout.root
    about = ExperimentInfo(
        root=str(root),
        trainable_name=trainable_name,
        variables=built.variables,
        max_failures=built.plan.max_failures,
    )
    creators = spec.trial_name_creator, spec.trial_dirname_creator
    if creators == (None, None):
        return about
    return replace(about, name_of=Namer(root, lambda trial: ObservedTrial(trial, about), *creators, notice).name_of)


def callbacks_of(built: Built, ending: Ending, notices: Notices, *, can_reuse: bool) -> list[Callback]:
    """Return the callbacks of a run in the order in which they are called; the display becomes that of `notices`.

    Args:
        can_reuse: a process may be kept for the next trial, which those of groups are not.
    """
    spec, plan, scheduler = built.spec, built.plan, built.policies.scheduler
    found = [*(spec.callbacks or ()), *callbacks_from(os.environ)]
    rules = dict.fromkeys(plan.stop, "which stop= names; it ends nothing until it is reported")
    if time_attr := scheduler.time_attr:
        name = describe(scheduler.inner or scheduler)
        rules[time_attr] = f"which time_attr of {name} names; it decides nothing until it is reported"
    rules = {key: rule for key, rule in rules.items() if key not in _ALWAYS_THERE}
    metric = built.policies.metric if plan.required else ""
    if metric or rules or plan.checkpoint_score:
        found.append(MissingKeys(metric, rules, plan.checkpoint_score, notices.say, notices.warn))
    is_population = scheduler.is_searching and scheduler.first_judgement is not None
    found.append(SchedulerNotices(scheduler, is_population and not plan.can_save_on_demand, notices.say))
    found += [AlikeFailures(notices.say), DamageNotice(notices.say), SpaceNotice(notices.warn)]
    if can_reuse and not spec.reuse_actors and spec.engine != "inline":
        found.append(SlowStarts(notices.say))
    request = getattr(spec.engine, "request", None)
    if request is not None:  # a cluster that can grow
        from sweep.launch.autoscaling import Demand

        found.append(Demand(request))
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
    """Return which log files the scribe writes, as `Follow` names them, and take its loggers out of the callbacks.

    Loggers that are subclassed do something else than it: they stay, and it leaves their files to them.
    """
    from sweep.callbacks.loggers import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

    files = ["errors", *(["policies"] if getattr(built.policies.scheduler, "log_config", False) else [])]
    for kind, name in ((JsonLoggerCallback, "json"), (CSVLoggerCallback, "csv"), (TBXLoggerCallback, "tensorboard")):
        is_asked = any(type(callback) is kind for callback in callbacks)
        is_default = name != "tensorboard" and not is_set(NO_LOGGERS)
        if is_asked or (is_default and not any(isinstance(callback, kind) for callback in callbacks)):
            files.append(name)
        callbacks[:] = [callback for callback in callbacks if type(callback) is not kind]
    return tuple(files)


def sender_of(
    built: Built, place: Place, shared: SharedRecord | None, log_files: tuple[str, ...], notices: Notices
) -> Sender | None:
    """Return what sends the experiment, or its record, to where other machines reach it; None when none does."""
    if shared is None and not place.storage.is_remote:
        return None
    from sweep.core.config import SyncConfig
    from sweep.storage.filesystems import remember_home
    from sweep.storage.mirror import Mirror
    from sweep.storage.send import Sender

    sync = built.spec.sync_config or SyncConfig()
    copy: RecordCopy
    if shared is not None:
        copy = shared
    else:
        remote, root = place.storage.experiment(place.name), place.layout.root
        remember_home(root, remote, place.storage.uri_of(place.name))
        copy = Mirror(remote, root, log_files=log_files)
    return Sender(
        copy,
        sync.sync_period,
        sync_timeout_s=sync.sync_timeout,
        sync_artifacts=sync.sync_artifacts,
        sync_artifacts_on_checkpoint=sync.sync_artifacts_on_checkpoint,
        notice=notices.say if shared is None else notices.warn,
    )


def finish_sending(sender: Sender, problem: Callable[[], str]) -> None:
    """Send what is not there yet, unless the experiment's directory has a `problem`: it is gone."""
    if problem():
        sender.stop()  # there is nothing left to send, and what lies there is whole
        return
    with contextlib.suppress(KeyboardInterrupt):  # the user does not want to wait; what is missing was said
        sender.finish()
