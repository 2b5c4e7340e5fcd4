"""Pages as pieces, each made again when its records have grown, the dearer the more seldom."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sweep.errors import ExperimentError, SweepError
from sweep.figures.comparison import draw_best_so_far, draw_values
from sweep.figures.plots import Plots
from sweep.page.comparison import COMPARISON_PARTS, COMPARISON_TITLES
from sweep.page.parts import PARTS, TITLES
from sweep.page.subject import Subject
from sweep.page.table import TrialTable

_LEAST_S = 1.0  # between two makings of one piece
_SHARE, _SHARE_AT_REST = 0.05, 0.4  # of one CPU, for each piece, while a sweep runs that needs the machine; else
_MOST_METRICS = 12  # that a figure can be asked for
_MOST_VARIANTS = 10_000_000  # characters of figures with other metrics or axes that a file holds
_AXES = {  # figure -> its argument that names the x axis, and what that may be, each with what people call it
    "history": ("over", {"trials": "trial", "time": "time"}),
    "curves": ("x", {"training_iteration": "step", "time_total_s": "time"}),
}
_OLD_S = 5.0  # a figure that is this much older than what is known says so


@dataclass
class Piece:
    """One piece of a page: its JSON text, the version at which it last changed, when it was made last."""

    make: Callable[[], str]
    text: str = ""
    version: int = 0
    state: Any = None  # of the record when it was made
    as_of: tuple[float, int] = (0.0, 0)  # of that state: when it was read, how many trials had ended
    made_at: float = -math.inf
    cost_s: float = 0.0  # seconds of CPU

    def is_due(self, now: float, share: float) -> bool:
        """Whether it may be made again, if it is to take at most a share of one CPU."""
        return now - self.made_at >= max(_LEAST_S, self.cost_s / share)


class PageModel:
    """Part of a page as data: pieces, made all at once by `refresh`, or by `renew` as the records grow.

    Attributes:
        lock: held while a piece or the table is replaced.
        version: grows with every change of any piece; 0: nothing was made yet.
        parts, figures: name -> piece; the JSON text of a part is its HTML, that of a figure what plotly draws, or null.
        order: names of the figures in the order of the page.
        choices: figure -> metrics and x axes that it can be drawn with.
        variants: the figures that are so drawn, by figure, metric and axis; while a sweep runs only those `wanted`.
        is_running: some sweep that it shows was driven when it was looked at last.
        titles: of the parts that have one, in the order of the page.
    """

    titles: Mapping[str, str] = {}

    def __init__(self, name: str, clock: Callable[[], float], cpu: Callable[[], float]) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.version = 0
        self.is_running = False
        self.order: list[str] = []
        self.parts: dict[str, Piece] = {}
        self.figures: dict[str, Piece] = {}
        self.choices: dict[str, dict[str, Any]] = {}
        self.variants: dict[str, Piece] = {}
        self.wanted: set[str] = set()
        self._clock, self._cpu = clock, cpu
        self._quick: list[Piece] = []  # what is seen first: how far it is, the table
        self._others: list[Piece] = []
        self._looked = Piece(str)  # at the record and what is quick, as if that were one piece
        self._old = Piece(str, "{}")
        self._state_now: Any = None
        self._as_of = (0.0, 0)

    @property
    def title(self) -> str:
        """What a browser's tab says."""
        return self.name

    def refresh(self, *, with_figures: bool = True) -> None:
        """Make everything that is out of date.

        Raises:
            ExperimentError: a record is gone or damaged.
        """
        self._look()
        for piece in self._others:
            self._refresh(piece)
        for name in self.order if with_figures else ():
            self._refresh(self.figures[name])
        size = 0
        for key, piece in self.variants.items() if with_figures else ():
            if size + len(self.figures[key.partition("\n")[0]].text) < _MOST_VARIANTS:  # it will be as long as that
                self._refresh(piece)
            size += len(piece.text)
        made = {tuple(key.split("\n")[:2]) for key, piece in self.variants.items() if piece.text}
        for name, choice in self.choices.items() if with_figures else ():  # only of what is there
            choice["metrics"] = [one for at, one in enumerate(choice["metrics"]) if not at or (name, one) in made]

    @property
    def share(self) -> float:
        """How much of one CPU a piece may take."""
        return _SHARE if self.is_running else _SHARE_AT_REST

    def _look(self) -> None:
        with self.lock:
            began, self._looked.made_at = self._cpu(), self._clock()
            self._state_now = self._state()
            self._as_of = time.time(), self._num_ended()
            for piece in (*self.figures.values(), *self.variants.values()):
                if piece.state == self._state_now:
                    piece.as_of = self._as_of
            for piece in self._quick:
                self._refresh(piece)
            self._mark_old()
            self._looked.cost_s = self._cpu() - began

    def renew(self) -> Iterator[None]:
        """Make what is out of date and due, what is seen first before the rest, and again after whatever is dear; stop
        after each piece for a moment.

        No piece takes more than its share of one CPU, but its first making, which imports what it needs.

        Raises:
            ExperimentError: a record is gone or damaged.
        """
        yield from self._look_if_due()
        for group in ("others", "figures"):  # the others say which figures there are
            pieces = self._others if group == "others" else list(self._shown().values())
            for piece in sorted(pieces, key=lambda piece: piece.made_at):
                if piece.state != self._state_now and piece.is_due(self._clock(), self.share):
                    self._refresh(piece)
                    yield
                    yield from self._look_if_due()
        self._mark_old()

    def _look_if_due(self) -> Iterator[None]:
        if self._looked.is_due(self._clock(), self.share):
            self._look()
            yield

    def _shown(self) -> dict[str, Piece]:
        wanted = {key: self.variants[key] for key in self.wanted & self.variants.keys()}
        return {name: self.figures[name] for name in self.order} | wanted

    def news(self, version: int) -> dict[str, Any]:
        """Return what changed after a version, as `page.js` takes it; texts of parts and figures are JSON already."""
        found: dict[str, Any] = {
            "parts": {name: piece.text for name, piece in self.parts.items() if piece.version > version},
            "figures": {name: piece.text for name, piece in self.figures.items() if piece.version > version},
            "variants": {key: piece.text for key, piece in self.variants.items() if piece.version > version},
        }
        if self._old.version > version:
            found["old"] = json.loads(self._old.text)
        return found

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
        piece.state, piece.as_of = state, as_of
        self._set(piece, text)

    def _set(self, piece: Piece, text: str) -> None:
        with self.lock:
            if text != piece.text:
                piece.text = text
                self.version += 1
                piece.version = self.version

    def _mark_old(self) -> None:
        """Say of figures that are older than the rest as of when they are, and how many trials had ended."""
        latest = self._as_of[0] - _OLD_S
        old = {name: piece.as_of for name, piece in self._shown().items() if piece.text and piece.as_of[0] < latest}
        self._set(self._old, json.dumps(old))


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
        self._best = Piece(self._best_text)
        self._quick = [Piece(self._update_table), self._best, self.parts["head"]]
        self._others = [Piece(self._update_suited), *(self.parts[part] for part in TITLES)]
        self._plots = Plots(self.reader, subject.metric, subject.mode)

    @property
    def title(self) -> str:
        """What a browser's tab says: how far it is, and the name."""
        planned = self.reader.meta.get("num_trials")
        return f"{self._num_ended()}/{planned if isinstance(planned, int) else len(self.reader.trials())} {self.name}"

    def news(self, version: int) -> dict[str, Any]:
        """Return what changed after a version; with the rows as [index, cells] pairs."""
        found = super().news(version)
        found["rows"] = [[at, self.table.rows[at]] for at, when in enumerate(self.row_versions) if when > version]
        if self.columns_version > version:
            found["columns"] = self.table.columns
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

    def _best_text(self) -> str:
        """Return by what trials are ordered, and which are the best."""
        subject = self.subject
        metric, mode = next(iter(subject.objectives), (subject.metric, subject.mode))
        best = subject.best()
        rows = [row for row, _ in subject.front()] if best is None else [best.row]
        return json.dumps({"metric": metric or "", "mode": mode or "", "winners": [row.number for row in rows]})

    def _update_suited(self) -> str:
        self.order = self._plots.suited()
        for name in self.order:
            if name not in self.figures:
                self.figures[name] = Piece(partial(_drawn, getattr(self._plots, name)))
        self._update_variants()
        return json.dumps([self.order, self.choices])

    def _update_variants(self) -> None:
        subject = self.subject
        goals = [name for name, mode in subject.objectives if mode != "obs"] or [subject.metric or ""]
        others = list(dict.fromkeys([*goals, *self.reader.metric_names()]))[:_MOST_METRICS]
        for name in self.order:
            argument, axes = _AXES.get(name, ("", {"": ""}))
            metrics = others if name == "curves" else goals
            if not goals[0] or name in ("pareto", "population", "timeline") or len(metrics) * len(axes) < 2:
                continue
            self.choices[name] = {"metrics": metrics, "axes": list(axes.items())}
            for metric, axis in [(metric, axis) for metric in metrics for axis in axes][1:]:
                draw = partial(getattr(self._plots, name), metric=metric, **({argument: axis} if argument else {}))
                self.variants.setdefault("\n".join((name, metric, axis)), Piece(partial(_drawn, draw)))


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
