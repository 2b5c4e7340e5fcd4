"""What a program prints, cut into lines."""

from __future__ import annotations

from collections.abc import Callable

_MAX_LINE = 1 << 16


class Output:
    """Gives the lines of a stream, one by one; what moves a progress bar back begins a new one."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = ""

    def __call__(self, text: str, *, is_last: bool = False) -> None:
        """Take what is written next; `is_last`: a line that has no end is one, too."""
        *lines, self._rest = (self._rest + text + "\n" * is_last).replace("\r", "\n").split("\n")
        self._rest = self._rest[:_MAX_LINE]
        for line in filter(None, lines):
            self._take(line)
