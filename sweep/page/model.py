"""Pages as pieces, each made again when its records have grown, the dearer the more seldom."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sweep.confirmation.outcome import confirmation_of
from sweep.errors import ExperimentError, SweepError
from sweep.figures.comparison import draw_best_so_far, draw_values
from sweep.figures.plots import Plots
from sweep.page.comparison import COMPARISON_PARTS, COMPARISON_TITLES
from sweep.page.parts import PARTS, TITLES
from sweep.page.subject import Subject
from sweep.page.table import trial_table

_LEAST_S = 1.0  # between two makings of one piece
_SHARE = 0.05  # of one CPU, for each piece
_MOST_METRICS = 12  # that a figure can be asked for
_MOST_VARIANTS = 10_000_000  # characters of figures with other metrics or axes that a file holds
_AXES = {  # figure -> its argument that names the x axis, and what that may be, each with what people call it
    "history": ("over", {"trials": "trial", "time": "time"}),
    "curves": ("x", {"training_iteration": "step", "time_total_s": "time"}),
}
_OLD_S = 5.0  # a figure that is this much older than what is known says so


@dataclass
class Piece:
    """One piece of a page: its text, the version at which it last changed, when it was made last."""

    make: Callable[[], str]
    text: str = ""
    version: int = 0
    state: Any = None  # of the record when it was made
    as_of: tuple[float, int] = (0.0, 0)  # of that state: when it was read, how many trials had ended
    made_at: float = -math.inf
    cost_s: float = 0.0  # seconds of CPU

    def is_due(self, now: float) -> bool:
        """Whether it may be made again, if it is to take at most its share of one CPU."""
        return now - self.made_at >= max(_LEAST_S, self.cost_s / _SHARE)


class PageModel:
    """Part of a page as data: pieces, made all at once by `refresh`, or by `renew` as the records grow."""

    titles: Mapping[str, str] = {}  # of the parts that have one, in the order of the page
    _clock, _cpu = staticmethod(time.monotonic), staticmethod(time.thread_time)

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()  # held while a piece or the table is replaced
        self.version = 0  # grows with every change of any piece; 0: nothing was made yet
        self.is_running = False  # some sweep was driven when it was looked at last
        self.order: list[str] = []  # names of the figures in the order of the page
        self.parts: dict[str, Piece] = {}  # their text is HTML
        # Their text is the JSON that plotly draws, or null; a figure with another metric or axis is there by figure,
        # metric and axis, a line each: while a sweep runs only those `wanted`.
        self.figures: dict[str, Piece] = {}
        self.choices: dict[str, dict[str, Any]] = {}  # figure -> metrics and x axes that it can be drawn with
        self.wanted: set[str] = set()
        self._quick: list[Piece] = []  # what is seen first: how far it is, the table
        self._others: list[Piece] = []
        self._looked = Piece(str)  # at the record and what is quick, as if that were one piece
        self._state_now: Any = None
        self._as_of = (0.0, 0)

    @property
    def title(self) -> str:
        """What a browser's tab says."""
        return self.name

    def refresh(self, *, with_figures: bool = True) -> None:
        """Make everything that is out of date; a record that is gone or damaged is an ExperimentError."""
        self._look()
        for piece in self._others:
            self._refresh(piece)
        if not with_figures:
            return
        for name in self.order:
            self._refresh(self.figures[name])
        size, kept = 0, set()
        for key in [key for key in self.figures if "\n" in key]:
            name, metric, *_ = key.split("\n")
            if size + len(self.figures[name].text) < _MOST_VARIANTS:  # it will be as long as that
                self._refresh(self.figures[key])
                kept.add((name, metric))
            size += len(self.figures[key].text)
        for name, choice in self.choices.items():  # only of what is there
            choice["metrics"] = [one for at, one in enumerate(choice["metrics"]) if not at or (name, one) in kept]

    def renew(self) -> Iterator[None]:
        """Make what is out of date and due, what is seen first before the rest, and again after whatever is dear; stop
        after each piece for a moment.

        No piece takes more than its share of one CPU, but its first making, which imports what it needs.
        """
        yield from self._look_if_due()
        for group in ("others", "figures"):  # the others say which figures there are
            pieces = self._others if group == "others" else self._shown().values()
            for piece in sorted(pieces, key=lambda piece: piece.made_at):
                if piece.state != self._state_now and piece.is_due(self._clock()):
                    self._refresh(piece)
                    yield
                    yield from self._look_if_due()

    def news(self, version: int, wanted: Collection[str] = ()) -> dict[str, Any]:
        """Return what changed after a version, as `page.js` takes it, and the `wanted` figures even so."""
        with self.lock:
            latest = self._as_of[0] - _OLD_S
            shown = self._shown().items()
            return {
                "version": self.version,
                "order": self.order,
                "choices": self.choices,
                "parts": {name: piece.text for name, piece in self.parts.items() if piece.version > version},
                "figures": {
                    key: piece.text
                    for key, piece in self.figures.items()
                    if piece.text and (piece.version > version or key in wanted)
                },
                "old": {key: piece.as_of for key, piece in shown if piece.text and piece.as_of[0] < latest},
            }

    def _look(self) -> None:
        with self.lock:
            began, self._looked.made_at = self._cpu(), self._clock()
            self._state_now = self._state()
            self._as_of = time.time(), self._num_ended()
            for piece in self.figures.values():
                if piece.state == self._state_now:
                    piece.as_of = self._as_of
            for piece in self._quick:
                self._refresh(piece)
            self._looked.cost_s = self._cpu() - began

    def _look_if_due(self) -> Iterator[None]:
        if self._looked.is_due(self._clock()):
            self._look()
            yield

    def _shown(self) -> dict[str, Piece]:
        return {key: self.figures[key] for key in (*self.order, *self.wanted) if key in self.figures}

    def _state(self) -> Any:
        """Return what is another value when there is something new to show."""
        raise NotImplementedError

    def _num_ended(self) -> int:
        """Return how many trials have ended."""
        raise NotImplementedError

    def _refresh(self, piece: Piece) -> None:
        if piece.state == self._state_now:
            return
        state, as_of = self._state_now, self._as_of
        began, piece.made_at = self._cpu(), self._clock()
        text = piece.make()
        piece.cost_s = 0.0 if piece.state is None else self._cpu() - began
        with self.lock:
            if text != piece.text or piece.as_of[0] < as_of[0] - _OLD_S:  # it may have been said that it is old
                self.version += 1
                piece.version = self.version
            piece.text, piece.state, piece.as_of = text, state, as_of


