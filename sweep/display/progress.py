"""Show how a sweep is doing: a live block on a terminal or in a notebook, single lines everywhere else."""

from __future__ import annotations

import atexit
import contextlib
import html
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO, cast

from sweep.callbacks.base import Callback
from sweep.core.results import AUTO_FILLED, Result, flatten
from sweep.core.trial import Trial
from sweep.display.ending import Ending
from sweep.display.formats import clean, duration, pairs, text
from sweep.display.renderer import About, Line, draw_block, draw_end, status_line, stopping_lines
from sweep.display.state import Change, ViewState, varying_pairs

__all__ = ["Progress"]

_FRAME_S = 0.25  # between two frames: at most 4 a second
_HEARTBEAT_S = 30.0  # between two status lines where there is no terminal
_STOPPING_S = 10.0  # the same while the sweep is being stopped
_CLOCK_S = 1.0  # a frame at least that often while something runs, so that clocks go on
_MAX_MESSAGES = 1000

_WORDS = {
    "running": "RUNNING",
    "paused": "PAUSED",
    "done": "TERMINATED",
    "stopped": "STOPPED EARLY",
    "failed": "ERROR",
    "retry": "PENDING",
}
_ASCII = str.maketrans({"█": "#", "░": "-", "·": "|", "…": "~", "±": "~"} | dict.fromkeys("▁▂▃▄▅▆▇", "|"))


