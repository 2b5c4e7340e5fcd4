"""Reports in the light of their trial: what is filled in, whether one is the best, and what is expected of trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from searchers.errors import closest
from sweep.core.failures import without_numbers
from sweep.core.messages import Reported
from sweep.core.plan import Plan
from sweep.core.ranking import replaces
from sweep.core.results import ANONYMOUS_METRIC, TrialResult, fill, flatten, own_metrics, score
from sweep.core.trial import Cause, CheckpointRef, Status, Trial
from sweep.core.values import MOST, as_float, shown_int, summed
from sweep.errors import MetricError, TrialsFailed

_FEW_REPORTS = 10  # of one trial, after which a metric that no trial reported is taken for misspelt
_MANY_REPORTS = 100  # after which a trial that may never end lacks its stop key; some results are computed rarely
_ENOUGH_TRIALS = 3
_ROUNDS, _LEAST_FAILURES = 3, 5  # trials that all fail alike, in multiples of those that run at a time, and at least
_SHOWN_KEYS = 20
_MOST_DIGITS = 308  # of a whole number that a float holds for sure
_SHOWN_CHARS = 60
_SHOWN_TRIALS = 5
_USUAL = frozenset({float, bool, type(None)})
_TEXTS = frozenset({"hostname", "trial_id", "date", "node_ip", "experiment_tag"})  # that many results have


def fault(plan: Plan, result: TrialResult, reported: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is wrong with the first value that must be a number and is none, and the class of that failure;
    ("", "") when nothing is.

    Those are the required metrics, what scheduler and `stop=` read, and what is filled in where the trial reports it.
    NaN and infinities are numbers, unless `plan.nan` says otherwise, and so are bools, as in Tune; a whole number that
    no float holds is none. A result may lack a key, or say None: not measured this time.

    Args:
        reported: what the trial reported of the result, or all of it.
    """
    for key in plan.required:
        value = result.get(key)
        if type(value) not in _USUAL and as_float(value) is None:
            return _wrong(key, value, "metric"), "user"
    if plan.numbers:
        for key, value in reported.items():
            kind = type(value)
            if kind is float or (kind is int and -MOST <= value <= MOST) or kind in _USUAL or key in _TEXTS:
                continue
            wrong = next((key for key in plan.numbers if not _is_number(result.get(key))), None)
            if wrong is not None:
                return _wrong(wrong, result.get(wrong), "reported"), "user"
            break
    for key in plan.required if plan.nan == "error" else ():
        value = as_float(result.get(key))
        if value is not None and value != value:
            iteration = result.get("training_iteration")
            return f"the metric {key!r} is NaN at iteration {iteration}, and nan='error' is set", "nan"
    return "", ""


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float holds, or was not measured."""
    return value is None or as_float(value) is not None


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number that no float holds, as the record has it."""
    return isinstance(value, str) and len(value) > _MOST_DIGITS and value.removeprefix("-").isdigit()


def _wrong(key: str, value: Any, what: str) -> str:
    value = shown_int(value) if isinstance(value, int) else value
    shown, expected = repr(value), "a number"
    # Of what else there is a record may not know the type, and what is decided again from it is to say the same.
    kind = f", a {type(value).__name__}" if type(value).__module__ == "builtins" else ""
    if _is_whole(value):
        kind, expected = f", a whole number of {len(value.removeprefix('-')):,} digits", "a number that a float holds"
    shown = shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}..."
    text = f"the {what} {key!r} is {shown}{kind}; expected {expected}"
    if isinstance(value, Mapping) and what == "metric":
        inner = [f"{key}/{name}"[:_SHOWN_CHARS] for name in flatten(value)][:_SHOWN_KEYS]
        text += f". Name one of {', '.join(map(repr, inner))}" if inner else ""
    return text


def silence(trial: Trial, plan: Plan) -> str:
    """Return the reason with which a trial ends that went all its way without reporting the metric; "" if it did."""
    if not plan.required or _has_reported(trial, plan.required[0]):
        return ""
    if trial.last_result is None:
        return f"reported nothing; expected the metric {plan.required[0]!r}"
    return f"never reported the metric {plan.required[0]!r}"


def is_silent(trial: Trial, plan: Plan) -> bool:
    """Whether a trial went all its way without the metric of its run, and lacks that of this plan, too."""
    return trial.status is Status.TERMINATED and trial.cause is Cause.SILENT and bool(silence(trial, plan))


