"""Draw the live block of a sweep as lines of styled text that fit a given width and height."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sweep.core.ranking import shown_objectives
from sweep.core.resources import format_bytes
from sweep.core.results import flatten
from sweep.core.trial import Status, Trial
from sweep.display.ending import Ending, waited_for
from sweep.display.formats import (
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
)
from sweep.display.state import Live, ViewState, varying_pairs

__all__ = ["About", "Line", "draw_block", "draw_end", "status_line", "stopping_lines"]

Line = list[tuple[str, str]]  # (text, style); styles: "", dim, bold, good, bad

_WORDS = {Status.STARTING: "START", Status.RUNNING: "RUN", Status.STOPPING: "STOP"}


@dataclass(frozen=True)
class About:
    """What is known of a sweep before it begins; any text may be empty."""

    name: str = ""
    directory: str = ""
    searcher: str = ""
    scheduler: str = ""
    seed: Any = None
    resume_command: str = ""


def draw_block(
    view: ViewState,
    about: About,
    *,
    width: int,
    height: int,
    now: float,
    idle_s: float,
    own_table: Sequence[str] | None = None,
    ending: Ending | None = None,
) -> list[Line]:
    """Return the block as it is while the sweep runs.

    Args:
        width, height: of the terminal; no line is wider, and there are at most `height` lines.
        now: seconds of driving. idle_s: seconds since the last fact, added to clocks that go on meanwhile.
        own_table: lines in place of the usual table.
        ending: what a person wished meanwhile.
    """
    stopping = [] if ending is None else stopping_lines(view, ending)
    top = [
        _header(view, about, width, now + idle_s, "stopping" if stopping else "running"),
        *([(line, "bold")] for line in stopping),
        _bar(view, width, now + idle_s),
        _counts(view),
        _usage(view, now, idle_s),
        *_best(view, about, is_last=False),
    ]
    bottom = _failures(view, about) + ([] if stopping else _keys())
    room = max(0, height - len(top) - len(bottom) - 1)
    if own_table is not None:
        table: list[Line] = [[(line, "")] for line in own_table[:room]]
    else:
        table = _table(view, width, max(0, room - 1), now + idle_s)
    lines = [line for line in [*top, [], *table, *bottom] if line or table]
    return [_cut(line, width) for line in lines[: max(1, height)]]


def draw_end(
    view: ViewState, about: About, *, width: int, now: float, unfinished: int, ending: Ending | None = None
) -> list[Line]:
    """Return the last frame, which stays on the screen: the counts, the best config as YAML to copy, the failures by
    message, and how to go on.

    Args:
        unfinished: trials that had not ended when the sweep did.
        ending: how it came to its end; None: a person wished it if anything is unfinished.
    """
    word = ending.word if ending is not None else "interrupted after" if unfinished else "ended after"
    is_open = bool(unfinished) or (
        ending is not None and ending.word != "ended after" and view.num_ended != view.num_trials
    )
    lines = [
        _header(view, about, min(width, 110), now, word),
        _counts(view, is_last=True),
        *_best(view, about, is_last=True),
    ]
    best = view.best
    if best is not None:
        lines.append([("best config:", "bold")])
        lines += [[(f"  {line}", "")] for line in to_yaml(best.trial.config).splitlines()]
    for message, group in sorted(view.failures.items(), key=lambda item: -item[1].count)[:10]:
        which = " ".join(f"{number:05d}" for number in group.numbers) + (" ..." if group.count > 5 else "")
        which = f"{group.failure} · trials {which}" if group.failure else f"trials {which}"
        lines.append([(f"failed {group.count} x ", "bad"), (f"{message}   ", ""), (which, "dim")])
    if len(view.failures) > 10:
        lines.append([(f"failed with {len(view.failures) - 10} other messages", "bad")])
    if view.silent:
        which = " ".join(f"{number:05d}" for number in sorted(view.silent)[:5]) + (" ..." * (len(view.silent) > 5))
        what = f"{len(view.silent)} x never reported the metric {clean(view.plan.metric)!r}"
        lines.append([(what, "bad"), (f"   trials {which}", "dim")])
    first = next((group.numbers[0] for group in view.failures.values() if group.numbers), None)
    if first is not None:
        lines.append([("what they printed: ", "dim"), (f"sweep logs {about.name or 'NAME'} {first:05d}", "")])
    if unfinished:
        lines.append([(f"{unfinished} trials had not ended", "")])
    if about.resume_command and is_open and (ending is None or ending.can_resume):
        lines.append([("resume: ", "dim"), (clean(about.resume_command), "")])
    # The YAML and the commands are there to be copied: a terminal may wrap them, but they are never cut.
    return [_cut(lines[0], width), *lines[1:]]


def stopping_lines(view: ViewState, ending: Ending) -> list[str]:
    """Return how long a sweep that is being stopped may still take, and for whom it waits; nothing if it is not."""
    until = ending.until()
    if not until:
        return []
    running = [live.trial for live in view.live.values()]
    return [until, waited_for(running, can_save_on_demand=view.plan.can_save_on_demand)]


def status_line(view: ViewState, now: float) -> str:
    """Return the sweep on one line: `12:41 63/100 best=0.0412@00037 run=4 stop=17 fail=1 rate=12/min eta=7m`."""
    total = "?" if view.num_trials is None else str(view.num_trials)
    parts = [duration(now), f"{view.num_ended}/{total}"]
    best = view.best
    if best is not None:
        parts.append(f"best={number(best.value)}@{best.trial.number:05d}")
    front = view.front
    if front:
        parts.append(f"pareto={len(front)}")
    parts.append(f"run={view.counts['running']}")
    parts += [f"{short}={view.counts[kind]}" for kind, short in _SHORT.items() if view.counts[kind]]
    rate = view.rate(now)
    if rate is not None:
        parts.append("rate={}/{}".format(*_per(rate)))
    eta = view.eta(now)
    if eta is not None:
        parts.append(f"eta={rough_duration(eta.seconds)}")
    oldest = next(iter(view.waiting.values()), None)
    if not view.live and oldest is not None and oldest.reason:
        parts.append(f"waiting: {clean(oldest.reason)}")
    return " ".join(parts)


_SHORT = {"stopped": "stop", "failed": "fail", "paused": "pause", "starting": "start"}


def _header(view: ViewState, about: About, width: int, now: float, word: str) -> Line:
    parts = [("sweep", about.name), (word, duration(now)), ("searcher", about.searcher), ("scheduler", about.scheduler)]
    if about.seed is not None:
        parts.append(("seed", str(about.seed)))
    line: Line = []
    for label, value in parts:
        if value:
            line += [
                ("   " if line else "", ""),
                (f"{label} ", "dim"),
                (clean(value), "bold" if label == "sweep" else ""),
            ]
    used = sum(width_of(part) for part, _ in line)
    directory = clean(about.directory)
    if directory and used + 3 + width_of(directory) <= width:
        line.append((" " * (width - used - width_of(directory)), ""))
        line.append((directory, "dim"))
    return line


def _bar(view: ViewState, width: int, now: float) -> Line:
    ended, total = view.num_ended, view.num_trials
    line: Line = []
    if total:
        length = max(0, min(38, width - 50))
        full = min(length, length * ended // total)
        line += [("█" * full, "good"), ("░" * (length - full), "dim"), ("  " if length else "", "")]
    line.append((f"{ended}/{'?' if total is None else total} trials", "bold"))
    eta = view.eta(now)
    if total is None:
        line.append(("   ETA unbounded", ""))
    elif eta is not None:
        spread = f" (±{rough_duration(eta.spread_s)})" if eta.spread_s >= 1 else ""
        line.append((f"   ETA ~{rough_duration(eta.seconds)}{spread}", ""))
    rate = view.rate(now)
    if rate is not None:
        value, unit = _per(rate)
        line.append((f"   {value} trials/{unit}", ""))
    if view.waiting:
        line.append((f"   queue {len(view.waiting)}", ""))
    return line


def _per(rate: float) -> tuple[str, str]:
    """Return a rate per second as people say it: a number of two or three digits, and the unit of time."""
    unit, seconds = ("s", 1) if rate >= 5 else ("min", 60) if rate >= 5 / 60 else ("h", 3600)
    value = rate * seconds
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}", unit


def _counts(view: ViewState, *, is_last: bool = False) -> Line:
    counts = view.counts
    retried = f" ({view.retries} retries used)" if view.retries else ""
    waiting = f"waiting {len(view.waiting)} · " if is_last and view.waiting else ""  # before that it is the queue
    return [
        (f"{waiting}running {counts['running'] + counts['starting']} · paused {counts['paused']}", ""),
        (f" · done {counts['done']} · stopped early {counts['stopped']} · ", ""),
        (f"failed {counts['failed']}{retried}", "bad" if counts["failed"] else ""),
    ]


def _usage(view: ViewState, now: float, idle_s: float) -> Line:
    line: Line = []
    for name, (used, total) in view.used().items():
        if name == "memory":
            if used:
                line.append((f"mem {format_bytes(int(used))}/{format_bytes(int(total))}   ", ""))
            continue
        full = max(0, min(8, round(8 * used / total)))
        line.append((f"{name.upper()} {number(used)}/{number(total)} ", ""))
        line.append(("█" * full + "░" * (8 - full) + "   ", "dim"))
    if view.last_report_at is not None:
        ago = max(0.0, now - view.last_report_at) + idle_s
        line.append((f"last report {ago:.1f} s ago" if ago < 100 else f"last report {rough_duration(ago)} ago", ""))
    return line or [("no report yet", "dim")]


def _best(view: ViewState, about: About, *, is_last: bool) -> list[Line]:
    """Return who is best by the trials' last reports; at the end also what had been better at an earlier step."""
    if view.objectives:
        return _front(view, about, is_last=is_last)
    best, metric = view.best, clean(view.plan.metric)
    lines: list[Line] = []
    if best is not None:
        lines.append([
            ("best  " if is_last else "best so far  ", "dim"),
            (f"{metric} {number(best.value)}", "good"),
            (f"  trial {best.trial.number:05d}{_at(best.step)}", ""),
        ])  # fmt: skip
    if best is not None and not is_last:
        change, ended = view.improvement() or (0.0, 0)
        if change:
            lines[0].append((f"  ({change:+.1%} in the last {ended} trial{'' if ended == 1 else 's'})", "dim"))
        lines[0].append((f"   {pairs(varying_pairs(view, best.trial.config))}", ""))
    earlier = view.better_earlier if is_last else None
    if earlier is not None:
        shown = f"{metric} {number(earlier.value)}  trial {earlier.trial.number:05d}{_at(earlier.step)}"
        lines.append([("better earlier  " if best is not None else "earlier  ", "dim"), (shown, ""), *_EVER])
    return lines