class Progress(Callback):
    """Show the sweep while it runs and what came of it at the end.

    On a terminal a block is redrawn in place, in a notebook likewise as html; the last frame stays and ends with the
    best config as YAML, the failures by message and how to resume. Elsewhere one line is written per change of a
    trial's state and one status line each 30 s. Nothing that goes wrong with the output ends a sweep: when the reader
    of a pipe is gone, the display falls silent.

    `on_step` is called on the driver's thread and only notes what changed; counting and drawing happen on a thread of
    the display, at most four times a second. A trial that comes and goes between two frames is counted, and shown as
    one line.

    Args:
        verbose: 0: nothing at all; 1: block or lines; 2: also a line per result.
        file: where to write; standard output as it is at `setup` when None.
        style: `terminal`, `notebook` or `lines`; None: found out at `setup`.
        clock: seconds, for how time passes between two facts.
        has_thread: whether to draw on a thread of its own; False: only when `refresh` is called, and at the end.
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
        table: Callable[[ViewState], Sequence[str]] | None = None,
    ) -> None:
        self.verbose = verbose
        self._file = file
        self._style = style
        self._clock = clock
        self._has_thread = has_thread
        self._draws_at_steps = False
        self._table = table
        self._lock = threading.Lock()
        self._inbox: dict[str, tuple[float, float, Trial]] = {}
        self._messages: deque[str] = deque(maxlen=_MAX_MESSAGES)
        self._restored: list[Trial] | None = None
        self._is_first_step = True
        self._is_open = False
        self._now = 0.0
        self._stepped_at = clock()
        self._drawn_at = clock()
        self._beat_at = clock()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._screen: _Screen | None = None
        self._view: ViewState | None = None
        self._about = About()
        self._ending: Ending | None = None
        self._times = 0  # that somebody pressed Ctrl-C, as far as was shown

    @property
    def is_redrawn(self) -> bool:
        """Whether what is shown is redrawn in place."""
        return self._screen is not None and self._screen.is_block

    # --- hooks ---

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Begin to show; `info` may hold name, searcher, scheduler, seed, nodes and resume_command."""
        if self.verbose <= 0:
            return
        self._about = About(
            clean(info.get("name") or os.path.basename(experiment_dir)),
            _short_path(experiment_dir),
            clean(info.get("searcher") or ""),
            clean(info.get("scheduler") or ""),
            info.get("seed"),
            clean(info.get("resume_command") or ""),
        )
        self._ending = info.get("ending")
        self._view = ViewState(plan, num_trials, info.get("nodes") or (), info.get("objectives") or ())
        self._beat_at = self._drawn_at = self._clock()
        if "trials" in info:  # of earlier runs of the driver
            self._restored = list(info["trials"])
            self._is_first_step = False
        if self._file is None:
            self._file = sys.stdout
        self._style = self._style or _style_of(self._file)
        if not self._has_thread:
            self._guarded(self._open)
        else:
            self._thread = threading.Thread(target=self._run, name="sweep-progress", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no process or thread is free: it is drawn when something happens
                self._thread, self._draws_at_steps = None, True
                self._guarded(self._open)
        atexit.register(self._close)

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
            inbox = self._inbox
            for trial_id in changed:
                trial = trials.get(trial_id)
                if trial is not None:
                    known = inbox.get(trial_id)
                    inbox[trial_id] = (now if known is None else known[0], now, trial)
            self._now = now
            self._stepped_at = self._clock()
        if changed and not self._wake.is_set():
            self._wake.set()
        if self._draws_at_steps and self._clock() - self._drawn_at >= _CLOCK_S:
            self.refresh()

    def on_trial_result(self, trial: Trial, result: Result) -> None:
        """With verbose=2, show the report."""
        if self._view is None or self.verbose < 2:
            return
        shown = {key: value for key, value in flatten(result).items() if key not in AUTO_FILLED}
        line = f"{duration(self._now)} {trial.number:05d} step {text(result.get('training_iteration'))} {pairs(shown)}"
        with self._lock:
            self._messages.append(line)
        self._wake.set()

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """Show the last frame and stop."""
        view = self._view
        if view is None:
            return
        self._stop_thread()
        if not self._is_open:  # it ended before the first frame
            self._guarded(self._open)
        self.refresh(is_last=True)
        unfinished = sum(not trial.is_ended for trial in trials)
        self._guarded(lambda: self._end(view, unfinished))
        self._close()
        self._view = None

    def notice(self, text: str) -> None:
        """Show a line that concerns the whole sweep, above the block or among the lines; any thread may call it."""
        if self.verbose <= 0:
            return
        if self._view is None:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                print(f"sweep: {clean(text)}", file=sys.stderr, flush=True)
            return
        with self._lock:
            self._messages.append(f"sweep: {clean(text)}")
        self._wake.set()

    # --- drawing ---

    def refresh(self, *, is_last: bool = False) -> None:
        """Count what changed and draw; called by the display's own thread, or by who has none."""
        view, screen = self._view, self._screen
        if view is None or screen is None:
            return
        with self._lock:
            restored, self._restored = self._restored, None
            inbox, self._inbox = self._inbox, {}
            messages = list(self._messages)
            self._messages.clear()
            now, idle = self._now, max(0.0, self._clock() - self._stepped_at)
        if restored:
            view.restart(restored)
        changes = [view.update(*entry) for entry in inbox.values()]
        self._drawn_at = self._clock()
        lines = messages
        table = None if self._table is None else list(self._table(view))
        if not screen.is_block and table is not None:
            lines = [*messages, "", status_line(view, now + idle), *table]
        elif not screen.is_block:
            lines = [self._change_line(view, change, now) for change in changes if change and change.kind in _WORDS]
            lines += messages
            lines += [] if is_last else self._beat(view, now + idle)
        frame = _Frame(view, self._about, now, 0.0 if is_last else idle, table, self._ending)

        def draw() -> None:
            if self._screen is not None:
                self._screen.show(lines, frame)

        self._guarded(draw)

    def _beat(self, view: ViewState, now: float) -> list[str]:
        """Return what is said where there is no block: now and then how it is, and at once that it is being stopped."""
        stopping = [] if self._ending is None else stopping_lines(view, self._ending)
        times = 0 if self._ending is None else self._ending.times
        if times == self._times and self._drawn_at - self._beat_at < (_STOPPING_S if stopping else _HEARTBEAT_S):
            return []
        self._times, self._beat_at = times, self._drawn_at
        return [f"{duration(now)} {'; '.join(stopping)}"] if stopping else [status_line(view, now)]

    def leave(self) -> None:
        """Give the terminal back at once."""
        self._close()

    def _change_line(self, view: ViewState, change: Change, now: float) -> str:
        trial, kind = change.trial, change.kind
        line = f"{duration(now)} {trial.number:05d} {_WORDS[kind]}"
        if kind == "running":
            return f"{line} {pairs(varying_pairs(view, trial.config))}".rstrip()
        if kind in ("failed", "retry", "paused"):
            hint = f"   sweep logs {self._about.name} {trial.number:05d}" if kind == "failed" else ""
            return f"{line} {clean(trial.reason)}{hint}".rstrip()
        last = trial.last_result
        if last is not None:
            metric = view.plan.metric
            value = f" {clean(metric)}={text(last.get(metric))}" if metric else ""
            line += f"{value} at step {text(last.get('training_iteration'))}"
        return (
            line
            + (f" in {duration(change.ran_s)}" if change.ran_s else "")
            + (f"   {clean(trial.reason)}" if trial.reason else "")
        )

    def _open(self) -> None:
        """Take the screen; on the display's thread, because importing rich takes longer than starting a trial."""
        file = sys.stdout if self._file is None else self._file
        self._is_open = True
        if self._style == "terminal":
            self._screen = _Terminal(file)
        elif self._style == "notebook":
            self._screen = _Notebook()
        else:
            self._screen = _Lines(file)
        self._screen.open(self._about, self._view)

    def _end(self, view: ViewState, unfinished: int) -> None:
        if self._screen is not None:
            table: list[Line] = [[(line, "")] for line in self._table(view)] if self._table is not None else []
            self._screen.end(
                lambda width: [
                    *(table if self.is_redrawn else []),  # elsewhere the last refresh has written it
                    *draw_end(
                        view, self._about, width=width, now=self._now, unfinished=unfinished, ending=self._ending
                    ),
                ],
                status_line(view, self._now),
            )

    def _guarded(self, draw: Callable[[], None]) -> None:
        """Run something that writes; when that fails, never write there again."""
        try:
            draw()
        except (OSError, ValueError):  # a closed pipe, a closed file, a terminal that went away: not the sweep's fault
            had, self._screen = self._screen, None
            if isinstance(had, _Lines) and self._ending is not None and self._ending.times and sys.stderr is not None:
                # Ctrl-C has ended the reader of the pipe, too; who pressed it still wants to know.
                self._screen = _Lines(sys.stderr)
                with contextlib.suppress(OSError, ValueError):
                    draw()

    # --- the thread ---

    def _run(self) -> None:
        self._guarded(self._open)
        while not self._over.is_set():
            self._wake.wait(_CLOCK_S)
            self._over.wait(max(0.0, _FRAME_S - (self._clock() - self._drawn_at)))
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

    def _close(self) -> None:
        """Give the terminal back, also when the sweep never came to its end."""
        self._stop_thread()
        screen, self._screen = self._screen, None
        if screen is not None:
            self._guarded(screen.close)
        atexit.unregister(self._close)


@dataclass(frozen=True)
class _Frame:
    """What a block is drawn from; `table` takes the place of the usual one."""

    view: ViewState
    about: About
    now: float
    idle_s: float
    table: Sequence[str] | None
    ending: Ending | None

    def block(self, width: int, height: int) -> list[Line]:
        """Return the block within a width and a height."""
        return draw_block(
            self.view,
            self.about,
            width=width,
            height=height,
            now=self.now,
            idle_s=self.idle_s,
            own_table=self.table,
            ending=self.ending,
        )


class _Screen(Protocol):
    """Where the display goes."""

    is_block: bool

    def open(self, about: About, view: ViewState | None) -> None: ...

    def show(self, lines: Sequence[str], frame: _Frame) -> None: ...

    def end(self, draw: Callable[[int], Sequence[Line]], status: str) -> None: ...

    def close(self) -> None: ...


class _Lines:
    """A pipe or a file: plain lines, each written whole."""

    is_block = False

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def _write(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        shown = "".join(f"{line}\n" for line in lines)
        self._file.write(_encodable(shown, self._file))
        self._file.flush()

    def open(self, about: About, view: ViewState | None) -> None:
        total = None if view is None else view.num_trials
        parts = [f"sweep {about.name}:", "trials without limit" if total is None else f"{total} trials,"]
        parts += [f"{word} {value}," for word, value in (("searcher", about.searcher), ("scheduler", about.scheduler))
                  if value]  # fmt: skip
        if about.seed is not None:
            parts.append(f"seed {about.seed},")
        self._write([" ".join(parts).rstrip(",") + f" -> {about.directory}"])

    def show(self, lines: Sequence[str], frame: _Frame) -> None:
        self._write(lines)

    def end(self, draw: Callable[[int], Sequence[Line]], status: str) -> None:
        self._write([status, *("".join(part for part, _ in line) for line in draw(10_000))])

    def close(self) -> None:
        """Leave the file to who opened it."""


class _Terminal:
    """A terminal: the block is redrawn in place, and what else is printed appears above it.

    After each drawing the cursor is put back to where the block begins, and that place is stored. So a drawing erases
    from there to the end of the screen, whatever has become of the one before: typed keys are echoed into the block
    and move nothing, and lines that a narrower window has wrapped go with the rest. Where the window has another size
    than at the last drawing, its cursor is believed in place of the stored one: it moves with the lines.
    """

    is_block = True

    def __init__(self, file: TextIO) -> None:
        from rich.console import Console

        class _Quiet(Console):
            def on_broken_pipe(self) -> None:
                # rich would end the process here.
                raise BrokenPipeError

        self._file = file
        self._console = _Quiet(file=file, highlight=False, markup=False, emoji=False, soft_wrap=False)
        self._lines: Sequence[Line] = ()
        self._drawn: tuple[int, int, int] | None = None  # columns and rows of the window, lines of the block
        self._replaced: dict[str, TextIO] = {}
        self._is_live = False

    def open(self, about: About, view: ViewState | None) -> None:
        from rich.file_proxy import FileProxy

        self._is_live = True
        self._console.show_cursor(False)
        self._console.push_render_hook(cast("Any", self))
        if self._file is sys.stdout:
            for name in ("stdout", "stderr"):
                self._replaced[name] = getattr(sys, name)
                setattr(sys, name, FileProxy(self._console, self._replaced[name]))

    def show(self, lines: Sequence[str], frame: _Frame) -> None:
        width, height = self._measure()
        # The last column stays free: some terminals wrap as soon as it is written.
        self._lines = frame.block(max(1, width - 1), max(1, height - 1))
        above = [[(line, "")] for line in lines]
        self._console.print(self._rich(above), end="\n" if above else "", no_wrap=True, overflow="crop", crop=True)

    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        """Put the block below what is printed: rich calls this for every print, whoever made it."""
        return [self._control(self._erasing()), *renderables, *self._block()]

    def end(self, draw: Callable[[int], Sequence[Line]], status: str) -> None:
        self._leave(self._erasing())  # the running block gives way to the last frame
        for line in draw(max(1, self._measure()[0] - 1)):
            self._console.print(self._rich([line]), soft_wrap=True)

    def close(self) -> None:
        if self._is_live:
            lines = self._drawn[2] if self._drawn is not None else 0
            self._leave("\r" + "\n" * lines)  # below the block

    def _leave(self, control: str) -> None:
        """Give back the cursor and the standard streams."""
        self._is_live = False
        for name, stream in self._replaced.items():
            getattr(sys, name).flush()  # half a line that somebody printed
            setattr(sys, name, stream)
        self._console.pop_render_hook()
        self._console.print(self._control(control), end="")
        self._console.show_cursor(True)
        self._drawn = None

    def _measure(self) -> tuple[int, int]:
        """Return columns and rows of the window as it is now; COLUMNS may be of another one."""
        try:
            size = os.get_terminal_size(self._file.fileno())
        except (AttributeError, OSError, ValueError):  # no real file
            return self._console.size
        if size.columns > 0 and size.lines > 0:
            self._console.size = size
        return self._console.size

    def _erasing(self) -> str:
        if self._drawn is None:
            return ""
        # The first row by itself: tmux stores a screen that is erased from its first cell on in its history.
        return ("\x1b8" if self._drawn[:2] == self._measure() else "") + "\r\x1b7\x1b[2K\x1b[B\x1b[J\x1b8"

    def _block(self) -> list[Any]:
        width, height = self._measure()
        lines = self._lines[: max(1, height - 1)]
        if not lines:
            return []
        self._drawn = (width, height, len(lines))
        up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
        return [self._rich(lines), self._control(f"\r{up}\x1b7")]

    def _control(self, codes: str) -> Any:
        from rich.control import Control
        from rich.segment import ControlType, Segment

        control = Control()
        control.segment = Segment(codes, None, [(ControlType.CARRIAGE_RETURN,)])
        return control

    def _rich(self, lines: Sequence[Line]) -> Any:
        from rich.text import Text

        styles = {"": "", "dim": "dim", "bold": "bold", "good": "green", "bad": "red"}
        shown = Text(no_wrap=True, overflow="crop", end="")
        for index, line in enumerate(lines):
            if index:
                shown.append("\n")
            for part, style in line:
                shown.append(_encodable(part, self._file), styles[style])
        return shown


class _Notebook:
    """A notebook cell: one output, updated in place."""

    is_block = True
    _WIDTH, _HEIGHT = 110, 40

    def __init__(self) -> None:
        self._handle: Any = None
        self._lines: deque[str] = deque(maxlen=20)

    def open(self, about: About, view: ViewState | None) -> None:
        """Wait for the first frame."""

    def show(self, lines: Sequence[str], frame: _Frame) -> None:
        self._lines.extend(lines)
        self._put([*([(line, "dim")] for line in self._lines), *frame.block(self._WIDTH, self._HEIGHT)])

    def end(self, draw: Callable[[int], Sequence[Line]], status: str) -> None:
        self._put(draw(self._WIDTH))

    def close(self) -> None:
        """Leave the last frame where it is."""

    def _put(self, lines: Sequence[Line]) -> None:
        from IPython import display

        styles = {"": "", "dim": "opacity:.6", "bold": "font-weight:bold", "good": "color:#080", "bad": "color:#b00"}
        rows = (
            "".join(f'<span style="{styles[style]}">{html.escape(part)}</span>' for part, style in line)
            for line in lines
        )
        page = display.HTML(  # type: ignore[no-untyped-call]
            '<pre style="line-height:1.25;white-space:pre">' + "\n".join(rows) + "</pre>"
        )
        if self._handle is None:
            self._handle = display.display(page, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(page)


def is_in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def _style_of(file: TextIO) -> str:
    """Say where `file` leads: only a notebook's kernel has replaced standard output by its own."""
    if is_in_notebook() and file is sys.stdout:
        return "notebook"
    try:
        is_terminal = file.isatty()
    except (AttributeError, ValueError):  # not quite a file, or closed
        is_terminal = False
    return "terminal" if is_terminal and os.environ.get("TERM") != "dumb" else "lines"


def _encodable(shown: str, file: TextIO) -> str:
    """Return a text that `file` can write: in its encoding, with plain signs for what that lacks."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        shown.encode(encoding)
    except UnicodeEncodeError:
        return shown.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return shown


def _short_path(path: str) -> str:
    relative = os.path.relpath(path)
    return clean(path if relative.startswith("..") else relative)