class ExperimentModel(PageModel):
    """The page of one experiment; `row_versions` are those at which the rows of its table last changed."""

    titles = TITLES

    def __init__(self, subject: Subject, name: str = "") -> None:
        super().__init__(name or subject.reader.name)
        self.subject = subject
        self.reader = subject.reader
        self.columns: list[list[str]] = []
        self.rows: list[list[Any]] = []
        self.row_versions: list[int] = []
        self.columns_version = 0
        self.parts = {part: Piece(partial(make, subject)) for part, make in PARTS.items()}
        self._best = Piece(self._best_text)
        self._quick = [Piece(self._update_table), self._best, self.parts["head"]]
        self._others = [Piece(self._update_suited), *(self.parts[part] for part in TITLES)]
        self._plots = Plots(self.reader, subject.metric, subject.mode)

    @property
    def title(self) -> str:
        """What a browser's tab says: how far it is, and the name."""
        planned = self.reader.meta.get("num_trials")
        return f"{self._num_ended()}/{planned if isinstance(planned, int) else len(self.reader.trials())} {self.name}"

    def news(self, version: int, wanted: Collection[str] = ()) -> dict[str, Any]:
        """Return what changed after a version; with the rows as [index, cells] pairs."""
        with self.lock:
            found = super().news(version, wanted)
            found["rows"] = [[at, self.rows[at]] for at, when in enumerate(self.row_versions) if when > version]
            if self.columns_version > version:
                found["columns"] = self.columns
            if self._best.version > version:
                found["best"] = json.loads(self._best.text)
            return found

    def _state(self) -> tuple[int, str]:
        state = self.reader.state()
        self.is_running = state == "running"
        return self.reader.snapshot().seq, state

    def _num_ended(self) -> int:
        return sum(row.is_ended for row in self.reader.trials())

    def _update_table(self) -> str:
        columns, rows = trial_table(self.subject)
        is_same = columns == self.columns
        changed = [at for at, row in enumerate(rows) if not is_same or at >= len(self.rows) or row != self.rows[at]]
        if changed or not is_same:
            self.version += 1
            self.row_versions += [0] * (len(rows) - len(self.row_versions))
            for at in changed:
                self.row_versions[at] = self.version
            if not is_same:
                self.columns_version = self.version
        self.columns, self.rows = columns, rows
        return ""

    def _best_text(self) -> str:
        """Return by what trials are ordered, and which are the best."""
        subject = self.subject
        metric, mode = next(iter(subject.objectives), (subject.metric, subject.mode))
        best = subject.best()
        rows = [row for row, _ in subject.front()] if best is None else [best.row]
        return json.dumps({"metric": metric or "", "mode": mode or "", "winners": [row.number for row in rows]})

    def _update_suited(self) -> str:
        """Make pieces of the figures that suit it now, and of what each can be drawn with instead."""
        self.order = self._plots.suited()
        goals = [name for name, mode in self.subject.objectives if mode != "obs"] or [self.subject.metric or ""]
        others = list(dict.fromkeys([*goals, *self.reader.metric_names()]))[:_MOST_METRICS]
        for name in self.order:
            draw = getattr(self._plots, name)
            self.figures.setdefault(name, Piece(partial(_drawn, draw)))
            argument, axes = _AXES.get(name, ("", {"": ""}))
            metrics = others if name == "curves" else goals
            if not goals[0] or name in ("pareto", "population", "timeline") or len(metrics) * len(axes) < 2:
                continue
            self.choices[name] = {"metrics": metrics, "axes": list(axes.items())}
            for metric, axis in [(metric, axis) for metric in metrics for axis in axes][1:]:
                other = partial(draw, metric=metric, **({argument: axis} if argument else {}))
                self.figures.setdefault(f"{name}\n{metric}\n{axis}", Piece(partial(_drawn, other)))
        if confirmed := confirmation_of(self.reader):
            self.order.append("confirmation")
            self.figures["confirmation"] = Piece(partial(_drawn, confirmed.figure))
        return json.dumps([self.order, self.choices])


