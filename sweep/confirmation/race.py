"""Run a few configs again with other seeds, and drop those that cannot win any more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from searchers import checks
from searchers.base import EXHAUSTED, NOT_NOW, Config, Searcher, Signal
from searchers.keywords import refuse_unknown
from searchers.variants import Path, fresh

LEAST = 3  # repeats before somebody is dropped: after two the best of five is lost too often (benchmarks/confirm.py)
_CHANCE = 0.05  # to win, below which a config is dropped; of what lies outside an interval
_PRIOR = 4  # degrees of freedom that the variance of all pairs counts for, beside those of a pair's own


class Standing(NamedTuple):
    """How a race stands; configs are named by their places."""

    alive: list[int]
    dropped: dict[int, int]  # after which repeat
    rounds: int  # repeats that all had who were in it
    is_constant: bool  # those that are left had the same value each time
    is_over: bool


def standing(runs: Sequence[Mapping[int, float]], repeats: int) -> Standing:
    """Return how a race stands that the lowest mean over `repeats` repeats wins.

    From the third repeat on a config is dropped once the chance that its mean would be below the leader's after all
    repeats is less than 5%, given those so far. That is predictive power (Spiegelhalter, Freedman and
    Blackburn 1986, Controlled Clinical Trials 7:8-17; curtailment: Lan, Simon and Halperin 1982, Communications in
    Statistics C 1:207-219) in place of the bound of a Hoeffding race (Maron and Moore 1997, Artificial Intelligence
    Review 11:193-225): after R repeats, given n, the mean difference in pairs is Student's t around that of n, its
    scale `s * sqrt(1/n - 1/R)`. Departure: s is moderated towards that of all pairs (Smyth 2004, Statistical
    Applications in Genetics and Molecular Biology 3:3) with four degrees of freedom, because n is small.

    Args:
        runs: of each config value by repeat (0, 1 ...), as far as they have ended. NaN: it failed, and the config is
            dropped.
    """
    alive, dropped, n, is_constant = list(range(len(runs))), dict[int, int](), 0, False
    while n < repeats and alive and not is_constant and (n < LEAST or len(alive) > 1 or len(runs) == 1):
        if not all(n in runs[one] for one in alive):
            return Standing(alive, dropped, n, False, False)
        n += 1
        alive = [one for one in alive if not math.isnan(runs[one][n - 1])]
        table = np.array([[runs[one][at] for at in range(n)] for one in alive])
        if LEAST <= n < repeats and len(alive) > 1:
            kept = _could_win(table, repeats)
            alive, table = [alive[row] for row in kept], table[kept]
        dropped |= {one: n for one in range(len(runs)) if one not in alive and one not in dropped}
        is_constant = n >= LEAST and bool(alive) and bool((table == table[:, :1]).all())
    return Standing(alive, dropped, n, is_constant, True)


def _could_win(table: Any, repeats: int) -> list[int]:
    """Return the rows that have at least this chance to have the lowest mean in the end, and the one that has it."""
    (num, n), leader = table.shape, int(table.mean(1).argmin())
    gaps = table - table[leader]
    squares, prior = gaps.var(1, ddof=1), min(_PRIOR, (num - 2) * (n - 1))
    moderated = (prior * squares.sum() / (num - 1) + (n - 1) * squares) / (prior + n - 1)
    scales = np.maximum(np.sqrt(moderated * (1 / n - 1 / repeats)), 1e-300)  # equal gaps: no chance, or an even one
    chances = [t_tail(gap / scale, prior + n - 1) for gap, scale in zip(gaps.mean(1), scales, strict=True)]
    return [row for row, chance in enumerate(chances) if chance >= _CHANCE or row == leader]


def t_tail(t: float, df: int) -> float:
    """Return P(T > t) of Student's t, by the series of Abramowitz and Stegun 1964, 26.7.3 and 26.7.4."""
    angle, total, odd = math.atan2(t, math.sqrt(df)), 0.0, df % 2
    term = math.cos(angle) if odd else 1.0
    for step in range(1, (df - odd) // 2 + 1):
        total += term
        term *= math.cos(angle) ** 2 * (2 * step - 1 + odd) / (2 * step + odd)
    total *= math.sin(angle)
    return 0.5 - 0.5 * (2 / math.pi * (angle + total) if odd else total)


def of_mean(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the mean of two values or more, its 95% confidence interval by Student's t, and the two-sided p that it is
    0 in truth."""
    mean, low, high, df = float(np.mean(values)), 0.0, 1e6, len(values) - 1
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > _CHANCE / 2 else (low, middle)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    p = 2 * t_tail(abs(mean) / error, df) if error else float(mean == 0)
    return mean, mean - high * error, mean + high * error, p


@refuse_unknown()
class Race(Searcher):
    """Try each of a few configs with one seed after the other, until one is left (`standing`) or all repeats are made.

    In a repeat all have the same seed (`seeds`, `seeded_as`), so that they are compared in pairs. It begins when the
    last trial of the one before has ended; the first three begin at once. Results count when trials end.

    Args:
        configs: by names that `suggestion_state` gives back; the first wins a tie.
        repeats: trials of a config at most, at least 2.
        seeds: paths of parameters that are seeds, and the value before that of the first repeat.

    Raises:
        SearchError: an argument is wrong.
    """

    def __init__(self, configs: Mapping[int, Config], repeats: int, seeds: Mapping[Path, int] | None = None) -> None:
        super().__init__()
        self.configs, self.seeds = configs, seeds or {}
        self.repeats = checks.whole("repeats", repeats, least=2, hint="One run more says nothing of the spread.")
        self.runs: dict[int, dict[int, float]] = {name: {} for name in configs}  # as `standing` takes them
        self._pairs: dict[str, tuple[int, int]] = {}  # by trial: name and repeat

    def num_trials(self, num_samples: int | None) -> int:
        """Return how many trials there are at most."""
        return len(self.configs) * self.repeats

    def standing(self) -> Standing:
        """Return how the race stands."""
        return standing(list(self.runs.values()), self.repeats)

    def suggest(self, trial_id: str) -> Config | Signal:
        if trial_id not in self._pairs:
            now, names, begun = self.standing(), list(self.configs), set(self._pairs.values())
            if now.is_over:
                return EXHAUSTED
            rounds = range(min(self.repeats, max(LEAST, now.rounds + 1)))
            wanted = ((names[one], repeat) for repeat in rounds for one in now.alive)
            if (pair := next((pair for pair in wanted if pair not in begun), None)) is None:
                return NOT_NOW
            self._pairs[trial_id] = pair
        name, repeat = self._pairs[trial_id]
        config: Config = fresh(self.configs[name])
        for (*groups, last), value in self.seeds.items():
            node: Any = config
            for key in groups:
                node = node[key]
            node[last] = (value + 1 + repeat) % 2**32
        return config

    def seeded_as(self, trial_id: str) -> str:
        """Return the id of the first trial of a trial's repeat, whose seed all of the repeat have."""
        repeat = self._pairs.get(trial_id, ("", -1))[1]
        return next((one for one, (_, its) in self._pairs.items() if its == repeat), trial_id)

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any]:
        """Return which config and repeat a trial is, and what else tells the race from its record alone."""
        name, repeat = self._pairs[trial_id]
        race = {"configs": list(self.configs), "repeats": self.repeats}
        return {"config": name, "repeat": repeat, "race": race}

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        if state is not None:
            self._pairs[trial_id] = state["config"], state["repeat"]

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        if trial_id in self._pairs:
            name, repeat = self._pairs[trial_id]
            value = math.nan if error or result is None else checks.as_number(result.get(str(self.metric)))
            self.runs[name][repeat] = (-value if self.mode == "max" else value) if math.isfinite(value) else math.nan
