"""Draw the live block of a sweep as lines of styled text that fit a given width and height."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sweep.core.ranking import shown_objectives
from sweep.core.reports import is_silent
from sweep.core.resources import format_bytes
from sweep.core.results import flatten, without_index
from sweep.core.trial import Status, Trial, shown_state
from sweep.display.ending import Ending, waited_for
from sweep.display.formats import (
    aligned,
    at_step,
    clean,
    duration,
    fit,
    number,
    pairs,
    rough_duration,
    sparkline,
    text,
    to_yaml,
    width_of,
    wrapped,
)
from sweep.display.state import Change, ViewState, failure_of, varying_pairs

Line = list[tuple[str, str]]  # (text, style); styles: "", dim, bold, good, bad

STOP_HINT = "^C once: stop, to be resumed   twice: kill"

_SHORT = {"stopped early": "stop", "failed": "fail", "paused": "pause"}
_FLUSH_LEFT = frozenset({"trial", "state", "trend", "where"})
_MAX_CELL = 24
_MAX_WAITING = 3
_MAX_LIVE = 12  # where trials that have ended are shown as well
_MAX_FRONT, _MAX_FRONT_RUNNING = 12, 4
_MAX_PAIR_ROWS = 3
_MAX_NUMBERS = 5
_MAX_MESSAGES = 10


@dataclass(frozen=True)
class About:
    """What is known of a sweep before it begins; any text may be empty."""

    name: str = ""
    directory: str = ""
    searcher: str = ""
    scheduler: str = ""
    seed: Any = None
    resume_command: str = ""


def opening_line(view: ViewState, about: About) -> str:
    """Return what is about to run, for a log."""
    parts = ["trials without limit" if view.num_trials is None else f"{view.num_trials} trials"]
    parts += [f"{label} {value}" for label, value in _origins(about)]
    return f"sweep {about.name}: {', '.join(parts)} -> {about.directory}"


def draw_block(
    view: ViewState,
    about: About,
    width: int,
    height: int,
    *,
    now: float,
    idle_s: float,
    own_table: Sequence[str] | None = None,
    ending: Ending | None = None,
    stop_hint: str = STOP_HINT,
    num_ended: int = 0,
) -> list[Line]:
    """Return the block as it is while the sweep runs.

    Args:
        width, height: of the terminal; no line is wider, and there are at most `height` lines.
        now: seconds of driving. idle_s: seconds since the last fact, added to clocks that go on meanwhile.
        own_table: lines in place of the usual table.
        ending: what the user requested meanwhile.
        stop_hint: how to stop the sweep.
        num_ended: how many of the trials that have ended are in the table, the best ones.
    """
    clock = now + idle_s
    stopping = stopping_lines(view, ending)
    header, *below = _header(view, about, width, clock, "stopping" if stopping else "running")
    top = [
        header,
        *([(line, "bold")] for line in stopping),
        *below,
        _bar(view, width, clock),
        _counts(view),
        _usage(view, clock),
        *_best(view, about, width=width, is_last=False),
    ]
    bottom = [line for trial in view.last_failures for line in _failure(about, trial, width)]
    if not stopping:
        bottom.append([(stop_hint, "dim")])
    room = max(0, height - len(top) - len(bottom) - 1)
    if own_table is not None:
        table: list[Line] = [[(line, "")] for line in own_table[:room]]
    else:
        table = draw_trials(view, width, max(0, room - 1), clock, num_ended=num_ended)
    lines = [*top, *([[], *table] if table else []), *bottom]
    return [_cut(line, width) for line in lines[: max(1, height)]]


def draw_end(
    view: ViewState, about: About, *, width: int, now: float, unfinished: int, ending: Ending | None = None
) -> list[Line]:
    """Return the last frame, which stays on the screen: the counts, the best config as YAML to copy, the failures by
    message, and how to go on.

    Args:
        unfinished: trials that had not ended when the sweep did.
        ending: how it came to its end; None: the user requested it if anything is unfinished.
    """
    word = ending.word if ending is not None else "interrupted after" if unfinished else "ended after"
    lines = [_counts(view, is_last=True), *_best(view, about, width=width, is_last=True)]
    best = view.best
    if best is not None:
        lines.append([("best config:", "bold")])
        lines += [[(f"  {line}", "")] for line in to_yaml(without_index(best.trial.config)).splitlines()]
    failures = view.failures
    for message, some in [*failures.items()][:_MAX_MESSAGES]:
        which = f"{some[0].failure} · " * bool(some[0].failure) + _which([trial.number for trial in some])
        lines.append([(f"failed {len(some)} x ", "bad"), (f"{message}   ", ""), (which, "dim")])
    if len(failures) > _MAX_MESSAGES:
        lines.append([(f"failed with {len(failures) - _MAX_MESSAGES} other messages", "bad")])
    silent = sorted(trial.number for trial in view.trials.values() if is_silent(trial, view.plan))
    if silent:
        what = f"{len(silent)} x never reported the metric {clean(view.plan.metric)!r}"
        lines.append([(what, "bad"), (f"   {_which(silent)}", "dim")])
    if failures:
        first = next(iter(view.by_state["failed"].values()))
        lines.append([("what they printed: ", "dim"), (_logs(about, first.number), "")])
    if unfinished:
        lines.append([(f"{unfinished} trials had not ended", "")])
    is_open = unfinished or (word != "ended after" and view.num_ended != view.num_trials)
    if about.resume_command and is_open and (ending is None or ending.can_resume):
        lines.append([("resume: ", "dim"), (about.resume_command, "")])
    # The YAML, the commands and paths are there to be copied: a terminal may wrap them, but they are never cut.
    header, *below = _header(view, about, min(width, 110), now, word)
    return [_cut(header, width), *([[(about.directory, "dim")]] if below else []), *lines]


def _failure(about: About, trial: Trial, width: int) -> list[Line]:
    """Return which trial failed and why, and the command that shows what it printed: that is not cut."""
    why = f"{trial.number:05d}  {failure_of(trial)}"
    command = _logs(about, trial.number)
    if width_of(why) + width_of(command) + 11 <= width:
        return [[("failed  ", "bad"), (why, ""), (f"   {command}", "dim")]]
    return [[("failed  ", "bad"), (why, "")], *([(row, "dim")] for row in wrapped(command, width))]


def stopping_lines(view: ViewState, ending: Ending | None) -> list[str]:
    """Return how long a sweep that is being stopped may still take, and for what it waits; nothing if it is not."""
    until = "" if ending is None else ending.until()
    if not until:
        return []
    running = list(view.by_state["running"].values())
    return [until, waited_for(running, can_save_on_demand=view.plan.can_save_on_demand)]


def status_line(view: ViewState, now: float) -> str:
    """Return the sweep on one line: `12:41 63/100 best=0.0412@00037 run=4 stop=17 fail=1 rate=12/min eta=7m`."""
    parts = [duration(now), _progress(view)]
    best, front, rate, eta = view.best, view.front, view.rate(now), view.eta(now)
    if best is not None:
        parts.append(f"best={number(best.value)}@{best.trial.number:05d}")
    if front:
        parts.append(f"pareto={len(front)}")
    parts.append(f"run={len(view.by_state['running'])}")
    parts += [f"{short}={len(some)}" for state, short in _SHORT.items() if (some := view.by_state[state])]
    if rate is not None:
        parts.append("rate={}/{}".format(*_per(rate)))
    if eta is not None:
        parts.append(f"eta={rough_duration(eta)}")
    oldest = next(iter(view.by_state["waiting"].values()), None)
    if not view.by_state["running"] and oldest is not None and oldest.reason:
        parts.append(f"waiting: {clean(oldest.reason)}")
    return " ".join(parts)


def change_line(view: ViewState, about: About, change: Change) -> str:
    """Return what became of a trial, for a log."""
    trial, last, metric = change.trial, change.trial.last_result, view.plan.metric
    line = f"{duration(change.at)} {trial.number:05d} {change.state}"
    match change.state:
        case "running":
            line += f" {pairs(varying_pairs(view, trial.config))}"
        case "failed":
            line += f" {clean(trial.reason)}   {_logs(about, trial.number)}"
        case "waiting" | "paused":
            line += f" {clean(trial.reason)}"
        case _:
            if last is not None:
                line += f" {clean(metric)}={text(last.get(metric))}" if metric else ""
                line += at_step(last.get("training_iteration"))
            line += f" in {duration(trial.ran_s)}" if trial.ran_s else ""
            line += f"   {clean(trial.reason)}" if trial.reason else ""
    return line.rstrip()


def _origins(about: About) -> list[tuple[str, str]]:
    seed = "" if about.seed is None else clean(about.seed)
    found = [("searcher", about.searcher), ("scheduler", about.scheduler), ("seed", seed)]
    return [(label, value) for label, value in found if value]


def _progress(view: ViewState) -> str:
    return f"{view.num_ended}/{'?' if view.num_trials is None else view.num_trials}"


def _logs(about: About, trial: int) -> str:
    return f"sweep logs {shlex.quote(about.name or 'NAME')} {trial:05d}"


def _which(trials: Sequence[int]) -> str:
    shown = " ".join(f"{trial:05d}" for trial in trials[:_MAX_NUMBERS])
    return f"trials {shown}{' ...' if len(trials) > _MAX_NUMBERS else ''}"


def _header(view: ViewState, about: About, width: int, now: float, word: str) -> list[Line]:
    """Return what runs, and where its results lie: on the same line, or below where that is too narrow."""
    clock: Line = [(f"{word} ", "dim"), (duration(now), "")]
    room = width - sum(width_of(part) for part, _ in clock) - 9  # the directory ends with the name
    line: Line = [("sweep ", "dim"), (fit(about.name, max(8, room)), "bold"), ("   ", "")] if about.name else []
    line += clock
    for label, value in _origins(about):
        line += [("   ", ""), (f"{label} ", "dim"), (value, "")]
    left = width - sum(width_of(part) for part, _ in line) - width_of(about.directory)
    if about.directory and left >= 3:
        return [[*line, (" " * left, ""), (about.directory, "dim")]]
    return [line, *([(row, "dim")] for row in wrapped(about.directory, width) if row)]


def _bar(view: ViewState, width: int, now: float) -> Line:
    total, eta, rate = view.num_trials, view.eta(now), view.rate(now)
    length = max(0, min(38, width - 50)) if total else 0
    line: Line = []
    if total and length:
        ended, part = length * view.num_ended // total, int(length * (view.part_done() or 0.0))
        begun = max(0, part - ended)  # what trials that run have done
        line += [("█" * ended, "good"), ("▓" * begun, "good"), ("░" * (length - ended - begun), "dim"), ("  ", "")]
    line.append((f"{_progress(view)} trials", "bold"))
    if total is None:
        line.append(("   ETA unbounded", ""))
    elif eta is not None:
        line.append((f"   ETA ~{rough_duration(eta)}", ""))
    if rate is not None:
        line.append(("   {} trials/{}".format(*_per(rate)), ""))
    if view.by_state["waiting"]:
        line.append((f"   queue {len(view.by_state['waiting'])}", ""))
    return line


def _gauge(full: int, length: int, style: str) -> Line:
    full = max(0, min(length, full))
    return [("█" * full, style), ("░" * (length - full), "dim")]


def _per(rate: float) -> tuple[str, str]:
    """Return a rate per second as people say it: a number of two or three digits, and the unit of time."""
    unit, seconds = ("s", 1) if rate >= 5 else ("min", 60) if rate >= 5 / 60 else ("h", 3600)
    value = rate * seconds
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}", unit


def _counts(view: ViewState, *, is_last: bool = False) -> Line:
    counts = {state: len(some) for state, some in view.by_state.items()}
    retried = f" ({view.retries} retries used)" if view.retries else ""
    waiting = f"waiting {counts['waiting']} · " if is_last and counts["waiting"] else ""  # before that it is the queue
    return [
        (f"{waiting}running {counts['running']} · paused {counts['paused']}", ""),
        (f" · finished {counts['finished']} · stopped early {counts['stopped early']} · ", ""),
        (f"failed {counts['failed']}{retried}", "bad" if counts["failed"] else ""),
    ]


def _usage(view: ViewState, clock: float) -> Line:
    line: Line = []
    for name, (used, total) in view.used().items():
        if name != "memory":
            line += [(f"{name.upper()} {number(used)}/{number(total)} ", "")]
            line += [*_gauge(round(8 * used / total), 8, "dim"), ("   ", "")]
        elif used:
            line.append((f"mem {format_bytes(int(used))}/{format_bytes(int(total))}   ", ""))
    if view.last_report_at is not None:
        ago = max(0.0, clock - view.last_report_at)
        line.append((f"last report {ago:.1f} s ago" if ago < 100 else f"last report {rough_duration(ago)} ago", ""))
    return line or [("no report yet", "dim")]


def _best(view: ViewState, about: About, *, width: int, is_last: bool) -> list[Line]:
    """Return the best trial by the last reports; at the end also what had been better at an earlier step."""
    if view.objectives:
        return _front(view, about, width=width, is_last=is_last)
    best, metric = view.best, clean(view.plan.metric)
    lines: list[Line] = []
    if best is not None:
        lines.append([
            ("best  " if is_last else "best so far  ", "dim"),
            (f"{metric} {number(best.value)}", "good"),
            (f"  trial {best.trial.number:05d}{at_step(best.step)}", ""),
        ])  # fmt: skip
    if best is not None and not is_last:
        config = pairs(varying_pairs(view, best.trial.config))
        used = sum(width_of(part) for part, _ in lines[0])
        if used + 3 + width_of(config) <= width:
            lines[0].append((f"   {config}", ""))
        else:
            rows = textwrap.wrap(config, max(4, width - 2), max_lines=_MAX_PAIR_ROWS, placeholder=" …")
            lines += [[(f"  {row}", "")] for row in rows]
    earlier = view.better_earlier if is_last else None
    if earlier is not None:
        shown = f"{metric} {number(earlier.value)}  trial {earlier.trial.number:05d}{at_step(earlier.step)}"
        lines.append([
            ("better earlier  " if best is not None else "earlier  ", "dim"),
            (shown, ""),
            ('   (scope="all", --scope all)', "dim"),
        ])  # fmt: skip
    return lines


def _front(view: ViewState, about: About, *, width: int, is_last: bool) -> list[Line]:
    """Return the Pareto set: its first few trials in columns, fewer while the sweep runs, with all of their values."""
    front = view.front
    if not front:
        return []
    chosen = [(clean(metric), i) for i, (metric, mode) in enumerate(view.objectives) if mode != "obs"]
    most = _MAX_FRONT if is_last else _MAX_FRONT_RUNNING
    best = front[:most] if len(front) > most + 1 else front
    names = [fit(metric, _MAX_CELL) for metric, _ in chosen]
    cells = [
        ["  trial", *names],
        *([f"  {trial:05d}", *(text(values[i]) for _, i in chosen)] for trial, values in best),
    ]
    count = f"{len(front)} trial{'' if len(front) == 1 else 's'}"
    by = f"  by {clean(shown_objectives(view.objectives))}"
    lines: list[Line] = [[("Pareto set  " if is_last else "Pareto set so far  ", "dim"), (count, "good"), (by, "")]]
    heading, *rows = aligned(cells, range(1, len(chosen) + 1))
    lines += [[(heading, "dim")], *([(row, "")] for row in rows)]
    if len(front) > len(best):
        lines.append([(f"  and {len(front) - len(best)} more", "dim")])
    if is_last:
        lines.append(
            [("all of them: ", "dim"), (f"get_pareto_trials(), sweep best {shlex.quote(about.name or 'NAME')}", "")]
        )
    return lines


def draw_trials(view: ViewState, width: int, room: int, now: float, *, num_ended: int = 0) -> list[Line]:
    """Return the heading and at most `room` rows: the trials that run, oldest first, what waits and why, and on
    request the best of those that have ended."""
    running = islice(view.by_state["running"].values(), min(room, _MAX_LIVE) if num_ended else room)
    rows = [row_of(view, trial, now) for trial in running]
    waiting = islice(view.by_state["waiting"].values(), max(0, min(_MAX_WAITING, room - len(rows))))
    rows += [{"trial": f"{one.number:05d}", "state": "waiting", "why": clean(one.reason)} for one in waiting]
    ended = view.first_ended(max(0, min(num_ended, room - len(rows))))
    best = {number for number, _ in view.front} if view.best is None else {view.best.trial.number}
    for trial in ended:
        row = row_of(view, trial, now)
        rows.append(row | {"state": f"{row['state']}{' ★' * (trial.number in best)}"})
    if not rows:
        return []
    names = ["trial", "state", "step", *view.metrics, "trend"]
    parameters, tail = list(view.varying), ["time", "where"]
    filled = set().union(*rows)
    while True:
        columns = [name for name in [*names, *parameters, *tail] if name in filled]
        cells = [
            [row["trial"], row["state"]] if "why" in row else [fit(row.get(name, ""), _MAX_CELL) for name in columns]
            for row in rows
        ]
        right = {i for i, name in enumerate(columns) if name not in _FLUSH_LEFT}
        heading, *lines = aligned([[clean(name) for name in columns], *cells], right)
        if max(map(width_of, (heading, *lines))) <= width or not (parameters or len(names) > 3 or tail):
            break
        (parameters or tail or names).pop()  # the last parameter goes first; trial, state and step always stay
    shown: list[Line] = [[(heading, "dim")]]
    for row, line in zip(rows, lines, strict=True):
        shown.append([(f"{line.rstrip()}  {row['why']}".rstrip(), "dim")] if "why" in row else [(line, "")])
    return shown


def row_of(view: ViewState, trial: Trial, now: float) -> dict[str, str]:
    """Return the cells of a trial by column, without those that are empty."""
    last, ranks = trial.last_result, len(trial.resources.bundles)
    limit = view.plan.stop.get("training_iteration")
    flat = flatten(trial.config)
    row = {name: text(flat[name]) for name in view.varying if name in flat}
    step = "-" if last is None else text(last.get("training_iteration"))
    row |= {
        "trial": f"{trial.number:05d}",
        "state": shown_state(trial) + (f" x{ranks}" if ranks > 1 else ""),
        "step": f"{step}/{number(limit)}" if limit is not None and last is not None else step,
        "trend": sparkline(view.trends.get(trial.number, ())),
        "time": duration(trial.running_s(now)),
        "where": _where(trial),
    }
    row |= {metric: "-" if last is None else text(last.get(metric)) for metric in view.metrics}
    return {name: cell for name, cell in row.items() if cell}


def _where(trial: Trial) -> str:
    if trial.status is Status.STOPPING:
        return "stopping"
    if trial.is_ended:
        return failure_of(trial) if trial.status is Status.ERROR else ""
    if trial.reason or trial.status is Status.STARTING:
        return clean(trial.reason) or "starting"
    if trial.placement is None:
        return ""
    nodes = dict.fromkeys(bundle.node for bundle in trial.placement.bundles)
    return ",".join(map(clean, trial.placement.device_names or ([] if set(nodes) == {"local"} else nodes)))


def _cut(line: Line, width: int) -> Line:
    """Return the line cut to `width` columns."""
    kept: Line = []
    for part, style in line:
        shown = fit(part, width)
        if shown:
            kept.append((shown, style))
        width -= width_of(shown)
        if shown != part or width <= 0:
            break
    return kept
