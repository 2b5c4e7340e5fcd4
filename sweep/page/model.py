"""Pages as pieces, each made again when its records have grown and the budget allows."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sweep.errors import ExperimentError, SweepError
from sweep.figures.comparison import draw_best_so_far, draw_values
from sweep.figures.plots import Plots
from sweep.page.comparison import COMPARISON_PARTS, COMPARISON_TITLES
from sweep.page.parts import ENDED, PARTS, TITLES, counts_of
from sweep.page.subject import Subject
from sweep.page.table import TrialTable

__all__ = ["Budget", "ExperimentModel", "PageModel", "Piece", "models_of"]

_LEAST_S = 1.0  # between two makings of one piece


@dataclass
class Piece:
    """One piece of a page: its JSON text, the version at which it last changed, when it was made last."""

    make: Callable[[], str]
    text: str = ""
    version: int = 0
    state: Any = None  # of the record when it was made
    made_at: float = -math.inf


class Budget:
    """How much CPU some pieces may take: a share of one CPU, saved up; what was taken beyond that is made up for first.

    Args:
        share: of one CPU, in (0, 1).
        most_s: seconds of CPU that are saved up at most; so many there are at the beginning.
        clock, cpu: seconds that pass, and seconds of CPU that the calling thread has used.
    """

    def __init__(self, share: float, most_s: float, clock: Callable[[], float], cpu: Callable[[], float]) -> None:
        self._share = share
        self._most_s = self._left_s = most_s
        self._clock, self._cpu = clock, cpu
        self._at = clock()

    def has_some(self, ease: float) -> bool:
        """Whether something is left; `ease` times the share has accrued since the last call."""
        now = self._clock()
        self._left_s = min(self._most_s, self._left_s + ease * self._share * (now - self._at))
        self._at = now
        return self._left_s > 0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Take off what the block uses."""
        began = self._cpu()
        try:
            yield
        finally:
            self._left_s -= self._cpu() - began


class PageModel:
    """Part of a page as data: pieces, made all at once by `refresh` or in turn, as the records grow, by `renew`.

    Attributes:
        version: grows with every change of any piece; 0: nothing was made yet.
        parts, figures: name -> piece; the JSON text of a part is its HTML, that of a figure what plotly draws, or null.
        order: names of the figures in the order of the page.
        is_running: some sweep that it shows was driven when it was looked at last.
        titles: of the parts that have one, in the order of the page.
    """

    titles: Mapping[str, str] = {}

    def __init__(self, name: str, clock: Callable[[], float], cpu: Callable[[], float]) -> None:
        self.name = name
        self.version = 0
        self.is_running = False
        self.order: list[str] = []
        self.parts: dict[str, Piece] = {}
        self.figures: dict[str, Piece] = {}
        self._clock = clock
        self._quick: list[Piece] = []  # what is seen first: how far it is, the table
        self._others: list[Piece] = []
        self._for_quick = Budget(0.015, 0.1, clock, cpu)
        self._for_others = Budget(0.01, 0.2, clock, cpu)
        self._for_figures = Budget(0.02, 1.0, clock, cpu)

    @property
    def title(self) -> str:
        """What a browser's tab says."""
        return self.name

    def refresh(self, *, with_figures: bool = True) -> None:
        """Make everything that is out of date.

        Raises:
            ExperimentError: a record is gone or damaged.
        """
        state = self._state()
        for piece in (*self._quick, *self._others):
            self._refresh(piece, state)
        for name in self.order if with_figures else ():
            self._refresh(self.figures[name], state)

    def renew(self, ease: float = 1.0) -> Iterator[None]:
        """Make what is out of date, the oldest first, as far as the budgets allow; stop after each piece for a moment.

        All together take at most 4.5% of one CPU, `ease` times as much where nobody else needs it.

        Raises:
            ExperimentError: a record is gone or damaged.
        """
        if not self._for_quick.has_some(ease):
            return
        with self._for_quick.spent():
            state = self._state()
            for piece in self._quick:
                self._refresh(piece, state)
        yield
        for budget in (self._for_others, self._for_figures):
            now = self._clock()
            pieces = self._others if budget is self._for_others else [self.figures[name] for name in self.order]
            stale = [piece for piece in pieces if piece.state != state and now - piece.made_at >= _LEAST_S]
            for piece in sorted(stale, key=lambda piece: piece.made_at):
                if not budget.has_some(ease):
                    break
                with budget.spent():
                    self._refresh(piece, state)
                yield

    def news(self, version: int) -> dict[str, Any]:
        """Return what changed after a version, as `page.js` takes it; texts of parts and figures are JSON already."""
        return {
            "parts": {name: piece.text for name, piece in self.parts.items() if piece.version > version},
            "figures": {name: piece.text for name, piece in self.figures.items() if piece.version > version},
        }

    def _state(self) -> Any:
        """Return what is another value when there is something new to show."""
        raise NotImplementedError

    def _refresh(self, piece: Piece, state: Any) -> None:
        if piece.state == state:
            return
        text = piece.make()
        piece.state, piece.made_at = state, self._clock()
        if text != piece.text:
            piece.text = text
            self.version += 1
            piece.version = self.version


