"""Write what a display knows of a sweep as lines: styled ones of a block, plain ones of a log."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rich.text import Text

from sweep.core.ranking import shown_objectives
from sweep.core.reports import silent_trials
from sweep.core.resources import LANE, format_bytes
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
    text,
    to_yaml,
    width_of,
)
from sweep.display.state import BestTrial, ViewState, failure_of

STOP_HINT = "^C once: stop, to be resumed   twice: kill"

_FLUSH_LEFT = frozenset({"trial", "state", "where"})
_MAX_CELL = 24
_MAX_WAITING = 3
_MAX_FRONT = 8
_MAX_PAIR_ROWS = 3
_MAX_NUMBERS = 5
_MAX_MESSAGES, _MAX_MESSAGES_RUNNING = 10, 3
_BAR = 30


@dataclass(frozen=True)
class About:
    """What is known of a sweep before it begins; any text may be empty."""

    name: str = ""
    directory: str = ""
    searcher: str = ""
    scheduler: str = ""
    seed: str = ""
    resume_command: str = ""

    def logs(self, trial: Trial) -> str:
        """Return the command that shows what a trial printed."""
        return f"sweep logs {shlex.quote(self.name or 'NAME')} {trial.number:05d}"


# --- the block ---


def draw_block(
    view: ViewState,
    about: About,
    width: int,
    height: int,
    now: float,
    *,
    own_table: Sequence[str] | None = None,
    ending: Ending | None = None,
    stop_hint: str = STOP_HINT,
) -> list[Text]:
    """Return the block as it is while the sweep runs; lines that are not `no_wrap` may take several rows."""
    stopping = stopping_lines(view, ending)
    top = [
        _header(about, f"{'stopping' if stopping else 'running'} {duration(now)}"),
        *(_line((line, "bold")) for line in stopping),
        _bar(view, now),
        _counts(view),
        _usage(view, now),
        *_best(view, about),
    ]
    if view.best is not None:
        top[-1].append(fit(f"   {pairs(view.varying_pairs(view.best.trial))}", _MAX_PAIR_ROWS * width))
    failed = [*view.by_state["failed"].values()][-_MAX_MESSAGES_RUNNING:]
    bottom = [_line(("failed  ", "red"), f"{trial.number:05d}  {failure_of(trial)}") for trial in failed]
    bottom += [_printed(about, failed[-1])] if failed else []
    bottom += [] if stopping else [_line((stop_hint, "dim"))]
    rows = [1 if line.no_wrap else max(1, math.ceil(line.cell_len / max(1, width))) for line in (*top, *bottom)]
    room = max(0, height - sum(rows) - 1)
    if own_table is not None:
        table = [_line(line) for line in own_table[:room]]
    else:
        table = draw_trials(view, width, max(0, room - 1), now)
    return [*top, *([_line(), *table] if table else []), *bottom]


def draw_end(view: ViewState, about: About, *, now: float, unfinished: int, ending: Ending | None = None) -> list[Text]:
    """Return the last frame, which stays on the screen: the counts, the best config as YAML to copy, the failures by
    message, and how to go on. What is there to be copied is never cut."""
    word = ending.word if ending is not None else "interrupted after" if unfinished else "ended after"
    lines = [_header(about, f"{word} {duration(now)}"), _counts(view), *_best(view, about)]
    earlier = view.better_earlier
    if earlier is not None:
        label = "earlier  " if view.best is None else "better earlier  "
        lines.append(_line((label, "dim"), *_value(view, earlier), ('   (scope="all", --scope all)', "dim")))
    if view.best is not None:
        lines.append(_line(("best config:", "bold")))
        lines += [_line(f"  {line}") for line in to_yaml(without_index(view.best.trial.config)).splitlines()]
    failures = view.failures
    for message, some in [*failures.items()][:_MAX_MESSAGES]:
        kind = f"{some[0].failure} · " * bool(some[0].failure)
        which = " ".join(f"{trial.number:05d}" for trial in some[:_MAX_NUMBERS]) + " ..." * (len(some) > _MAX_NUMBERS)
        lines.append(_line((f"failed {len(some)} x ", "red"), f"{message}   ", (f"{kind}trials {which}", "dim")))
    if len(failures) > _MAX_MESSAGES:
        lines.append(_line((f"failed with {len(failures) - _MAX_MESSAGES} other messages", "red")))
    if silent := silent_trials({trial.id: trial for trial in view.trials.values()}, view.plan):
        lines.append(_line((clean(silent), "red")))
    if failures:
        lines.append(_printed(about, next(iter(view.by_state["failed"].values()))))
    if unfinished:
        lines.append(_line(f"{unfinished} trials had not ended"))
    is_open = unfinished or (word != "ended after" and view.num_ended != view.num_trials)
    if about.resume_command and is_open and (ending is None or ending.can_resume):
        lines.append(_line(("resume: ", "dim"), about.resume_command))
    for line in lines:
        line.no_wrap = line.overflow = None
    return lines


def stopping_lines(view: ViewState, ending: Ending | None) -> list[str]:
    """Return how long a sweep that is being stopped may still take, and for what it waits; nothing if it is not."""
    until = "" if ending is None else ending.until()
    if not until:
        return []
    running = list(view.by_state["running"].values())
    return [until, waited_for(running, can_save_on_demand=view.plan.can_save_on_demand)]


def _line(*parts: str | tuple[str, str]) -> Text:
    """Return a line that is cut where a terminal ends."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _header(about: About, what: str) -> Text:
    """Return what runs, from where, and where its results lie."""
    line = Text.assemble(("sweep ", "dim"), (about.name, "bold"), f"   {what}", overflow="fold")
    origins = {"searcher": about.searcher, "scheduler": about.scheduler, "seed": about.seed, "in": about.directory}
    for label, value in origins.items():
        if value:
            line.append(f"   {label} ", "dim").append(value)
    return line


