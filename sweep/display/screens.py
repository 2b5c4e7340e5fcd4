"""Where the display goes: lines of a pipe or a file, a terminal's block in place, one output of a notebook's cell."""

from __future__ import annotations

import html
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from sweep.display.formats import fit
from sweep.display.renderer import Line

_ASCII = str.maketrans({"█": "#", "▓": "=", "░": "-", "·": "|", "…": "~"} | dict.fromkeys("▁▂▃▄▅▆▇", "|"))


class Screen:
    """Where the display goes.

    Attributes:
        is_block: what is shown is redrawn in place.
        frame_s: seconds between two frames, at least.
    """

    is_block = True
    frame_s = 0.25

    def open(self) -> None:
        """Take it."""

    def size(self) -> tuple[int, int]:
        """Return how many columns and rows a block may have."""
        raise NotImplementedError

    def show(self, lines: Sequence[str], block: Sequence[Line]) -> None:
        """Show new lines, and the block below them where there is one."""
        raise NotImplementedError

    def end(self, lines: Sequence[str], block: Sequence[Line]) -> None:
        """Show new lines, and the last frame, which stays."""
        raise NotImplementedError

    def close(self) -> None:
        """Give it back."""


class Lines(Screen):
    """A pipe or a file: plain lines, each written whole."""

    is_block = False

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def size(self) -> tuple[int, int]:
        return 10_000, 10_000

    def show(self, lines: Sequence[str], block: Sequence[Line]) -> None:
        if lines:
            self.file.write(_encodable("".join(f"{line}\n" for line in lines), self.file))
            self.file.flush()

    def end(self, lines: Sequence[str], block: Sequence[Line]) -> None:
        self.show([*lines, *("".join(part for part, _ in line) for line in block)], [])