_EVER: Line = [('   (scope="all", --scope all)', "dim")]  # how to get at what had been better
_SHOWN_OF_FRONT = 5


def _at(step: Any) -> str:
    return "" if step is None else f" at step {text(step)}"


def _front(view: ViewState, about: About, *, is_last: bool) -> list[Line]:
    """Return the Pareto set: one line while the sweep runs, at the end a line for each of the first few."""
    front = view.front
    if not front:
        return []
    chosen = [(clean(metric), i) for i, (metric, mode) in enumerate(view.objectives) if mode != "obs"]
    shown = [
        (f"{trial:05d}", " ".join(f"{metric} {text(values[i])}" for metric, i in chosen))
        for trial, values in front[:_SHOWN_OF_FRONT]
    ]
    count = f"{len(front)} trial{'' if len(front) == 1 else 's'}"
    if not is_last:
        several = " · ".join(" ".join(one) for one in shown)
        return [[("Pareto set so far  ", "dim"), (count, "good"), (f"   {several}", "")]]
    head: Line = [("Pareto set  ", "dim"), (count, "good"), (f"  by {clean(shown_objectives(view.objectives))}", "")]
    more: list[Line] = [[(f"  and {len(front) - len(shown)} more", "dim")]] if len(front) > len(shown) else []
    return [head, *([(f"  {trial}  {values}", "")] for trial, values in shown), *more,
            [("all of them: ", "dim"), (f"get_pareto_trials(), sweep best {about.name or 'NAME'}", "")]]  # fmt: skip