def _printed(about: About, trial: Trial) -> Text:
    return Text.assemble(("what they printed: ", "dim"), about.logs(trial), overflow="fold")


def _bar(view: ViewState, now: float) -> Text:
    line = _line()
    if view.num_trials:
        ended = _BAR * view.num_ended // view.num_trials
        begun = max(0, int(_BAR * view.part_done()) - ended)  # what trials that run have done
        line.append("█" * ended + "▓" * begun, "green").append("░" * (_BAR - ended - begun), "dim").append("  ")
    progress, *others = _progress(view, now)
    return line.append(progress, "bold").append("".join(f"   {one}" for one in others))


def _progress(view: ViewState, now: float) -> list[str]:
    """Return how far it is, and when it will end."""
    total, eta = view.num_trials, view.eta(now)
    found = [f"{view.num_ended}/{'?' if total is None else total} trials"]
    return found if eta is None else [*found, f"ETA ~{rough_duration(eta)}"]


def _counts(view: ViewState) -> Text:
    *others, failed = [f"{state} {len(some)}" for state, some in view.by_state.items()]
    retried = f" ({view.retries} retries used)" if view.retries else ""
    return _line(" · ".join([*others, ""]), (f"{failed}{retried}", "red" if view.by_state["failed"] else ""))


def _usage(view: ViewState, now: float) -> Text:
    """Return what is held of the inventory, and when a trial reported last."""
    kinds = Counter(device.kind for node in view.nodes for device in node.devices)
    totals = {"CPU": sum(node.cpus for node in view.nodes), "GPU": kinds["gpu"], "TPU": kinds["tpu"]}
    if lanes := sum(node.amount(LANE) for node in view.nodes):  # all else is held by their processes
        totals = {"lane": lanes}
    held = [one.resources.total for one in view.by_state["running"].values() if one.placement is not None]
    used = {name: sum(one.amount(name.lower()) for one in held) for name in totals}
    parts = [f"{name} {number(used[name])}/{number(total)}" for name, total in totals.items() if total]
    if memory := sum(one.memory for one in held):
        parts.append(f"mem {format_bytes(int(memory))}/{format_bytes(sum(node.memory for node in view.nodes))}")
    ago = None if view.last_report_at is None else rough_duration(max(0.0, now - view.last_report_at))
    return _line("   ".join([*parts, "no report yet" if ago is None else f"last report {ago} ago"]))


