"""Show how a sweep is doing: a live block on a terminal or in a notebook, single lines everywhere else."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from sweep.callbacks.base import Callback
from sweep.core.results import TrialResult, flatten, own_metrics
from sweep.core.trial import Trial
from sweep.display.button import StopButton, stop_button
from sweep.display.curves import LiveCurves, draw_curves
from sweep.display.ending import Ending
from sweep.display.formats import clean, duration, pairs, text
from sweep.display.renderer import (
    STOP_HINT,
    About,
    Line,
    change_line,
    draw_block,
    draw_end,
    draw_trials,
    opening_line,
    status_line,
    stopping_lines,
)
from sweep.display.screens import Lines, Notebook, Screen, screen_of, style_of
from sweep.display.state import ViewState

_NOTEBOOK_HINT = "■ Interrupt the kernel once: stop, to be resumed   twice: kill"
_HEARTBEAT_S = 30.0  # between two status lines where there is no terminal
_STOPPING_S = 10.0  # the same while the sweep is being stopped
_CLOCK_S = 1.0  # a frame at least that often while something runs, so that clocks go on
_MAX_MESSAGES = 1000
_MAX_REPORTS = 20_000  # between two frames, for the curves
_NUM_ENDED, _NUM_AT_END = 8, 20  # rows of trials that have ended, in a notebook


class Progress(Callback):
    """Show the sweep while it runs and what came of it at the end.

    On a terminal a block is redrawn in place, in a notebook likewise as html; the last frame stays and ends with the
    best config as YAML, the failures by message and how to resume. Elsewhere one line is written per change of a
    trial's state and one status line each 30 s. Nothing that goes wrong with the output ends a sweep: when the reader
    of a pipe is gone, the display falls silent.

    `on_step` is called on the driver's thread and only notes what changed; counting and drawing happen on a thread of
    the display, at most four times a second, once in a notebook. A trial that comes and goes between two frames is
    counted, and shown as one line.

    Args:
        verbose: 0: nothing at all; 1: block or lines; 2: also a line per result.
        file: where to write; standard output as it is at `setup` when None.
        style: `terminal`, `notebook` or `lines`; None: found out at `setup`.
        clock: seconds, for how time passes between two facts.
        has_thread: whether to draw on a thread of its own; False: only when `refresh` is called, and at the end.
        hint: what the block says last, of Ctrl-C; empty: how it stops the sweep.
        table: lines to show in place of the usual table; where there is no terminal they are written at each `refresh`,
            and once more at the end.
    """

    shows_ending = True
    says_how_to_resume = True

    def __init__(
        self,
        verbose: int = 1,
        *,
        file: TextIO | None = None,
        style: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        has_thread: bool = True,
        hint: str = "",
        table: Callable[[ViewState], Sequence[str]] | None = None,
    ) -> None:
        self.verbose = verbose
        self.style = style
        self._file = file
        self._clock = clock
        self._has_thread = has_thread
        self._draws_at_steps = False
        self._hint = hint
        self._table = table
        self._lock = threading.Lock()
        self._inbox: dict[str, tuple[float, float, Trial, int]] = {}
        self._messages: deque[tuple[int, Callable[[], str]]] = deque(maxlen=_MAX_MESSAGES)
        self._order = itertools.count()  # of what is written as lines
        self._shows_results = verbose > 1 and table is None  # a table of the user's own says what they want to see
        self._results: dict[str, TrialResult | None] = {}  # the last ones that were shown
        self._reports: deque[tuple[int, Any, Any]] | None = None  # trial, step and value of each, for the curves
        self._curves = LiveCurves()
        self._restored: list[Trial] | None = None
        self._is_first_step = True
        self._now = 0.0
        self._stepped_at = self._drawn_at = self._beat_at = clock()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._screen: Screen | None = None
        self._view: ViewState | None = None
        self._about = About()
        self._ending: Ending | None = None
        self._button: StopButton | None = None
        self._times = 0  # that Ctrl-C was pressed, as far as was shown

    @property
    def is_redrawn(self) -> bool:
        """Whether what is shown is redrawn in place."""
        return self._screen is not None and self._screen.is_block

    # --- hooks ---

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Begin to show; `info` may hold name, searcher, scheduler, seed, nodes, max_iterations, can_stop_early and
        resume_command."""
        if self.verbose <= 0:
            return
        path = os.path.relpath(experiment_dir)
        self._about = About(
            clean(info.get("name") or os.path.basename(experiment_dir)),
            clean(experiment_dir if path.startswith("..") else path),
            clean(info.get("searcher") or ""),
            clean(info.get("scheduler") or ""),
            info.get("seed"),
            clean(info.get("resume_command") or ""),
        )
        self._ending = info.get("ending")
        self._view = ViewState(
            plan,
            num_trials,
            info.get("nodes") or (),
            info.get("objectives") or (),
            max_iterations=info.get("max_iterations"),
            can_stop_early=bool(info.get("can_stop_early")),
            num_repeats=info.get("num_repeats", 1),
        )
        self._beat_at = self._drawn_at = self._clock()
        if "trials" in info:  # of earlier runs of the driver
            self._restored = list(info["trials"])
            self._results |= {trial.id: trial.last_result for trial in self._restored if self._shows_results}
            self._is_first_step = False
        if self._file is None:
            self._file = sys.stdout
        self.style = self.style or style_of(self._file)
        if self.style == "notebook":
            self._button = stop_button(self._ending)
        if self.style == "notebook" and plan.metric:
            self._reports = deque(maxlen=_MAX_REPORTS)
        self._open()
        if self._has_thread:
            self._thread = threading.Thread(target=self._run, name="sweep-progress", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no process or thread is free: it is drawn when something happens
                self._thread, self._draws_at_steps = None, True
        atexit.register(self.leave)

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Note what changed; called on the driver's thread."""
        if self._view is None:
            return
        with self._lock:
            if self._is_first_step:
                self._is_first_step = False
                # Everything that was there before this run: looked at once.
                news = set(changed)
                self._restored = [trial for trial_id, trial in trials.items() if trial_id not in news]
                self._results |= {trial.id: trial.last_result for trial in self._restored if self._shows_results}
            inbox = self._inbox
            for trial_id in changed:
                trial = trials.get(trial_id)
                if trial is not None:
                    if self._shows_results and trial.last_result is not self._results.get(trial_id):
                        self._results[trial_id] = trial.last_result
                        self._messages.append((next(self._order), partial(_report_line, now, trial)))
                    known = inbox.get(trial_id)
                    first, at = (now, -1) if known is None else (known[0], known[3])
                    is_new = known is None or known[2].status is not trial.status
                    inbox[trial_id] = (first, now, trial, next(self._order) if is_new else at)
            self._now = now
            self._stepped_at = self._clock()
        if changed and not self._wake.is_set():
            self._wake.set()
        if self._draws_at_steps and self._clock() - self._drawn_at >= _CLOCK_S:
            self.refresh()

    def on_trial_result(self, trial: Trial, result: TrialResult) -> None:
        """Note it where curves are drawn."""
        if self._reports is not None:
            metric = self._view.plan.metric if self._view is not None else ""
            self._reports.append((trial.number, result.get("training_iteration"), result.get(metric)))

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """Show the last frame and stop."""
        view = self._view
        if view is None:
            return
        self._stop_thread()
        self.refresh(is_last=True)
        unfinished = sum(not trial.is_ended for trial in trials)

        def draw(width: int) -> list[Line]:
            ending, now = self._ending, self._now
            last = draw_end(view, self._about, width=width, now=now, unfinished=unfinished, ending=ending)
            if self._table is not None:
                return [*([(line, "")] for line in (self._table(view) if self.is_redrawn else ())), *last]
            is_page = isinstance(self._screen, Notebook)
            return [*last, [], *draw_trials(view, width, _NUM_AT_END, now, num_ended=_NUM_AT_END)] if is_page else last

        def end(screen: Screen) -> None:
            if isinstance(screen, Lines):
                screen.show([status_line(view, self._now)])
            screen.end(draw)

        self._write(end)
        self.leave()
        self._view = None

    def notice(self, text: str) -> None:
        """Show a line that concerns the whole sweep, above the block or among the lines; any thread may call it."""
        if self.verbose <= 0:
            return
        if self._view is not None:
            self._say(f"sweep: {clean(text)}")
        else:
            with contextlib.suppress(OSError, ValueError):  # its reader has gone
                print(f"sweep: {clean(text)}", file=sys.stderr, flush=True)

    def leave(self) -> None:
        """Give the terminal back at once, also when the sweep never came to its end."""
        self._stop_thread()
        self._write(lambda screen: screen.close())
        self._screen = None
        atexit.unregister(self.leave)

    # --- drawing ---

    def refresh(self, *, is_last: bool = False) -> None:
        """Count what changed and draw; called by the display's own thread, or directly where it has none."""
        view, screen = self._view, self._screen
        if view is None or screen is None:
            return
        while self._reports:  # before the states: those of whoever has reported are known then
            self._curves.add(*self._reports.popleft())
        with self._lock:
            restored, self._restored = self._restored, None
            inbox, self._inbox = self._inbox, {}
            news = [(order, say()) for order, say in self._messages]
            self._messages.clear()
            now, idle = self._now, max(0.0, self._clock() - self._stepped_at)
        if restored:
            view.restart(restored)
        changes = [(entry[3], view.update(*entry[:3])) for entry in inbox.values()]
        self._drawn_at = self._clock()
        table = None if self._table is None else list(self._table(view))
        if not screen.is_block and table is None:
            news += [(at, change_line(view, self._about, change, now)) for at, change in changes if change is not None]
        lines = [line for _, line in sorted(news) if line]
        if not screen.is_block and table is not None:
            lines += ["", status_line(view, now + idle), *table]
        elif not screen.is_block:
            lines += [] if is_last else self._beat(view, now + idle)
        idle = 0.0 if is_last else idle
        is_page = self.style == "notebook"
        draw = partial(
            draw_block,
            view,
            self._about,
            now=now,
            idle_s=idle,
            own_table=table,
            ending=self._ending,
            stop_hint=self._hint or (_NOTEBOOK_HINT if is_page else STOP_HINT),
            num_ended=_NUM_ENDED if is_page else 0,
        )
        if is_last and isinstance(screen, Notebook):
            screen.note(lines)  # the last frame follows at once
            return
        self._write(lambda screen: screen.show(lines, draw))

    def _below(self) -> str:
        """Return what a notebook shows below the block."""
        view = self._view
        if view is None or self._reports is None:
            return ""
        best = None if view.best is None else view.best.trial.number
        return draw_curves(self._curves, view.states(), best, view.plan.metric, view.plan.mode)

    def _above(self) -> str:
        """Return what a notebook shows above the block."""
        return "" if self._button is None else self._button.html()

    def _beat(self, view: ViewState, now: float) -> list[str]:
        """Return what is said where there is no block: now and then how it is, and at once that it is being stopped."""
        stopping = stopping_lines(view, self._ending)
        times = 0 if self._ending is None else self._ending.times
        if times == self._times and self._drawn_at - self._beat_at < (_STOPPING_S if stopping else _HEARTBEAT_S):
            return []
        self._times, self._beat_at = times, self._drawn_at
        return [f"{duration(now)} {'; '.join(stopping)}"] if stopping else [status_line(view, now)]

    def _say(self, line: str) -> None:
        with self._lock:
            self._messages.append((next(self._order), lambda: line))
        self._wake.set()

    def _open(self) -> None:
        """Take the screen."""
        assert self.style is not None
        assert self._view is not None
        if self._file is None:  # standard output was closed before the process began
            return
        self._screen = screen_of(self.style, self._file, self._below, self._above)
        opening = opening_line(self._view, self._about)
        self._write(lambda screen: screen.show([opening]) if isinstance(screen, Lines) else screen.open())

    def _write(self, use: Callable[[Screen], None]) -> None:
        """Use the screen; when that fails, never write there again."""
        had = self._screen
        if had is None:
            return
        try:
            use(had)
        except (OSError, ValueError):  # a closed pipe, a closed file, a terminal that went away: not the sweep's fault
            self._screen = None
            if isinstance(had, Lines) and self._ending is not None and self._ending.times and sys.stderr is not None:
                # Ctrl-C has ended the reader of the pipe, too; the user is still to be informed.
                self._screen = Lines(sys.stderr)
                with contextlib.suppress(OSError, ValueError):
                    use(self._screen)

    # --- the thread ---

    def _run(self) -> None:
        if self.is_redrawn:
            self.refresh()  # something is there at once
        while not self._over.is_set():
            self._wake.wait(_CLOCK_S)
            frame_s = _CLOCK_S if self._screen is None else self._screen.frame_s
            self._over.wait(max(0.0, frame_s - (self._clock() - self._drawn_at)))
            if self._over.is_set():
                return
            self._wake.clear()
            self.refresh()

    def _stop_thread(self) -> None:
        self._over.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
        self._thread = None


def _report_line(now: float, trial: Trial) -> str:
    """Return the line of a trial's last report."""
    result = trial.last_result or TrialResult({})
    step = text(result.get("training_iteration"))
    return f"{duration(now)} {trial.number:05d} step {step} {pairs(flatten(own_metrics(result)))}"
