"""Small observers that every sweep has: notices for the user."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from searchers.errors import closest, nearest
from sweep.callbacks.base import Callback, FilesCallback
from sweep.core.messages import Exit
from sweep.core.results import TrialResult, flatten, own_metrics
from sweep.core.trial import Cause, Status, Trial
from sweep.record.facts import last_exit
from sweep.storage.shared import open_record

_REPORTS = 10  # of one trial, after which a key that a rule goes by is missed
_MISSPELT = 0.8  # likeness of two names, of which one is the other with a slip: `val_loss` is none of `loss`
_COUNTS = (2, 5)  # failures alike at which it is said: early, and once more when it is sure
_SAY_S = 60.0  # between two notices of a full disk
_FRAME = re.compile(r'^ *File "(.+?)", line (\d+)', re.MULTILINE)
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_LIBRARIES = re.compile(r"[/\\](?:site|dist)-packages[/\\]|^<|^" + re.escape(_STDLIB))


class AlikeFailures(FilesCallback):
    """Say so early when all trials fail in the same way before their first report: it is the code, not the configs."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._seen: set[str] = set()
        self._first: tuple[str, str, str] | None = None
        self._is_over = False

    def on_trial_recover(self, trial: Trial) -> None:
        if trial.cause is not Cause.DAMAGED:  # which is no fault of its own
            self.on_trial_error(trial)

    def on_trial_error(self, trial: Trial) -> None:
        if self._is_over or trial.id in self._seen:
            return
        ended = None
        if not trial.last_result:
            with closing(open_record(self.layout.root)) as connection:
                ended = last_exit(connection, trial.id)
        origin = _origin(ended)
        self._first = self._first or origin
        if ended is None or not origin[0] or origin != self._first:
            self._is_over = True
            return
        self._seen.add(trial.id)
        count = len(self._seen)
        self._is_over = count >= _COUNTS[-1]
        if count in _COUNTS:
            where = f" ({os.path.basename(origin[1])}:{origin[2]})" if origin[1] else ""
            self._notice(
                f"the first {count} trials that failed did so alike, before their first report: {ended.error}"
                f"{where}. `sweep logs {shlex.quote(self.layout.root.name)} {trial.number:05d}` shows more; Ctrl-C "
                "ends the sweep"
            )


class DamageNotice(Callback):
    """Say that a trial continues from another checkpoint than its last, because that proved damaged."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice

    def on_trial_recover(self, trial: Trial) -> None:
        if trial.cause is Cause.DAMAGED:
            self._notice(f"trial {trial.number:05d} {trial.reason}")


class SchedulerNotices(Callback):
    """Say what a scheduler notes as soon as it does; and at the first trial that ends without one, that it needs
    checkpoints.
    """

    def __init__(self, scheduler: Any, is_copying: bool, notice: Callable[[str], None]) -> None:
        self._scheduler, self._notice = scheduler, notice
        self._is_copying = is_copying  # trials continue from checkpoints of others, which they have to report
        self._num_said = 0

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Look for what is new."""
        for text in self._scheduler.notices[self._num_said :]:
            self._num_said += 1
            self._notice(text)
        ended = [trials[name] for name in changed if trials[name].last_result] if self._is_copying else []
        if ended := [trial for trial in ended if trial.status is Status.TERMINATED]:
            self._is_copying = False
            if ended[0].checkpoint is None:
                self._notice(
                    f"trial {ended[0].number:05d} ended without a checkpoint, and "
                    f"{type(self._scheduler).__name__} lets trials continue from those of others: without any it "
                    "changes nothing. Report them: sweep.report(..., checkpoint=...)"
                )


class SpaceNotice(Callback):
    """Say which trial waits for room on a full disk, at most once a minute: nothing happens until the user acts."""

    def __init__(self, warn: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._warn = warn
        self._clock = clock
        self._not_before = float("-inf")

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        short = [trial for name in changed if (trial := trials[name]).reason and trial.waits_for_space]
        if not short or self._clock() < self._not_before:
            return
        self._not_before = self._clock() + _SAY_S
        self._warn(f"trial {short[0].number:05d} {short[0].reason}. Free some space and it goes on; Ctrl-C ends it")


class MissingKeys(Callback):
    """Say once that what a rule goes by is not reported, so that the rule does nothing: after ten reports of a trial,
    or at the end of one that finished; and at the first report of a key that looks like a slip.
    """

    def __init__(
        self,
        metric: str,
        rules: Mapping[str, str],
        score: str,
        notice: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._metric, self._score = metric, score  # "" if there is none
        self._rules = dict(rules)  # key -> what names it and what follows; of those neither seen nor missed so far
        self._notice, self._warn = notice, warn  # the second where trials go on that a rule may be meant to end
        self._is_first = True

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Look for the keys in what is reported, until each was seen or missed."""
        for trial in (trials[name] for name in changed if self._metric or self._rules or self._score):
            if trial.last_result is not None:
                self._look_for_metric(trial, trial.last_result)
                self._look_for_score(trial, trial.last_result)
                self._look_for_rules(trial, trial.last_result)

    def _look_for_rules(self, trial: Trial, result: TrialResult) -> None:
        self._rules = {key: rule for key, rule in self._rules.items() if result.get(key) is None}
        keys = list(flatten(result)) if self._is_first else []
        self._is_first = False
        # One that finished without being stopped has shown whatever it reports.
        is_over = trial.status is Status.TERMINATED and not trial.reason
        is_late = is_over or trial.count >= _REPORTS
        missing = {key: rule for key, rule in self._rules.items() if is_late or closest(key, keys, _MISSPELT)}
        self._rules = {key: rule for key, rule in self._rules.items() if key not in missing}
        for rule in dict.fromkeys(missing.values()):
            names = sorted(key for key in missing if missing[key] == rule)
            (self._notice if is_over else self._warn)(
                f"trial {trial.id} made {trial.count} report{'' if trial.count == 1 else 's'} without "
                f"{', '.join(map(repr, names))}, {rule}. {nearest(names[0], list(flatten(result)))}"
            )

    def _look_for_score(self, trial: Trial, result: TrialResult) -> None:
        if trial.checkpoint is None:
            return
        score, self._score = self._score, ""
        if score and result.get(score) is None:
            self._notice(
                f"trial {trial.id} has a checkpoint and reported no {score!r}, which checkpoint_score_attribute names; "
                f"checkpoints without it are the first to be deleted. {nearest(score, list(flatten(result)))}"
            )

    def _look_for_metric(self, trial: Trial, result: TrialResult) -> None:
        metric, self._metric = self._metric, ""
        if not metric or metric in result:
            return
        close = closest(metric, flatten(own_metrics(result)), _MISSPELT)
        if close:
            self._notice(
                f"trial {trial.id} reported {close!r} and no {metric!r}, which is the metric. If that is a slip, end "
                f"the sweep with Ctrl-C and start it again with the metric {close!r}"
            )


def _origin(ended: Exit | None) -> tuple[str, str, str]:
    """Return an exception's class, and file and line of the user's code that it came from; "" if there was none."""
    frames: list[tuple[str, str]] = _FRAME.findall(ended.traceback if ended else "")
    own = [frame for frame in frames if not _LIBRARIES.search(frame[0])] or frames or [("", "")]
    return (ended.class_name if ended else "", *own[-1])