def silent_trials(trials: Mapping[str, Trial], plan: Plan) -> str:
    """Return how many trials never reported the metric, and which; "" when all did."""
    silent = sorted(trial.number for trial in trials.values() if is_silent(trial, plan))
    which = " ".join(f"{number:05d}" for number in silent[:_SHOWN_TRIALS]) + (
        " ..." if len(silent) > _SHOWN_TRIALS else ""
    )
    return f"{len(silent)} x never reported the metric {plan.required[0]!r}   trials {which}" if silent else ""


class Expected:
    """The keys that no trial has reported so far, and when that is the sweep's fault and no longer a trial's.

    A metric is missing when three trials went all their way without it, or one made ten reports without it. A key of
    `stop` is missing when it is the only one, and three trials went all their way, or made a hundred reports, without
    it. As soon as any trial has reported a key, it is never missing again. When all trials of a run have failed alike,
    and there were `max_identical_failures` of them before any had reported, the others would, too.
    """

    def __init__(self, plan: Plan, trials: Mapping[str, Trial]) -> None:
        is_new = all(trial.last_result is None for trial in trials.values())
        # Of a sweep that goes on, the results in between are not loaded: only the first metric is surely known.
        metrics = plan.required if is_new else plan.required[:1]
        seen = {key for key in metrics if any(_has_reported(trial, key) for trial in trials.values())}
        self._metrics = [key for key in metrics if key not in seen]
        self._stop = [key for key in plan.stop if is_new and len(plan.stop) == 1]
        self._through = {trial.id for trial in trials.values() if is_silent(trial, plan)}  # went all their way
        self._few: set[str] = set()  # made a few reports without
        self._many: set[str] = set()  # made many without
        self._limit = plan.max_identical_failures
        self._alike: list[Trial] | None = [] if is_new and self._limit != -1 else None  # None: not all, or one reported
        self._most_at_once = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a key that no trial has reported, or no trial has reported anything."""
        return bool(self._metrics or self._stop or self._alike is not None)

    def hear(self, trial: Trial, result: TrialResult) -> None:
        """Take a judged report; `trial` as it is after it."""
        self._alike = None
        self._metrics = [key for key in self._metrics if result.get(key) is None]
        self._stop = [key for key in self._stop if result.get(key) is None]
        if trial.count >= _FEW_REPORTS:
            self._few.add(trial.id)
        if trial.count >= _MANY_REPORTS:
            self._many.add(trial.id)

    def went_through(self, trial: Trial) -> None:
        """Take a trial that went all its way without being stopped."""
        if self.is_open:
            self._through.add(trial.id)

    def ended(self, trial: Trial, num_held: int) -> TrialsFailed | None:
        """Take a trial that has ended beside `num_held` others; returns what the sweep fails with, None: it goes on."""
        if self._alike is None:
            return None
        if trial.status is not Status.ERROR or not trial.attempt:
            self._alike = None
            return None
        self._alike.append(trial)
        self._most_at_once = max(self._most_at_once, num_held + 1)
        number, reason = len(self._alike), self._alike[0].reason
        if without_numbers(trial.reason) != without_numbers(reason):
            self._alike = None
        elif number >= (self._limit or max(_LEAST_FAILURES, _ROUNDS * self._most_at_once)):
            return TrialsFailed(
                f"the first {number} trials all failed alike, before any had reported: {reason}\nThe others were not "
                "started. Mend it and resume (resume='AUTO+ERRORED' also starts the failed ones again), or let more "
                "fail with max_identical_failures=; -1: all."
            )
        return None

    def error(self, trials: Mapping[str, Trial]) -> MetricError | None:
        """Return what the sweep fails with now; None while it may go on."""
        if self._metrics and self._few:
            hint = f" When it comes after more than {_FEW_REPORTS} reports, pass strict_metric=False."
            return self._missing_metric(self._few, trials, hint)
        if self._metrics and len(self._through) >= _ENOUGH_TRIALS:
            return self._missing_metric(self._through, trials)
        if self._stop and len(self._many | self._through) >= _ENOUGH_TRIALS:
            return self._missing_stop(self._many | self._through, trials)
        return None

    def error_at_end(self, trials: Mapping[str, Trial]) -> MetricError | None:
        """Return what is to be raised when the sweep is over: some trial went all its way, and none had the metric."""
        return self._missing_metric(self._through, trials) if self._metrics and self._through else None

    def _missing_metric(self, which: set[str], trials: Mapping[str, Trial], hint: str = "") -> MetricError:
        metric = self._metrics[0]
        keys, shown = _reported(trials)
        if metric in keys:
            return MetricError(f"{_count(which)} reported None under the metric {metric!r}; expected a number.")
        if keys == [ANONYMOUS_METRIC]:
            return MetricError(
                f"{_count(which)} returned or yielded a bare number, which is filed under {ANONYMOUS_METRIC!r}; "
                f"expected the metric {metric!r}. Write `return {{{metric!r}: value}}` or sweep.report({metric}=value)."
            )
        return MetricError(
            f"{_count(which)} reported {shown}; expected the metric {metric!r}. {_meant(metric, keys)}Report it, or "
            f"name one of those as metric=.{hint}"
            if keys
            else f"{_count(which)} reported nothing; expected the metric {metric!r}. Call sweep.report with it, or "
            "return a dict that has it."
        )

    def _missing_stop(self, which: set[str], trials: Mapping[str, Trial]) -> MetricError:
        key = self._stop[0]
        keys, shown = _reported(trials)
        return MetricError(
            f"stop= names {key!r} alone, and {_count(which)} never reported it, only {shown}. "
            f"{_meant(key, keys)}Correct stop=; when it comes late, name a second criterion, such as "
            "'training_iteration'."
        )


def _has_reported(trial: Trial, key: str) -> bool:
    return any(result is not None and result.get(key) is not None for result in (trial.best_result, trial.last_result))


def _reported(trials: Mapping[str, Trial]) -> tuple[list[str], str]:
    """Return the users' own keys of all last results, sorted, and the same as text."""
    found: set[str] = set()
    for trial in trials.values():
        if trial.last_result is not None:
            found.update(flatten(own_metrics(trial.last_result)))
    keys = sorted(found)
    more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return keys, (", ".join(keys[:_SHOWN_KEYS]) + more) or "nothing of its own"


