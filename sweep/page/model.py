"""Pages as pieces, each made again when its records have grown and its own cost allows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
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

__all__ = ["ExperimentModel", "PageModel", "Piece", "models_of"]

_REST = 20  # times its own cost that a piece waits before it is made again: 5% of one CPU at most, all pieces in turn
_LEAST_S = 1.0


@dataclass
class Piece:
    """One piece of a page: its JSON text, the version at which it last changed, when it may be made again."""

    make: Callable[[], str]
    text: str = ""
    version: int = 0
    state: Any = None  # of the record when it was made
    due: float = 0.0


class PageModel:
    """Part of a page as data: pieces that `refresh` makes when the records have grown and their own cost allows.

    Attributes:
        version: grows with every change of any piece; 0: nothing was made yet.
        parts, figures: name -> piece; the JSON text of a part is its HTML, that of a figure what plotly draws, or null.
        order: names of the figures in the order of the page.
        titles: of the parts that have one, in the order of the page.
    """

    titles: Mapping[str, str] = {}

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.version = 0
        self.order: list[str] = []
        self.parts: dict[str, Piece] = {}
        self.figures: dict[str, Piece] = {}
        self._clock = clock
        self._first: tuple[Piece, ...] = ()  # what is made before the parts

    @property
    def title(self) -> str:
        """What a browser's tab says."""
        return self.name

    def refresh(self, *, everything: bool = False, with_figures: bool = True) -> None:
        """Make what is out of date and may be made now, or all of it.

        Raises:
            ExperimentError: a record is gone or damaged.
        """
        state = self._state()
        for piece in (*self._first, *self.parts.values()):
            self._refresh(piece, state, everything)
        for name in self.order if with_figures else ():
            self._refresh(self.figures[name], state, everything)

    def refresh_figure(self, name: str) -> None:
        """Make one figure, if it is out of date and may be made now; see `refresh`."""
        self._refresh(self.figures[name], self._state(), False)

    def news(self, version: int) -> dict[str, Any]:
        """Return what changed after a version, as `page.js` takes it; texts of parts and figures are JSON already."""
        return {
            "parts": {name: piece.text for name, piece in self.parts.items() if piece.version > version},
            "figures": {name: piece.text for name, piece in self.figures.items() if piece.version > version},
        }

    def _state(self) -> Any:
        """Return what is another value when there is something new to show."""
        raise NotImplementedError

    def _refresh(self, piece: Piece, state: Any, everything: bool) -> None:
        began = self._clock()
        if piece.state == state or (piece.due > began and not everything):
            return
        text = piece.make()
        piece.state = state
        if text != piece.text:
            piece.text = text
            self.version += 1
            piece.version = self.version
        ended = self._clock()
        piece.due = ended + max(_LEAST_S, _REST * (ended - began))


class ExperimentModel(PageModel):
    """The page of one experiment.

    Attributes:
        table: the trials; `row_versions` has the version at which each row last changed.
    """

    titles = TITLES

    def __init__(self, subject: Subject, name: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name or subject.reader.name, clock)
        self.subject = subject
        self.reader = subject.reader
        self.table = TrialTable()
        self.row_versions: list[int] = []
        self.columns_version = 0
        self.parts = {part: Piece(partial(_written, make, subject)) for part, make in PARTS.items()}
        self._first = (Piece(self._update_table), Piece(self._update_suited))
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
        return self.reader.snapshot().seq, self.reader.state()

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

    def __init__(self, models: Sequence[ExperimentModel], *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("compared", clock)
        self._models = models
        subjects = {model.name: model.subject for model in models}
        self.parts = {part: Piece(partial(_written, make, subjects)) for part, make in COMPARISON_PARTS.items()}
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
        return [model._state() for model in self._models]


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
