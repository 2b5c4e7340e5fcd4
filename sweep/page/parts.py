"""The written parts of an experiment's page, as HTML: how it stands, what won, what failed, what waited, its cost."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from searchers.space import Beta, Categorical, Float, Integer, LogNormal, LogUniform, Normal
from sweep.confirmation.outcome import confirmation_of
from sweep.core.failures import without_numbers
from sweep.core.literals import as_arguments, json_text
from sweep.core.results import flatten, without_index
from sweep.core.trial import number_of
from sweep.core.values import shown as safe_repr
from sweep.display.formats import at_step, duration, escaped, moment, text
from sweep.figures.attempts import held_until, is_failed, nodes_of, outcome, spans_of
from sweep.figures.parameters import space_of
from sweep.page.markup import code, facts, line, rows, shown
from sweep.page.nodes import node_rows
from sweep.page.subject import Subject
from sweep.record.rows import TrialRow, trainable_name
from sweep.results.notebook import as_python
from sweep.results.winners import Best, better_earlier, shown_counts

_MAX_GROUPS = 20
_MAX_FRONT = 50
_MAX_NAMES = 50


def head(subject: Subject) -> str:
    """Return how it stands: state, counts, how far it is."""
    reader = subject.reader
    trials, planned = reader.trials(), reader.meta.get("num_trials")
    total = planned if isinstance(planned, int) and planned >= len(trials) else None
    ended = sum(row.is_ended for row in trials)
    said = shown_counts(reader) or "no trials yet"
    of = f" of {total:,}" if total is not None else ""
    bar = f'<progress max="{total}" value="{ended}" aria-label="trials that have ended"></progress>' if total else ""
    state = reader.state()
    word = f'<span class="state {escaped(state)}">{escaped(state)}</span> &middot;'
    hint = reader.state_hint()
    foot = line(f"<em>{escaped(hint, 0)}</em>") if hint else ""
    return line(word, f"{ended:,}{of} trials ended: {said}") + bar + foot


def winner(subject: Subject) -> str:
    """Return the best trial with its config to paste; of several objectives the Pareto set."""
    if subject.objectives:
        return _front(subject)
    reader, metric, mode = subject.reader, subject.metric, subject.mode
    if not metric or not mode:
        return line("No metric was given, so no trial is best: name one by --metric and --goal, or metric= and mode=.")
    best, earlier = subject.best(), better_earlier(reader, metric, mode)
    if best is None and earlier is None:
        names = ", ".join(escaped(name) for name in reader.metric_names()[:_MAX_NAMES])
        known = f"Reported were: {names}." if names else ""
        return line(f"No trial has reported a number under {escaped(repr(metric))}.", known)
    found = ""
    if best is not None:
        what = best.row.state
        note = "" if what == "finished" else f"({escaped(what)})"
        so_far = "Best so far:" if reader.state() == "running" else ""
        found += line(so_far, _value(best), note, "by the last report of each trial")
        found += _pasted(without_index(best.row.config))
        if best.row.checkpoint is not None:
            found += facts([("checkpoint", reader.root / best.row.checkpoint.path)])
    if earlier is not None:
        found += line("At an earlier step:", _value(earlier), at_step(earlier.step), "(scope=&#x27;all&#x27;).")
    if (confirmed := confirmation_of(reader)) is not None:
        found += line("Run again with other seeds:", escaped(str(confirmed), 0))
    return found


def failures(subject: Subject) -> str:
    """Return the failed trials, alike ones together, each group with the traceback of its first; empty: none failed."""
    reader = subject.reader
    trials = reader.trials()
    groups: dict[str, list[TrialRow]] = {}
    for row in trials:
        if row.status == "ERROR":
            groups.setdefault(without_numbers(row.reason), []).append(row)
    found = ""
    for some in sorted(groups.values(), key=len, reverse=True)[:_MAX_GROUPS]:
        numbers = " ".join(_button(row.number) for row in some[:30]) + (" …" if len(some) > 30 else "")
        ended = reader.last_exit(some[0].trial_id)
        trace = ended.traceback if ended is not None else ""
        body = code(trace, f"traceback of trial {some[0].number}") if trace else ""
        count = f"{len(some)} trial{'s' * (len(some) > 1)}"
        found += (
            f"<details{' open' if not found else ''}><summary>{count}: {escaped(some[0].reason)}</summary>"
            f"<p>{numbers}</p>{body}</details>"
        )
    if len(groups) > _MAX_GROUPS:
        found += line(f"{len(groups) - _MAX_GROUPS} more kinds of failure: see the table's reasons.")
    final = {row.trial_id: row.attempt for row in trials if row.is_ended}  # attempts after which nothing came
    again = [one for one in reader.history().attempts if is_failed(one) and one.number != final.get(one.trial_id)]
    if again:
        latest = again[-_MAX_GROUPS:]
        lines = [(number_of(one.trial_id), one.number, ", ".join(nodes_of(one)), outcome(one)) for one in latest]
        what = f"Attempts that failed and were made again: {len(again)}" + ", here the latest" * (latest != again)
        found += rows(["trial", "attempt", "node", "how it ended"], lines, what)
    return found


def nodes(subject: Subject) -> str:
    """Return what the nodes of the sweep had and did; empty: it has had one only."""
    found = node_rows(subject.reader)
    return rows([*found[0]], [[*row.values()] for row in found], "Nodes") if len(found) > 1 else ""


def waits(subject: Subject) -> str:
    """Return what trials wait for now, and how long they waited for their places."""
    trials = subject.reader.trials()
    now = Counter(row.reason or "waits for its turn" for row in trials if row.state in ("waiting", "paused"))
    found = ""
    if now:
        found += rows(["now", "trials"], now.most_common(_MAX_GROUPS), "What trials wait for now")
    times: dict[str, list[float]] = {"waiting": [], "paused": [], "starting": []}
    said: Counter[str] = Counter()
    for span in spans_of(subject.reader.history(), trials, subject.reader.driven_s()):
        if span.kind in times:
            times[span.kind].append(span.end - span.begin)
            if span.text and span.kind != "paused":
                said[without_numbers(span.text)] += 1
    words = {"waiting": "for a place", "paused": "paused", "starting": "for the process to start"}
    body = [
        (words[kind], len(some), span_text(statistics.median(some)), span_text(max(some)), span_text(sum(some)))
        for kind, some in times.items()
        if some
    ]
    if body:
        found += rows(["waited", "times", "median", "longest", "together"], body, "How long trials waited")
    if said:
        found += rows(["why", "times"], said.most_common(_MAX_GROUPS), "Why they waited")
    return found


def cost(subject: Subject) -> str:
    """Return for how long what was held, shares counted as such."""
    reader, end = subject.reader, subject.reader.driven_s()
    asked = {row.trial_id: row.resources.total for row in reader.trials()}
    held = {"trials": 0.0, "CPUs": 0.0, "GPUs": 0.0, "TPUs": 0.0}
    for one in reader.history().attempts:
        total = asked[one.trial_id]
        for name, amount in zip(held, (1.0, total.cpu, total.gpu, total.tpu), strict=True):
            held[name] += amount * (held_until(one, end) - one.granted.at)
    times = [(f"{name} held for", span_text(seconds)) for name, seconds in held.items() if seconds]
    return facts([("driven for", span_text(end)), *times])


def about(subject: Subject) -> str:
    """Return what ran: command, space, policies, seed, machine, versions."""
    reader = subject.reader
    meta = reader.meta
    versions = [f"{name} {version}" for name, version in (meta.get("versions") or {}).items()]
    space = space_of(reader)
    found = facts(
        [
            ("command", meta.get("command")),
            ("trainable", meta.get("import_path") or trainable_name(meta)),
            ("objective", subject.objective),
            ("searcher", meta.get("searcher")),
            ("scheduler", meta.get("scheduler")),
            ("trials asked for", meta.get("num_trials") if meta.get("num_trials") is not None else "no limit"),
            ("each trial asks for", reader.trials()[0].resources if reader.trials() else None),
            ("seed", meta.get("seed")),
            ("started", moment(meta.get("created"), " %Z")),
            ("machine", ", ".join(map(str, (meta.get("machine") or {}).values()))),
            ("versions", ", ".join(versions) or f"python {meta.get('python')}"),
            ("to go on", meta.get("resume_command")),
            ("directory", reader.root),
        ]
    )
    if space:
        written = [(name, as_written(one)) for name, one in space.items()]
        found += rows(["parameter", "space"], written, "Search space")
    return found


PARTS: Mapping[str, Callable[[Subject], str]] = {
    "head": head,
    "winner": winner,
    "failures": failures,
    "waits": waits,
    "nodes": nodes,
    "cost": cost,
    "about": about,
}
"""Name of a part -> what makes its HTML; empty where there is nothing to say."""

TITLES: Mapping[str, str] = {
    "winner": "The best",
    "failures": "What failed",
    "waits": "What was waited for",
    "nodes": "Where it ran",
    "cost": "What it cost",
    "about": "What ran",
}


# --- pieces ---


def _front(subject: Subject) -> str:
    front = subject.front()
    so_far = " so far" if subject.reader.state() == "running" else ""
    by, count = escaped(subject.objective), f"<strong>{len(front)}</strong>"
    said = f"Pareto set{so_far} by {by}: {count} trials that no other beats."
    if not front:
        return line(said)
    names = list(front[0][1])
    params = list(dict.fromkeys(key for row, _ in front for key in flatten(row.config)))[:20]
    body = [
        [f"{row.number:05d}", *(values[name] for name in names), *(flatten(row.config).get(key) for key in params)]
        for row, values in front[:_MAX_FRONT]
    ]
    more = line(f"The first {_MAX_FRONT} of them.") if len(front) > _MAX_FRONT else ""
    return line(said) + rows(["trial", *names, *params], body, "Pareto set") + more


def _value(best: Best) -> str:
    value = f"<strong>{escaped(best.metric)} = {shown(best.value)}</strong>"
    return f"{value} ({escaped(best.mode)}), trial {_button(best.row.number)}"


def _button(number: int) -> str:
    return f'<button type="button" class="trial" data-trial="{number}">{number:05d}</button>'


def _pasted(config: Mapping[str, Any]) -> str:
    forms = {"Python": f"config = {as_python(config)}", "JSON": json_text(config), "arguments": as_arguments(config)}
    shown = (f"<section><h3>{name}</h3>{code(body, f'config as {name}')}</section>" for name, body in forms.items())
    return f'<div class="forms">{"".join(shown)}</div>'


_SHAPES: Mapping[type, str] = {Normal: "randn", LogNormal: "lognormal", Beta: "beta"}


def as_written(node: Any) -> str:
    """Return a domain as people write it: `loguniform(1e-4, 1)`."""
    if isinstance(node, (Float, Integer)):
        base, q = node.base_and_q()
        name = "uniform" if isinstance(node, Float) else "randint"
        parts: list[Any] = [node.lower, node.upper]
        if isinstance(base, (Normal, LogNormal, Beta)):
            name, parts = _SHAPES[type(base)], [*vars(base).values()]
        elif isinstance(base, LogUniform):
            name = f"log{name}"
        name = f"{'q' * (q is not None)}{name}"
        return f"{name}({', '.join(_short(one) for one in (*parts, q) if one is not None)})"
    if isinstance(node, Categorical):
        return f"{'grid_search' if node.is_grid() else 'choice'}([{', '.join(map(as_written, node.categories))}])"
    if isinstance(node, Mapping) and [*node] == ["grid_search"]:
        return f"grid_search({as_written(node['grid_search'])})"
    if isinstance(node, Mapping):
        return f"{{{', '.join(f'{key!r}: {as_written(one)}' for key, one in node.items())}}}"
    return f"[{', '.join(map(as_written, node))}]" if isinstance(node, list) else safe_repr(node)


def _short(number: float) -> str:
    """Return the text of a number as short as it can be without being another one."""
    return text(number) if float(text(number)) == number else repr(number)


def span_text(seconds: float) -> str:
    """Return a span of time for people."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s" if seconds < 60 else duration(seconds)