def _failures(view: ViewState, about: About) -> list[Line]:
    return [
        [
            ("failed  ", "bad"),
            (f"{trial.number:05d}  {clean(trial.reason.partition(chr(10))[0])}", ""),
            (f"   sweep logs {clean(about.name) or 'NAME'} {trial.number:05d}", "dim"),
        ]
        for trial in view.last_failures
    ]


def _keys() -> list[Line]:
    return [[("^C once: stop, to be resumed   twice: kill", "dim")]]


def _table(view: ViewState, width: int, room: int, now: float) -> list[Line]:
    """Return the heading and at most `room` rows: the trials that run, oldest first, then what waits and why."""
    rows = [_row(view, live, now) for live in islice(view.live.values(), room)]
    spare = room - len(rows)
    rows += [_waiting_row(trial) for trial in islice(view.waiting.values(), min(3, spare))]
    if not rows:
        return []
    metric = clean(view.plan.metric)
    names = ["trial", "state", "step", *([metric] if metric else []), "trend"]
    parameters = [name for name in view.varying if any(name in row for row in rows)]
    tail = ["time", "where"]
    while True:
        columns = [name for name in [*names, *parameters, *tail] if any(_cell(row, name) for row in rows)]
        widths = {name: max(width_of(clean(name)), *(width_of(_cell(row, name)) for row in rows)) for name in columns}
        if "where" in widths:
            widths["where"] = min(widths["where"], 24)
        if sum(widths.values()) + 2 * len(columns) <= width or not (parameters or len(names) > 3 or tail):
            break
        for some in (parameters, tail, names):  # the last parameter goes first; trial, state and step always stay
            if some:
                some.pop()
                break
    lines: list[Line] = [[("  ".join(_aligned(clean(name), name, widths[name]) for name in columns), "dim")]]
    for row in rows:
        waits = row.get("state") == "WAIT"
        cells = [_aligned(_cell(row, name), name, widths[name]) for name in columns if not (waits and name == "where")]
        line = "  ".join(cells)
        if waits and row.get("where"):
            line = f"{line.rstrip()}  {row['where']}"
        lines.append([(line, "dim" if waits else "")])
    return lines