def _count(trials: set[str]) -> str:
    return "a trial" if len(trials) == 1 else f"{len(trials)} trials"


def _meant(key: str, known: Iterable[str]) -> str:
    close = closest(key, known)
    return f"Did you mean {close!r}? " if close else ""


def auto_filled(trial: Trial, event: Reported) -> dict[str, Any]:
    """Return the metrics of a report with the auto-filled ones; `trial` as it was before the report."""
    restored = trial.started_from.time_total_s if trial.started_from is not None else 0.0
    last = trial.last_result
    before = None if event.seq <= 1 or last is None else as_float(last.get("time_total_s"))
    metrics = event.metrics
    if "timesteps_this_iter" in metrics or "episodes_this_iter" in metrics:
        metrics = {**metrics, **_totals(metrics, last)}
    return fill(
        metrics,
        trial_id=trial.id,
        count=trial.count + 1,
        since_restore=event.seq,
        time_before_s=restored if before is None else before,
        restored_s=restored,
    )


def _totals(metrics: Mapping[str, Any], last: TrialResult | None) -> dict[str, float]:
    """Return the sums of what reports call `timesteps_this_iter` and `episodes_this_iter`, where they do."""
    found: dict[str, float] = {}
    for one, total in (("timesteps_this_iter", "timesteps_total"), ("episodes_this_iter", "episodes_total")):
        value, before = metrics.get(one), 0 if last is None else last.get(total, 0)
        if total not in metrics and isinstance(value, (int, float)) and isinstance(before, (int, float)):
            found[total] = summed(before, value)
    return found


def reference(trial: Trial, path: str, result: TrialResult | None) -> CheckpointRef:
    """Return the reference to a checkpoint that was stored with `result`; `trial` as it is after the report."""
    values: Mapping[str, Any] = {} if result is None else result
    iteration = as_float(values.get("training_iteration"))
    is_count = iteration is not None and math.isfinite(iteration)
    return CheckpointRef(
        path,
        trial.count,
        int(values["training_iteration"]) if is_count else trial.count,
        as_float(values.get("time_total_s")) or 0.0,
    )


def worth(result: TrialResult | None, plan: Plan) -> float:
    """Return how good a checkpoint that was stored with `result` is, larger is better; 0 where they are kept by age."""
    if not plan.checkpoint_score:
        return 0.0
    return score(result.get(plan.checkpoint_score) if result is not None else None, plan.checkpoint_mode)


def improves(trial: Trial, result: TrialResult, plan: Plan) -> bool:
    """Whether a result has the metric and beats the trial's best so far; infinities do not beat a finite one."""
    value = result.get(plan.metric)
    if value is None:
        return False
    return trial.best_result is None or replaces(value, trial.best_result.get(plan.metric), plan.mode)
