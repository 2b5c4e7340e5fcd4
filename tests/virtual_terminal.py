"""A terminal of which one sees the screen: it wraps and scrolls as terminals do."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\n\r])|([^\x1b])", re.DOTALL)


class VirtualTerminal:
    """Understands what is needed to redraw in place; the rest of the escape sequences is ignored."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self.is_cursor_visible = True
        self._lines: list[list[str]] = [[]]  # everything since the beginning; the screen is the end of it
        self._top = 0
        self._row, self._column = 0, 0  # the row counts from the beginning, too

    def feed(self, text: str) -> None:
        """Show what a program writes."""
        for match in _TOKEN.finditer(text):
            codes, letter, move, character = match.groups()
            if move == "\n":
                self._column = 0  # as the kernel's terminal makes of it
                self._down()
            elif move == "\r":
                self._column = 0
            elif letter:
                self._control(codes, letter)
            elif character:
                self._put(character)

    def echo(self, typed: str) -> None:
        """Show what a person types, as the kernel does where nobody reads the keys."""
        self.feed("".join(f"^{chr(ord(key) + 64)}" if key < " " and key != "\n" else key for key in typed))

    def shown(self) -> list[str]:
        """Return everything that can be read, what was scrolled away included."""
        return ["".join(line).rstrip() for line in self._lines]

    def _control(self, codes: str, letter: str) -> None:
        number = int(codes) if codes.isdecimal() and int(codes) else 1
        line = self._lines[self._row]
        if codes == "?25":
            self.is_cursor_visible = letter == "h"
        elif letter == "A":
            self._row = max(self._top, self._row - number)
        elif letter == "K" and codes == "2":
            line.clear()

    def _put(self, character: str) -> None:
        width = 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self._column + width > self.columns:
            self._column = 0
            self._down()
        line = self._lines[self._row]
        line.extend(" " * (self._column + width - len(line)))
        line[self._column : self._column + width] = [character, ""][: max(1, width)]
        self._column += width

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])
        self._top = max(self._top, self._row - self.rows + 1)