class _Terminal(Screen):
    """A terminal: the block is redrawn in place, and what else is printed appears above it.

    After each drawing the cursor is put back to where the block begins, and that place is stored. So a drawing erases
    from there to the end of the screen, whatever has become of the one before: typed keys are echoed into the block
    and move nothing, and lines that a narrower window has wrapped go with the rest. Where the window has another size
    than at the last drawing, its cursor is believed in place of the stored one: it moves with the lines.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.RLock()  # what is printed comes from any thread
        self._lines: Sequence[Line] = ()
        self._drawn: tuple[int, int, int] | None = None  # columns and rows of the window, lines of the block
        self._replaced: dict[str, TextIO] = {}
        self._is_live = False
        has_colours = not os.environ.get("NO_COLOR")
        self._codes = {"dim": "2", "bold": "1"} | ({"good": "32", "bad": "31"} if has_colours else {})

    def open(self) -> None:
        self._is_live = True
        self._write("\x1b[?25l")
        if self._file is sys.stdout:
            for name in ("stdout", "stderr"):
                self._replaced[name] = getattr(sys, name)
                setattr(sys, name, _Above(self.put_above, self._replaced[name]))

    def size(self) -> tuple[int, int]:
        width, height = self._measure()
        return max(1, width - 1), max(1, height - 1)  # some terminals wrap as soon as the last column is written

    def show(self, lines: Sequence[str], block: Sequence[Line]) -> None:
        self._lines = block
        self.put_above("".join(f"{fit(line, self.size()[0])}\n" for line in lines))

    def put_above(self, text: str) -> None:
        """Write whole lines where the block stands, and the block below them."""
        with self._lock:
            width, height = self._measure()
            lines = self._lines[: max(1, height - 1)]
            up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
            block = "\n".join(map(self._styled, lines)) + f"\r{up}\x1b7" if lines else ""
            self._write(self._erasing() + text + block)
            self._drawn = (width, height, len(lines)) if lines else None

    def end(self, lines: Sequence[str], block: Sequence[Line]) -> None:
        self._leave(self._erasing())  # the running block gives way to the last frame
        self._write("".join(f"{line}\n" for line in (*lines, *map(self._styled, block))))

    def close(self) -> None:
        if self._is_live:
            lines = self._drawn[2] if self._drawn is not None else 0
            self._leave("\r" + "\n" * lines)  # below the block

    def _leave(self, control: str) -> None:
        """Give back the cursor and the standard streams."""
        self._is_live = False
        for name, stream in self._replaced.items():
            getattr(sys, name).flush()  # half a line that was printed before
            setattr(sys, name, stream)
        self._write(f"{control}\x1b[?25h")
        self._drawn = None

    def _measure(self) -> tuple[int, int]:
        """Return columns and rows of the window as it is now; COLUMNS may be of another one."""
        try:
            size = os.get_terminal_size(self._file.fileno())
        except (AttributeError, OSError, ValueError):  # no real file
            size = os.terminal_size((0, 0))
        if size.columns <= 0 or size.lines <= 0:
            size = shutil.get_terminal_size()
        return size.columns, size.lines

    def _erasing(self) -> str:
        if self._drawn is None:
            return ""
        # The first row by itself: tmux stores a screen that is erased from its first cell on in its history.
        return ("\x1b8" if self._drawn[:2] == self._measure() else "") + "\r\x1b7\x1b[2K\x1b[B\x1b[J\x1b8"

    def _styled(self, line: Line) -> str:
        codes = self._codes
        return "".join(f"\x1b[{codes[style]}m{part}\x1b[0m" if style in codes else part for part, style in line)

    def _write(self, text: str) -> None:
        self._file.write(_encodable(text, self._file))
        self._file.flush()


class _Above:
    """Stands for a standard stream while a block is on the terminal: whole lines go above the block."""

    def __init__(self, put_above: Callable[[str], None], stream: TextIO) -> None:
        self._put_above = put_above
        self._stream = stream
        self._rest = ""  # of a line that has not ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        whole, end, self._rest = (self._rest + text).rpartition("\n")
        if end:
            self._put_above(whole + end)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        if self._rest:
            text, self._rest = f"{self._rest}\n", ""
            self._put_above(text)


class Notebook(Screen):
    """A notebook cell: one output, replaced at most once per second; the last one stays.

    Attributes:
        above, below: html around the lines; what is above goes with the last frame.
    """

    frame_s = 1.0  # each replacement goes to the browser whole
    _STYLES = {"": "", "dim": "opacity:.6", "bold": "font-weight:bold", "good": "color:#2da44e", "bad": "color:#e5534b"}
    _PRE = "margin:0 0 .5em;padding:0;line-height:1.3;background:none;max-height:40em;overflow:auto;white-space:pre"

    def __init__(self) -> None:
        self.above = self.below = ""
        self._page = ""  # what is shown, without what stands above it
        self._handle: Any = None
        self._lock = threading.Lock()  # two threads that draw first would make two outputs
        self._lines: deque[str] = deque(maxlen=20)

    def size(self) -> tuple[int, int]:
        return 110, 40

    def show(self, lines: Sequence[str], block: Sequence[Line]) -> None:
        self._lines.extend(lines)
        rows = (
            "".join(f'<span style="{self._STYLES[style]}">{html.escape(part)}</span>' for part, style in line)
            for line in (*([(line, "dim")] for line in self._lines), *block)
        )
        self._page = f'<pre style="{self._PRE}">' + "\n".join(rows) + f"</pre>{self.below}"
        self._publish()

    end = show

    def close(self) -> None:
        if self.above:  # there was no last frame
            self.above = ""
            self._publish()

    def _publish(self) -> None:
        from IPython import display

        page = f'<div class="sweep" style="color:inherit">{self.above}{self._page}</div>'
        shown = display.HTML(page)  # type: ignore[no-untyped-call]
        with self._lock:
            if self._handle is None:
                self._handle = display.display(shown, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self._handle.update(shown)


def screen_of(style: str, file: TextIO) -> Screen:
    """Return a screen: `terminal`, `notebook` or `lines`."""
    if style == "notebook":
        return Notebook()
    return _Terminal(file) if style == "terminal" else Lines(file)


def is_in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def style_of(file: TextIO) -> str:
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