class ComparisonModel(PageModel):
    """What several experiments have in common and what not; shown beside their own pages."""

    titles = COMPARISON_TITLES

    def __init__(self, models: Sequence[ExperimentModel]) -> None:
        super().__init__("compared")
        self._models = models
        subjects = {model.name: model.subject for model in models}
        self.parts = {part: Piece(partial(make, subjects)) for part, make in COMPARISON_PARTS.items()}
        self._others = list(self.parts.values())
        goals = {(one.metric, one.mode, bool(one.objectives)) for one in subjects.values()}
        (metric, mode, has_several), *others = goals
        if metric and mode and not has_several and not others:
            readers = {model.name: model.reader for model in models}
            draws = {f"best over {over}": partial(draw_best_so_far, over=over) for over in ("trials", "time")}
            for name, draw in (draws | {"values": draw_values}).items():
                self.figures[name] = Piece(partial(_drawn, partial(draw, readers, metric, mode)))
            self.order = list(self.figures)

    @property
    def title(self) -> str:
        """What a browser's tab says."""
        return ", ".join(model.name for model in self._models)

    def _state(self) -> list[Any]:
        states = [model._state() for model in self._models]
        self.is_running = any(model.is_running for model in self._models)
        return states

    def _num_ended(self) -> int:
        return sum(model._num_ended() for model in self._models)


def models_of(subjects: Sequence[Subject]) -> list[PageModel]:
    """Return the parts of the page of experiments: of several also what compares them, first."""
    names = [subject.reader.name for subject in subjects]
    models = [
        ExperimentModel(subject, name if names.count(name) == 1 else str(subject.reader.root))
        for subject, name in zip(subjects, names, strict=True)
    ]
    return [ComparisonModel(models), *models] if len(models) > 1 else [*models]


def _drawn(draw: Callable[[], Any]) -> str:
    try:
        text: str = draw().to_json()
    except ExperimentError:
        raise
    except SweepError:  # there is nothing of the kind to show yet
        return "null"
    return text
