"""Every exception this package raises on purpose; `SweepError` is their root, and stands in `searchers.errors`."""

from __future__ import annotations

import functools
import signal
from typing import TYPE_CHECKING, Any

from searchers import keywords
from searchers.errors import SearchError as SearchError
from searchers.errors import SpaceError as SpaceError
from searchers.errors import SweepError as SweepError
from searchers.errors import UnknownNameError as UnknownNameError

if TYPE_CHECKING:
    from sweep.results.analysis import ExperimentAnalysis

TuneError = SweepError  # what Tune calls it


class UserCodeError(SweepError):
    """The user's code failed; its own exception, when it was kept and may be loaded, is the `__cause__`.

    Attributes:
        class_name: of the user's exception; empty when there was none (a signal, an exit without a word).
        traceback: the user's frames as text; empty when unknown.
    """

    class_name: str = ""
    traceback: str = ""


class TrialsFailed(SweepError):
    """The sweep ended, and some of its trials are in ERROR; everything else is kept.

    Attributes:
        analysis: what the sweep has come to; None only before `run` has raised it.
    """

    analysis: ExperimentAnalysis | None = None


class SweepInterrupted(BaseException):
    """The sweep was interrupted: its trials have saved and stopped, and everything is kept.

    After Ctrl-C it is a `KeyboardInterrupt`, too; after SIGTERM and the other signals a `SystemExit`. A script that
    does not catch it ends with 130 or 143 (128 and the number of the signal), without a traceback.

    Attributes:
        analysis: what the sweep has come to.
        code: 128 and the number of the signal.
    """

    analysis: ExperimentAnalysis
    code: Any

    @classmethod
    def of(cls, number: int, text: str, analysis: ExperimentAnalysis) -> SweepInterrupted:
        """Return the one for the signal `number`."""
        error = (_CtrlC if number == signal.SIGINT else _Ended)(text)
        error.analysis, error.code = analysis, 128 + number
        return error

    def _render_traceback_(self) -> list[str]:  # what IPython shows
        return [f"{SweepInterrupted.__name__}: {self}"]


class _CtrlC(SweepInterrupted, KeyboardInterrupt):
    __qualname__ = SweepInterrupted.__name__  # what a traceback calls it


class _Ended(SweepInterrupted, SystemExit):
    __qualname__ = SweepInterrupted.__name__


class ResourceError(SweepError, ValueError):
    """A resource request that can never be granted, or that makes no sense."""


class ConfigError(SweepError, ValueError):
    """An argument is wrong: what was found, what was expected, what to do."""


class UnknownArgument(ConfigError, TypeError):
    """A keyword that a function or a constructor does not have; the message names the nearest, or what takes its place.

    What is unknown to a searcher or to a function of a space is a `searchers.errors.UnknownArgument`.
    """


refuse_unknown = functools.partial(keywords.refuse_unknown, error=UnknownArgument)
"""The decorator of `searchers.keywords`, with the error of this package."""


class MetricError(SweepError, RuntimeError):
    """The metric that was asked for was not reported."""


class CheckpointError(SweepError, RuntimeError):
    """A checkpoint is missing, damaged or could not be written."""


class ExperimentError(SweepError):
    """An experiment directory or its `sweep.db` cannot be used as asked."""


class NoExperimentError(ExperimentError, ValueError):
    """There is no experiment where one was looked for."""


class RecordError(ExperimentError):
    """The record of a sweep that runs takes nothing more: its disk stays full, or its directory was deleted or moved.

    The sweep was stopped and its trials were ended; the message says what is left of it.
    """


class TrainableError(SweepError, TypeError):
    """The trainable cannot be called with a config, or cannot be shipped to another process."""


class SweepStalled(SweepError):
    """Nothing runs and nothing can start; the message names what everything waits for."""
