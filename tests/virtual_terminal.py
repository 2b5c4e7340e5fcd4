"""A terminal of which one sees the screen: it wraps, scrolls and reflows as terminals do."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b([78])|([\n\r])|([^\x1b])", re.DOTALL)


class VirtualTerminal:
    """Understands what is needed to redraw in place; the rest of the escape sequences is ignored.

    Args:
        does_reflow: a narrower window wraps the lines that are on the screen, as most terminals do; else it cuts them.
    """

    def __init__(self, columns: int = 80, rows: int = 24, *, does_reflow: bool = True) -> None:
        self.columns, self.rows = columns, rows
        self.does_reflow = does_reflow
        self.is_cursor_visible = True
        self._lines: list[list[str]] = [[]]  # everything since the beginning; the screen is the end of it
        self._is_wrapped = [False]  # whether a line continues the one above
        self._top = 0
        self._row, self._column = 0, 0  # the row counts from the beginning, too
        self._stored = (0, 0)

    def feed(self, text: str) -> None:
        """Show what a program writes."""
        for match in _TOKEN.finditer(text):
            codes, letter, store, move, character = match.groups()
            if store == "7":
                self._stored = (self._row - self._top, self._column)
            elif store == "8":
                self._row, self._column = self._top + self._stored[0], self._stored[1]
            elif move == "\n":
                self._column = 0  # as the kernel's terminal makes of it
                self._down(is_wrapped=False)
            elif move == "\r":
                self._column = 0
            elif letter:
                self._control(codes, letter)
            elif character:
                self._put(character)

    def echo(self, typed: str) -> None:
        """Show what a person types, as the kernel does where nobody reads the keys."""
        self.feed("".join(f"^{chr(ord(key) + 64)}" if key < " " and key != "\n" else key for key in typed))

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        if self.does_reflow and columns != self.columns:
            self._reflow(columns)
        elif columns < self.columns:
            self._lines = [line[:columns] for line in self._lines]
        self.columns = columns
        below = len(self._lines) - 1 - self._row  # rows below the cursor go first
        for _ in range(min(below, len(self._lines) - self._top - rows)):
            self._lines.pop()
            self._is_wrapped.pop()
        self.rows = rows
        self._top = max(0, min(self._top, self._row), len(self._lines) - rows)

    def shown(self) -> list[str]:
        """Return everything that can be read, what was scrolled away included."""
        return ["".join(line).rstrip() for line in self._lines]

    def _reflow(self, columns: int) -> None:
        lines: list[list[str]] = []
        is_wrapped: list[bool] = []
        row = 0
        for index, line in enumerate(self._lines):
            if self._is_wrapped[index]:
                start, line = len(lines) - 1, lines.pop() + line
                is_wrapped.pop()
            else:
                start = len(lines)
            parts = [line[at : at + columns] for at in range(0, max(1, len(line)), columns)]
            if index == self._row:
                row = start
            lines += parts
            is_wrapped += [False] + [True] * (len(parts) - 1)
        self._lines, self._is_wrapped = lines, is_wrapped
        self._row, self._column = row, min(self._column, columns - 1)

    def _control(self, codes: str, letter: str) -> None:
        number = int(codes) if codes.isdecimal() and int(codes) else 1
        line = self._lines[self._row]
        if codes == "?25":
            self.is_cursor_visible = letter == "h"
        elif letter == "A":
            self._row = max(self._top, self._row - number)
        elif letter == "B":
            while self._row + number >= len(self._lines) < self._top + self.rows:
                self._lines.append([])
                self._is_wrapped.append(False)
            self._row = min(len(self._lines) - 1, self._row + number)
        elif letter == "K" and codes == "2":
            line.clear()
        elif letter == "J" and codes in ("", "0") and (self._row, self._column) == (self._top, 0):
            self._row = self._top = len(self._lines)  # tmux stores what was there
            self._lines.append([])
            self._is_wrapped.append(False)
        elif letter == "J" and codes in ("", "0"):
            del line[self._column :]
            del self._lines[self._row + 1 :]
            del self._is_wrapped[self._row + 1 :]

    def _put(self, character: str) -> None:
        width = 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self._column + width > self.columns:
            self._column = 0
            self._down(is_wrapped=True)
        line = self._lines[self._row]
        line.extend(" " * (self._column + width - len(line)))
        line[self._column : self._column + width] = [character, ""][: max(1, width)]
        self._column += width

    def _down(self, *, is_wrapped: bool) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])
            self._is_wrapped.append(is_wrapped)
        self._top = max(self._top, self._row - self.rows + 1)
