"""Errors of the search side; `sweep.errors` re-exports them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from unicodedata import category


class SweepError(Exception):
    """Root of the errors of `searchers` and `sweep`; it stands here because `searchers` imports nothing of `sweep`."""

    def __str__(self) -> str:
        """Return the message, safe to print: it may quote what a trial said."""
        return readable(super().__str__())


def readable(text: str) -> str:
    """Return a text, of any number of lines, in which nothing moves a terminal's cursor or recolours it: control
    characters, direction overrides and lone surrogates are written as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or category(c) not in ("Cc", "Cf", "Cs") else ascii(c)[1:-1] for c in text)


class SearchError(SweepError):
    """A searcher was built or used in a way that cannot work."""


class SpaceError(SearchError, ValueError):
    """A search space makes no sense: inverted bounds, a log range that touches zero, a grid too large to cross."""


class SearchExhausted(SearchError):
    """A searcher was asked and has nothing more to suggest: the grid is done, or `num_samples` were drawn."""


class SearchWaits(SearchError):
    """A searcher was asked and suggests nothing before one of its open trials ends."""


class UnknownNameError(SearchError, ValueError):
    """A name was given that nothing bears; the message lists what exists and the nearest match."""


class UnknownArgument(SearchError, ValueError, TypeError):
    """A keyword was given that a searcher or a function of a space does not have; the message names the nearest."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known names come closest to `name`, as the tail of an error message.

    Example:
        >>> nearest("optna", ["optuna", "random"])
        "Did you mean 'optuna'? Known: optuna, random."
    """
    names = sorted(known)
    close = closest(name, names)
    hint = f"Did you mean {close!r}? " if close else ""
    return f"{hint}Known: {', '.join(names)}."


def closest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the known name that comes closest to `name`; "" when none is alike."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)), "")