def _cell(row: Mapping[str, str], name: str) -> str:
    if name == "where" and row.get("state") == "WAIT":
        return ""
    return fit(row.get(name, ""), 24)


_LEFT = frozenset({"trial", "state", "trend", "where"})


def _aligned(shown: str, name: str, width: int) -> str:
    shown = fit(shown, width)
    pad = " " * (width - width_of(shown))
    return shown + pad if name in _LEFT else pad + shown


def _row(view: ViewState, live: Live, now: float) -> dict[str, str]:
    trial, last = live.trial, live.last
    ranks = len(trial.resources.bundles)
    step = "-" if last is None else text(last.get("training_iteration"))
    limit = view.plan.stop.get("training_iteration")
    flat = flatten(trial.config)
    row = {name: text(flat[name]) for name in view.varying if name in flat}
    metric = view.plan.metric
    row |= {
        "trial": f"{trial.number:05d}",
        "state": _WORDS.get(trial.status, trial.status.value) + (f" x{ranks}" if ranks > 1 else ""),
        "step": f"{step}/{number(limit)}" if limit is not None and last is not None else step,
        "trend": sparkline(live.trend),
        "time": duration(now - live.since),
        "where": _where(trial),
    }
    if metric:
        row[clean(metric)] = "-" if last is None else text(last.get(metric))
    return row


def _waiting_row(trial: Trial) -> dict[str, str]:
    return {"trial": f"{trial.number:05d}", "state": "WAIT", "where": clean(trial.reason)}


def _where(trial: Trial) -> str:
    if trial.status in (Status.STARTING, Status.RUNNING) and trial.reason:
        return clean(trial.reason)
    if trial.placement is None:
        return ""
    devices = trial.placement.device_names
    if devices:
        return ",".join(clean(device) for device in devices)
    nodes = dict.fromkeys(bundle.node for bundle in trial.placement.bundles)
    return "" if set(nodes) == {"local"} else ",".join(clean(node) for node in nodes)


def _cut(line: Sequence[tuple[str, str]], width: int) -> Line:
    """Return the line cut to `width` columns."""
    kept: Line = []
    left = width
    for part, style in line:
        shown = fit(part, left)
        if shown:
            kept.append((shown, style))
        left -= width_of(shown)
        if shown != part or left <= 0:
            break
    return kept
