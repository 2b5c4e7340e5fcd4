"""Show how a sweep is doing: a live block on a terminal or in a notebook, single lines everywhere else."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TextIO

from rich.text import Text

from sweep.callbacks.base import Callback
from sweep.core.results import flatten, own_metrics
from sweep.core.trial import Trial
from sweep.display.button import stop_button
from sweep.display.curves import LiveCurves
from sweep.display.ending import Ending
from sweep.display.formats import clean, duration, pairs, text
from sweep.display.renderer import (
    STOP_HINT,
    About,
    change_line,
    draw_block,
    draw_end,
    draw_trials,
    opening_line,
    status_line,
    stopping_lines,
)
from sweep.display.screens import Lines, Notebook, screen_of, style_of
from sweep.display.state import ViewState
from sweep.display.svg import learning_curves

_NOTEBOOK_HINT = "■ Interrupt the kernel once: stop, to be resumed   twice: kill"
_ABOUT = ("searcher", "scheduler", "seed", "resume_command")
_OF_VIEW = ("nodes", "objectives", "max_iterations", "num_repeats")
_HEARTBEAT_S = 30.0  # between two status lines where there is no terminal
_STOPPING_S = 10.0  # the same while the sweep is being stopped
_CLOCK_S = 1.0  # a frame at least that often while something runs, so that clocks go on
_REST = 10  # times what the last frame took: 10% of one CPU at most
_MAX_NEWS = 1000
_NUM_AT_END = 20  # trials in the last frame of a notebook


class Progress(Callback):
    """Show the sweep while it runs and what came of it at the end.

    On a terminal a block is redrawn in place, in a notebook likewise as html. Elsewhere one line is written per change
    of a trial's state and one status line each 30 s. Nothing that goes wrong with the output ends a sweep: when the
    reader of a pipe is gone, the display falls silent.

    `on_step` is called on the driver's thread and only counts; drawing happens on a thread of the display, at most four
    times a second, once in a notebook. A trial that comes and goes between two frames is shown as one line.

    Args:
        verbose: 0: nothing at all; 1: block or lines; 2: also a line per result.
        file: where to write; standard output as it is at `setup` when None.
        style: `terminal`, `notebook` or `lines`; None: found out at `setup`.
        has_thread: whether to draw on a thread of its own; False: only when `refresh` is called, and at the end.
        hint: what the block says last, of Ctrl-C; empty: how it stops the sweep.
        table: lines to show in place of the usual table; without a block they are written at each `refresh`.
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
        self._hint = hint
        self._table = table
        self._lock = threading.Lock()  # of what is counted; nothing is written under it
        self._news: dict[Hashable, str] = {}  # to be written as lines, in order; the last change of each trial
        self._curves: LiveCurves | None = None
        self._now = 0.0
        self._stepped_at = self._drawn_at = self._beat_at = clock()
        self._is_stale = True
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._screen: Lines | None = None
        self._view: ViewState | None = None
        self._about = About()
        self._ending: Ending | None = None
        self._button: Callable[[], str] | None = None
        self._times = 0  # that Ctrl-C was pressed, as far as was shown

    @property
    def is_redrawn(self) -> bool:
        """Whether what is shown is redrawn in place."""
        return self._screen is not None and self._screen.is_block

    # --- hooks ---

    def replan(self, plan: Any) -> None:
        """Go on with another plan."""
        if self._view is not None:
            self._view.replan(plan, plan.num_trials)

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Begin to show; `info` may hold name, searcher, scheduler, seed, nodes, max_iterations and resume_command."""
        if self.verbose <= 0:
            return
        path = os.path.relpath(experiment_dir)
        self._about = About(
            clean(info.get("name") or os.path.basename(experiment_dir)),
            clean(experiment_dir if path.startswith("..") else path),
            *(clean("" if info.get(key) is None else info[key]) for key in _ABOUT),
        )
        self._ending = info.get("ending")
        self._view = ViewState(plan, num_trials, **{name: info[name] for name in _OF_VIEW if info.get(name)})
        self._beat_at = self._drawn_at = self._clock()
        self._file = self._file or sys.stdout
        if self._file is not None:  # standard output may have been closed before the process began
            self.style = self.style or style_of(self._file)
            with contextlib.suppress(OSError, ValueError):
                self._screen = screen_of(self.style, self._file)
        if isinstance(self._screen, Notebook):
            self._button = stop_button(self._ending)
            self._curves = LiveCurves() if plan.metric else None
        if not self.is_redrawn:
            opening = opening_line(self._view, self._about)
            self._write(lambda screen: screen.show([opening], []))
        if self._has_thread:
            self._thread = threading.Thread(target=self._run, name="sweep-progress", daemon=True)
            with contextlib.suppress(RuntimeError):  # no process or thread is free: the last frame is all that is shown
                self._thread.start()
        atexit.register(self.leave)

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Count what changed; called on the driver's thread."""
        view = self._view
        if view is None:
            return
        with self._lock:
            if not view.trials and len(trials) > len(changed):  # those of earlier runs of the driver
                news = set(changed)
                view.restart(trial for trial_id, trial in trials.items() if trial_id not in news)
            for trial_id in changed:
                if trial_id in trials:
                    self._take(view, trials[trial_id], now)
            self._now = now
            self._stepped_at = self._clock()
            self._is_stale = self._is_stale or bool(changed)

    def _take(self, view: ViewState, trial: Trial, now: float) -> None:
        known = view.trials.get(trial.number)
        has_changed, result = view.update(now, trial), trial.last_result
        if result is not None and (known is None or result is not known.last_result):
            step = result.get("training_iteration")
            if self._curves is not None:
                self._curves.add(trial.number, step, result.get(view.plan.metric))
            if self.verbose > 1 and self._table is None:  # a table of the user's own says what they want to see
                values = pairs(flatten(own_metrics(result)))
                self._add(object(), f"{duration(now)} {trial.number:05d} step {text(step)} {values}")
        if has_changed and self._table is None and not self.is_redrawn:
            self._news.pop(trial.id, None)
            self._add(trial.id, change_line(view, self._about, trial, now))

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """Show the last frame and stop."""
        view, screen = self._view, self._screen
        self._stop_thread()
        if view is not None and screen is not None:
            unfinished = sum(not trial.is_ended for trial in trials)
            with self._lock:
                lines = self._lines_of_news()
                lines += [] if screen.is_block else [status_line(view, self._now)]
                lines += [] if self._table is None else self._table(view)
                block = draw_end(view, self._about, now=self._now, unfinished=unfinished, ending=self._ending)
                if isinstance(screen, Notebook) and self._table is None:
                    block += [Text(), *draw_trials(view, screen.size()[0], _NUM_AT_END, self._now)]
                self._decorate(screen, view, is_last=True)
            self._write(lambda screen: screen.end(lines, block))
        self.leave()
        self._view = None

    def notice(self, text: str) -> None:
        """Show a line that concerns the whole sweep, above the block or among the lines; any thread may call it."""
        if self.verbose <= 0:
            return
        if self._view is not None:
            with self._lock:
                self._add(object(), f"sweep: {clean(text)}")
                self._is_stale = True
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

    def refresh(self) -> None:
        """Draw; called by the display's own thread, or directly where it has none."""
        view, screen = self._view, self._screen
        if view is None or screen is None:
            return
        width, height = screen.size()
        with self._lock:
            self._drawn_at, self._is_stale = self._clock(), False
            now = self._now + max(0.0, self._drawn_at - self._stepped_at)
            lines = self._lines_of_news()
            table = None if self._table is None else list(self._table(view))
            block = []
            if screen.is_block:
                hint = self._hint or (_NOTEBOOK_HINT if isinstance(screen, Notebook) else STOP_HINT)
                more: Any = {"own_table": table, "ending": self._ending, "stop_hint": hint}
                block = draw_block(view, self._about, width, height, now, **more)
                self._decorate(screen, view, is_last=False)
            elif table is not None:
                lines += ["", status_line(view, now), *table]
            else:
                lines += self._beat(view, now)
        self._write(lambda screen: screen.show(lines, block))

    def _lines_of_news(self) -> list[str]:
        news, self._news = self._news, {}
        return [*news.values()]

    def _add(self, key: Hashable, news: str) -> None:
        self._news[key] = news
        if len(self._news) > _MAX_NEWS:
            del self._news[next(iter(self._news))]

    def _decorate(self, screen: Lines, view: ViewState, *, is_last: bool) -> None:
        """Give a notebook what stands above the block, which is the button, and below it, which are curves."""
        if isinstance(screen, Notebook):
            screen.above = "" if self._button is None or is_last else self._button()
            curves = () if self._curves is None else self._curves.shown(view)
            screen.below = learning_curves(curves, view.plan.metric)

    def _beat(self, view: ViewState, now: float) -> list[str]:
        """Return what is said where there is no block: now and then how it is, and at once that it is being stopped."""
        stopping = stopping_lines(view, self._ending)
        times = 0 if self._ending is None else self._ending.times
        if times == self._times and self._drawn_at - self._beat_at < (_STOPPING_S if stopping else _HEARTBEAT_S):
            return []
        self._times, self._beat_at = times, self._drawn_at
        return [f"{duration(now)} {'; '.join(stopping)}"] if stopping else [status_line(view, now)]

    def _write(self, use: Callable[[Lines], None]) -> None:
        """Use the screen; when that fails, never write there again."""
        had = self._screen
        if had is None:
            return
        try:
            use(had)
        except (OSError, ValueError):  # a closed pipe, a closed file, a terminal that went away: not the sweep's fault
            self._screen = None
            if not had.is_block and self._ending is not None and self._ending.times and sys.stderr is not None:
                # Ctrl-C has ended the reader of the pipe, too; the user is still to be informed.
                self._screen = Lines(sys.stderr)
                with contextlib.suppress(OSError, ValueError):
                    use(self._screen)

    # --- the thread ---

    def _run(self) -> None:
        while True:
            began = time.thread_time()
            if self._is_stale or self._clock() - self._drawn_at >= _CLOCK_S:
                self.refresh()  # at once for the first time, so that something is there
            rest = _CLOCK_S if self._screen is None else self._screen.frame_s
            if self._over.wait(max(rest, _REST * (time.thread_time() - began))):
                return

    def _stop_thread(self) -> None:
        self._over.set()
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
        self._thread = None
