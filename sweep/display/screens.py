"""Where the display goes: lines of a pipe or a file, a terminal's block in place, one output of a notebook's cell."""

from __future__ import annotations

import io
import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sweep.display.button import is_in_notebook

_PRE = "margin:0 0 .5em;padding:0;line-height:1.3;background:none;max-height:40em;overflow:auto;white-space:pre"


class Lines:
    """A pipe or a file: plain lines."""

    is_block = False  # what is shown is redrawn in place
    frame_s = 0.25  # between two frames, at least

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def size(self) -> tuple[int, int]:
        """Return how many columns and rows a block may have."""
        return 10_000, 10_000

    def show(self, lines: Sequence[str], block: Sequence[Text]) -> None:
        """Show new lines, and the block below them where there is one."""
        if lines:
            self.file.write("".join(f"{line}\n" for line in lines))
            self.file.flush()

    def end(self, lines: Sequence[str], block: Sequence[Text]) -> None:
        """Show new lines, and the last frame, which stays."""
        self.show([*lines, *(line.plain for line in block)], [])

    def close(self) -> None:
        """Give it back."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # what is being handled: rich ends the program instead


class _Terminal(Lines):
    """A terminal: the block is redrawn in place, and what else is printed appears above it."""

    is_block = True

    def __init__(self, file: TextIO) -> None:
        super().__init__(file)
        self._console = _Console(file=file, highlight=False)
        own: Any = dict.fromkeys(("redirect_stdout", "redirect_stderr"), file is sys.stdout)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop", **own)
        self._live.start()

    def size(self) -> tuple[int, int]:
        return self._console.size

    def show(self, lines: Sequence[str], block: Sequence[Text]) -> None:
        if lines:
            self._console.print(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
        self._live.update(Group(*block), refresh=True)

    def end(self, lines: Sequence[str], block: Sequence[Text]) -> None:
        self._live.update("")
        self._live.transient = True
        self.close()
        for line in (*map(Text, lines), *block):
            self._console.print(line, soft_wrap=True)  # the terminal may wrap it

    def close(self) -> None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # half a line that was printed before
        self._live.stop()


class Notebook(Lines):
    """A notebook cell: one output, replaced at most once per second; the last one stays."""

    is_block = True
    frame_s = 1.0  # each replacement goes to the browser whole

    def __init__(self, file: TextIO) -> None:
        super().__init__(file)
        self.above = self.below = ""  # html around the lines; what is above goes with the last frame
        self._page = ""  # what is shown, without what stands above it
        self._handle: Any = None
        self._lines: deque[str] = deque(maxlen=20)

    def size(self) -> tuple[int, int]:
        return 110, 40

    def show(self, lines: Sequence[str], block: Sequence[Text]) -> None:
        self._lines.extend(lines)
        console = Console(record=True, width=self.size()[0], file=io.StringIO(), highlight=False, force_jupyter=False)
        for line in (*(Text(line, "dim") for line in self._lines), *block):
            console.print(line)
        page = console.export_html(inline_styles=True, code_format=f'<pre style="{_PRE}">{{code}}</pre>')
        self._page = page + self.below
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
        if self._handle is None:
            self._handle = display.display(shown, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown)


def screen_of(style: str, file: TextIO) -> Lines:
    """Return a screen: `terminal`, `notebook` or `lines`."""
    with suppress(AttributeError):  # not quite a file
        file.reconfigure(errors="replace")  # type: ignore[attr-defined]  # what its encoding lacks
    return {"notebook": Notebook, "terminal": _Terminal}.get(style, Lines)(file)


def style_of(file: TextIO) -> str:
    """Say where `file` leads: only a notebook's kernel has replaced standard output by its own."""
    if is_in_notebook() and file is sys.stdout:
        return "notebook"
    try:
        is_terminal = file.isatty()
    except (AttributeError, ValueError):  # not quite a file, or closed
        is_terminal = False
    return "terminal" if is_terminal and os.environ.get("TERM") != "dumb" else "lines"
