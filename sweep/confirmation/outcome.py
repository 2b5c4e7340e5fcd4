"""What came of running the best configs of an experiment again: which one to take, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweep.confirmation.race import Race, of_mean
from sweep.core.messages import Suggested
from sweep.core.results import TrialResult, without_index
from sweep.errors import NoExperimentError
from sweep.record.reader import ExperimentReader
from sweep.results.winners import scores

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass
class Confirmation:
    """The best configs of an experiment after repeats with other seeds; printed, it says which one to take.

    Attributes:
        name: of the sweep that has made the repeats.
        repeats: of a config at most.
        configs: a dict for each, the one to take first, those dropped last: `trial` (its number in the experiment),
            `value` (there), `runs`, `failed` (how many of them), `mean`, `low`, `high` (its 95% confidence interval),
            `values`, `dropped` (after which repeat), `config`. None: not known, or it did not happen.
        lead: of the first over the next, in the repeats that both have: `over` (its trial), `pairs`, `mean`, `low`,
            `high`, and the two-sided `p` of a paired t-test. It does not allow for what the race has selected by then.
        is_over: whether all repeats were made that were needed.
        is_constant: whether repeats of a config all gave the same.
        interrupted: Ctrl-C, or a signal, ended the run that has returned this.
    """

    name: str
    metric: str
    mode: str
    repeats: int
    configs: list[dict[str, Any]]
    lead: dict[str, Any] | None
    is_over: bool
    is_constant: bool
    interrupted: bool = False

    @property
    def best(self) -> dict[str, Any] | None:
        """The first of `configs`; None: repeats are missing, or no config came through them."""
        return self.configs[0] if self.is_over and self.configs[0]["dropped"] is None else None

    def __str__(self) -> str:
        runs, most = sum(one["runs"] for one in self.configs), self.repeats * len(self.configs)
        if (best := self.best) is None:
            why = f"none of {len(self.configs)} configs came through: see `sweep why {self.name}`"
            return f"{why if self.is_over else 'not finished'}; {runs} of at most {most} runs"
        text = f"take trial {best['trial']:05d}: mean {self.metric} {best['mean']:.6g} of {best['runs']} runs"
        text += f" (95%: {best['low']:.6g} to {best['high']:.6g}; before: {best['value']:.6g})"
        if self.is_constant:
            text += "; repeats do not differ at all: the trainable does not vary with the seed"
        elif lead := self.lead:
            text += (
                f"; better than {lead['over']:05d} by {lead['mean']:.3g} ({lead['low']:.3g} to {lead['high']:.3g}), "
            )
            text += f"p={max(lead['p'], 1e-6):.2g} in {lead['pairs']} pairs" + ", perhaps by chance" * (
                lead["p"] > 0.05
            )
        return f"{text}; {runs} of at most {most} runs"

    def figure(self) -> go.Figure:
        """Return the runs of each config, and their means with intervals, drawn with plotly."""
        from sweep.figures.confirmation import draw_confirmation

        return draw_confirmation(self.configs, self.metric, str(self), self.best is not None)


def confirmation_of(original: ExperimentReader) -> Confirmation | None:
    """Return what is known of the repeats of an experiment's best configs; None: none were made."""
    try:
        reader = ExperimentReader(original.root.with_name(f"{original.root.name}-confirm"))
    except NoExperimentError:
        return None
    race = None
    for fact in reader.facts(kinds=[Suggested]):
        if isinstance(event := fact.event, Suggested) and "race" in (state := event.state or {}):
            race = race or Race({one: {} for one in state["race"]["configs"]}, state["race"]["repeats"])
            race.retell(event.trial_id, {}, state)
    if race is None:
        return None
    race.set_search_properties(reader.metric, reader.mode, {})
    for row in reader.trials():
        if row.is_ended:
            race.on_trial_complete(row.trial_id, TrialResult(row.last_metrics or {}), row.status == "ERROR")
    metric, mode, now = str(reader.metric), str(reader.mode), race.standing()
    before, sign = dict(scores(original, metric, mode, "last")), -1.0 if mode == "max" else 1.0
    found: list[dict[str, Any]] = []
    for place, (number, runs) in enumerate(race.runs.items()):
        trial, values = original.trial(number), [sign * value for value in runs.values() if value == value]
        told: dict[str, Any] = {"trial": number, "value": before.get(trial.trial_id), "runs": len(runs)}
        told |= {"failed": len(runs) - len(values), "mean": values[0] if values else None, "low": None, "high": None}
        if len(values) > 1:
            told["mean"], told["low"], told["high"], _ = of_mean(values)
        told |= {"dropped": now.dropped.get(place), "values": values, "config": without_index(trial.config)}
        found.append(told)
    found.sort(
        key=lambda one: (one["failed"], -(one["dropped"] or math.inf), one["runs"] == 0, sign * (one["mean"] or 0.0))
    )
    lead, (first, *others) = None, [race.runs[one["trial"]] for one in found]
    gaps = [others[0][at] - first[at] for at in first.keys() & others[0].keys()] if others else []
    if len(gaps := [gap for gap in gaps if gap == gap]) > 1:
        mean, low, high, p = of_mean(gaps)
        lead = {"over": found[1]["trial"], "pairs": len(gaps), "mean": mean, "low": low, "high": high, "p": p}
    of = (reader.name, metric, mode, race.repeats)
    return Confirmation(*of, found, lead, now.is_over, now.is_constant)