def _best(view: ViewState, about: About) -> list[Text]:
    """Return the best trial by the last reports; of several objectives the first few of the Pareto set."""
    if view.best is not None:
        return [Text.assemble(("best  ", "dim"), *_value(view, view.best, "green"), overflow="fold")]
    front = view.front
    if not front:
        return []
    count, by = f"{len(front)} trial{'s' * (len(front) > 1)}", f"  by {clean(shown_objectives(view.objectives))}"
    lines = [_line(("Pareto set  ", "dim"), (count, "green"), by)]
    for trial, values in front[:_MAX_FRONT]:
        named = {name: value for (name, mode), value in zip(view.objectives, values, strict=True) if mode != "obs"}
        lines.append(_line(f"  {trial:05d}  {pairs(named)}"))
    if len(front) > _MAX_FRONT:
        lines.append(_line(("  all of them: ", "dim"), f"sweep best {shlex.quote(about.name or 'NAME')}"))
    return lines


def _value(view: ViewState, best: BestTrial, style: str = "") -> list[tuple[str, str]]:
    value = f"{clean(view.plan.metric)} {number(best.value)}"
    return [(value, style), (f"  trial {best.trial.number:05d}{at_step(best.step)}", "")]


# --- the table ---


def draw_trials(view: ViewState, width: int, room: int, now: float) -> list[Text]:
    """Return the heading and at most `room` rows: the trials that run, oldest first, what waits and why, and the best
    of those that have ended."""
    rows = [_row_of(view, trial, now) for trial in islice(view.by_state["running"].values(), room)]
    waiting = islice(view.by_state["waiting"].values(), max(0, min(_MAX_WAITING, room - len(rows))))
    rows += [{"trial": f"{one.number:05d}", "state": "waiting", "why": clean(one.reason)} for one in waiting]
    best = {number for number, _ in view.front} if view.best is None else {view.best.trial.number}
    for trial in view.first_ended(max(0, room - len(rows))):
        row = _row_of(view, trial, now)
        rows.append(row | {"state": f"{row['state']}{' ★' * (trial.number in best)}"})
    if not rows:
        return []
    names, parameters, tail = ["trial", "state", "step", *view.metrics], list(view.varying), ["time", "where"]
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
    shown = [_line((heading, "dim"))]
    for row, line in zip(rows, lines, strict=True):
        shown.append(_line((f"{line}  {row['why']}", "dim")) if "why" in row else _line(line))
    return shown


def _row_of(view: ViewState, trial: Trial, now: float) -> dict[str, str]:
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
        "time": duration(trial.running_s(now)),
        "where": _where(trial),
    }
    row |= {metric: "-" if last is None else text(last.get(metric)) for metric in view.metrics}
    return {name: cell for name, cell in row.items() if cell}


def _where(trial: Trial) -> str:
    """Return what it holds, or why it holds nothing."""
    if trial.is_ended:
        return failure_of(trial) if trial.status is Status.ERROR else ""
    if trial.status is Status.STOPPING or trial.placement is None:
        return trial.status.lower()
    if trial.reason or trial.status is Status.STARTING:
        return clean(trial.reason) or "starting"
    nodes = dict.fromkeys(bundle.node for bundle in trial.placement.bundles)
    return ",".join(map(clean, trial.placement.device_names or ([] if set(nodes) == {"local"} else nodes)))


# --- lines of a log ---


def opening_line(view: ViewState, about: About) -> str:
    """Return what is about to run."""
    return _header(about, "trials without limit" if view.num_trials is None else f"{view.num_trials} trials").plain


def status_line(view: ViewState, now: float) -> str:
    """Return the sweep on one line."""
    parts = [*_progress(view, now), _counts(view).plain, *(line.plain for line in _best(view, About())[:1])]
    oldest = next(iter(view.by_state["waiting"].values()), None)
    if oldest is not None and oldest.reason and not view.by_state["running"]:
        parts.append(f"waiting: {clean(oldest.reason)}")
    return f"{duration(now)} {'   '.join(parts)}"


def change_line(view: ViewState, about: About, trial: Trial, now: float) -> str:
    """Return what became of a trial."""
    last, metric, state = trial.last_result, view.plan.metric, shown_state(trial)
    parts = [f"{duration(now)} {trial.number:05d} {state}"]
    if state == "running":
        parts.append(pairs(view.varying_pairs(trial)))
    elif trial.is_ended and state != "failed":
        value = "" if last is None or not metric else f"{clean(metric)}={text(last.get(metric))} "
        step = "" if last is None else at_step(last.get("training_iteration")).lstrip()
        parts += [f"{value}{step}", f"in {duration(trial.ran_s)}" if trial.ran_s else ""]
    parts += [clean(trial.reason), about.logs(trial) if state == "failed" else ""]
    return "   ".join(filter(None, parts))