class ExperimentModel(PageModel):
    """The page of one experiment.

    Attributes:
        table: the trials; `row_versions` has the version at which each row last changed.
    """

    titles = TITLES

    def __init__(
        self,
        subject: Subject,
        name: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__(name or subject.reader.name, clock, cpu)
        self.subject = subject
        self.reader = subject.reader
        self.table = TrialTable()
        self.row_versions: list[int] = []
        self.columns_version = 0
        self.parts = {part: Piece(partial(_written, make, subject)) for part, make in PARTS.items()}
        self._quick = [Piece(self._update_table), self.parts["head"]]
        self._others = [Piece(self._update_suited), *(self.parts[part] for part in TITLES)]
        self._plots = Plots(self.reader, subject.metric, subject.mode)

    @property
    def title(self) -> str:
        """What a browser's tab says: how far it is, and the name."""
        counts = counts_of(self.reader)
        ended = sum(counts.get(name, 0) for name in ENDED)
        planned = self.reader.meta.get("num_trials")
        return f"{ended}/{planned if isinstance(planned, int) else sum(counts.values())} {self.name}"

    def news(self, version: int) -> dict[str, Any]:
        """Return what changed after a version; with the rows as [index, cells] pairs."""
        found = super().news(version)
        found["rows"] = [[at, self.table.rows[at]] for at, when in enumerate(self.row_versions) if when > version]
        if self.columns_version > version:
            found["columns"] = self.table.columns
        return found

    def _state(self) -> tuple[int, str]:
        state = self.reader.state()
        self.is_running = state == "running"
        return self.reader.snapshot().seq, state

    def _update_table(self) -> str:
        before = self.table.columns
        changed = self.table.update(self.subject)
        if changed or self.table.columns != before:
            self.version += 1
            self.row_versions += [0] * (len(self.table.rows) - len(self.row_versions))
            for index in changed:
                self.row_versions[index] = self.version
            if self.table.columns != before:
                self.columns_version = self.version
        return ""

    def _update_suited(self) -> str:
        self.order = self._plots.suited()
        for name in self.order:
            if name not in self.figures:
                self.figures[name] = Piece(partial(_drawn, getattr(self._plots, name)))
        return json.dumps(self.order)


class ComparisonModel(PageModel):
    """What several experiments have in common and what not; shown beside their own pages."""

    titles = COMPARISON_TITLES

    def __init__(
        self,
        models: Sequence[ExperimentModel],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__("compared", clock, cpu)
        self._models = models
        subjects = {model.name: model.subject for model in models}
        self.parts = {part: Piece(partial(_written, make, subjects)) for part, make in COMPARISON_PARTS.items()}
        self._others = list(self.parts.values())
        self._readers = {model.name: model.reader for model in models}
        metrics, modes = {one.metric for one in subjects.values()}, {one.mode for one in subjects.values()}
        metric, mode = metrics.pop(), modes.pop()
        if metric and mode and not metrics and not modes and not any(one.objectives for one in subjects.values()):
            for over in ("trials", "time"):
                draw = partial(draw_best_so_far, self._readers, metric, mode, over)
                self.figures[f"best over {over}"] = Piece(partial(_drawn, draw))
            self.figures["values"] = Piece(partial(_drawn, partial(draw_values, self._readers, metric, mode)))
            self.order = list(self.figures)

    @property
    def title(self) -> str:
        """What a browser's tab says."""
        return ", ".join(self._readers)

    def _state(self) -> list[Any]:
        states = [model._state() for model in self._models]
        self.is_running = any(model.is_running for model in self._models)
        return states


def models_of(subjects: Sequence[Subject]) -> list[PageModel]:
    """Return the parts of the page of experiments: of several also what compares them, first."""
    names = [subject.reader.name for subject in subjects]
    models = [
        ExperimentModel(subject, name if names.count(name) == 1 else str(subject.reader.root))
        for subject, name in zip(subjects, names, strict=True)
    ]
    return [ComparisonModel(models), *models] if len(models) > 1 else [*models]


def _written(make: Callable[[Any], str], subject: Any) -> str:
    return json.dumps(make(subject))


def _drawn(draw: Callable[[], Any]) -> str:
    try:
        text: str = draw().to_json()
    except ExperimentError:
        raise
    except SweepError:  # there is nothing of the kind to show yet
        return "null"
    return text
