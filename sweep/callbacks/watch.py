"""Small observers that every sweep has: notices for the user."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from searchers.errors import closest, nearest
from sweep.callbacks.base import Callback, FilesCallback
from sweep.core.failures import without_numbers
from sweep.core.resources import LOCAL
from sweep.core.results import TrialResult, flatten
from sweep.core.trial import Cause, Status, Trial

_REPORTS = 10  # of one trial, after which a key that a rule goes by is missed
_MISSPELT = 0.8  # likeness of two names, of which one is the other with a slip: `val_loss` is none of `loss`
_COUNTS = (2, 5)  # failures alike at which it is said: early, and once more when it is sure
_AGAIN = "starts again after: "
_SAY_S = 60.0  # between two notices of a full disk


class FailureNotices(FilesCallback):
    """Say early when all trials fail alike before their first report: it is the code, not the configs. And say when a
    trial continues from another checkpoint than its last, because that proved damaged."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._seen: set[str] = set()
        self._first: str | None = None  # what the first failed with
        self._is_over = False

    def on_trial_recover(self, trial: Trial) -> None:
        if trial.cause is Cause.DAMAGED:  # which is no fault of its own
            self._notice(f"trial {trial.number:05d} {trial.reason}")
        elif trial.failure:  # and not because the driver was restarted
            self.on_trial_error(trial)

    def on_trial_error(self, trial: Trial) -> None:
        if self._is_over or trial.id in self._seen:
            return
        error = trial.reason.partition("\n")[0].rpartition(_AGAIN)[2]
        self._first = self._first or without_numbers(error)
        self._seen.add(trial.id)
        count = len(self._seen)
        is_its_own = trial.failure in ("user", "start") and not trial.last_result
        is_alike = is_its_own and without_numbers(error) == self._first
        self._is_over = not is_alike or count >= _COUNTS[-1]
        if is_alike and count in _COUNTS:
            more = f"sweep logs {shlex.quote(self.layout.root.name)} {trial.number:05d}"
            self._notice(
                f"the first {count} trials that failed did so alike, before their first report: {error.rstrip('.')}. "
                f"`{more}` shows more; Ctrl-C ends the sweep"
            )


class SchedulerNotices(Callback):
    """Say what a scheduler notes; and at the first trial that ends without a checkpoint, that it needs them."""

    def __init__(self, scheduler: Any, is_copying: bool, notice: Callable[[str], None]) -> None:
        self._scheduler, self._notice = scheduler, notice
        self._is_copying = is_copying  # trials continue from checkpoints of others, which they have to report
        self._num_said = 0

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
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

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._not_before = float("-inf")

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        short = [trial for name in changed if (trial := trials[name]).reason and trial.waits_for_space]
        if short and now >= self._not_before:
            self._not_before = now + _SAY_S
            trial = short[0]
            nodes = {bundle.node for bundle in trial.placement.bundles} if trial.placement else {LOCAL}
            where = f" on {nodes.pop()}" if len(nodes) == 1 and LOCAL not in nodes else ""
            self._warn(
                f"trial {trial.number:05d}{where} {trial.reason}. Free some space and it goes on; Ctrl-C ends it"
            )


class MissingKeys(Callback):
    """Say once that a key of a rule is not reported: after ten reports of a trial, or at the end of one that finished;
    and at the first report of a key that looks like a slip.

    `rules` say of a key what names it and what follows. `warn` is told where trials go on that a rule may end."""

    def __init__(self, rules: Mapping[str, str], notice: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._rules = dict(rules)  # of those neither seen nor missed so far
        self._notice, self._warn = notice, warn
        self._is_first = True

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        for trial in (trials[name] for name in changed if self._rules):
            if trial.last_result is not None:
                self._look(trial, trial.last_result)

    def _look(self, trial: Trial, result: TrialResult) -> None:
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
