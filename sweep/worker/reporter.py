"""The second argument that Tune once gave to functions: `def train(config, reporter)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

from sweep.core.resources import Resources
from sweep.worker.context import Context
from sweep.worker.session import Session, report


class Reporter:
    """Reports when it is called, as `sweep.report` does, and knows the trial."""

    def __init__(self, session: Session) -> None:
        self._context = Context(session)

    def __call__(self, _metric: Mapping[str, Any] | SupportsFloat | None = None, /, **kw: Any) -> None:
        """Report a dict of metrics, keywords, or a number alone, which is called `_metric`."""
        report(_metric, **kw)

    @property
    def trial_id(self) -> str | None:
        """The trial's id."""
        return self._context.get_trial_id()

    @property
    def trial_name(self) -> str | None:
        """The trial's name."""
        return self._context.get_trial_name()

    @property
    def trial_resources(self) -> Resources | None:
        """What the trial asked for."""
        return self._context.get_trial_resources()

    @property
    def logdir(self) -> str | None:
        """The trial's own directory, absolute."""
        return self._context.get_trial_dir()
