"""A sweep that runs elsewhere, to talk to: from another process, a notebook, or the command line."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.errors import ConfigError, ExperimentError, refuse_unknown
from sweep.record.layout import REMOTE_NOTE
from sweep.record.reader import ExperimentReader, find_experiment
from sweep.requests.files import DIRECTORY, KEPT, take_answer, withdraw, write

_LOOK_S = 0.02
_PATIENCE_S = 15.0  # a driver may be starting, in the user's searcher, or waiting for a disk

Trials = str | int | Sequence[str | int] | None


@refuse_unknown()
def attach(name: str | os.PathLike[str], storage_path: str | None = None) -> Attached:
    """Return a sweep to talk to, whichever process drives it.

    Args:
        name: of the experiment, or its directory.
        storage_path: where experiments lie; None: `$SWEEP_STORAGE`, or `./sweep_results`.

    Raises:
        ExperimentError: there is no such experiment.

    Example:
        >>> running = sweep.attach("digits")
        >>> running.enqueue({"lr": 0.01, "bs": 32})
        >>> running.stop(12)
        >>> running.edit(num_samples="+50")
    """
    return Attached(find_experiment(os.fspath(name), storage_path))


@refuse_unknown()
class Attached:
    """Asks a sweep for something and returns what came of it, as a sentence.

    A sweep that runs answers within half a second. Of one that does not, `retry`, `enqueue`, `edit` and `resume` are
    kept for its next start, and the rest is refused. Each method raises ConfigError if the sweep refuses what it is
    asked for, and ExperimentError if nobody can be asked, or does not answer for 15 s.

    Attributes:
        reader: of the experiment.
    """

    def __init__(self, reader: ExperimentReader) -> None:
        self.reader = reader

    @property
    def is_running(self) -> bool:
        """Whether a driver runs the sweep."""
        driver = self.reader.driver()
        return driver is not None and driver.is_alive is True

    def stop(self, trials: Trials = None) -> str:
        """Start nothing new and let what runs finish; of trials: end them, for good, at their next report."""
        return self.ask("stop", trials)

    def cancel(self, trials: Trials = None) -> str:
        """End the sweep, or trials, now and for good."""
        return self.ask("cancel", trials)

    def pause(self, trials: Trials = None) -> str:
        """Save trials, end their processes and free what they hold, until `resume`. Those that never save go on."""
        return self.ask("pause", trials)

    def resume(self, trials: Trials = None) -> str:
        """Let go on what `pause` has paused."""
        return self.ask("resume", trials)

    @refuse_unknown()
    def retry(self, trials: Trials = None, *, failed: Sequence[str] = ()) -> str:
        """Start trials again that have ended, from their last checkpoint.

        Args:
            trials: None: all that have failed.
            failed: only those that failed so: see `sweep.FailureConfig.retry_on`.
        """
        return self.ask("retry", trials, {"failed": list(failed)} if failed else {})

    def enqueue(self, config: Mapping[str, Any]) -> str:
        """Try a config next, beyond the number of trials that were asked for.

        Args:
            config: of JSON values, nested or named `model/lr`. What it leaves open is drawn at random. A value outside
                of the search space is tried; a searcher that learns from results does not learn from that one.
        """
        return self.ask("enqueue", None, {"config": dict(config)})

    @refuse_unknown()
    def edit(
        self,
        *,
        num_samples: int | str | None = None,
        time_budget_s: float | str | None = None,
        max_concurrent_trials: int | None = None,
    ) -> str:
        """Change how much is tried; a text such as "+50" is added to what holds now.

        Args:
            num_samples: in all. time_budget_s: seconds, in all. max_concurrent_trials: at a time; what runs goes on.
        """
        asked = {
            "num_samples": num_samples,
            "time_budget_s": time_budget_s,
            "max_concurrent_trials": max_concurrent_trials,
        }
        return self.ask("edit", None, {name: value for name, value in asked.items() if value is not None})

    def ask(self, verb: str, trials: Trials = None, values: Mapping[str, Any] | None = None) -> str:
        """Ask by the name of a method."""
        if trials is None:
            trials = ()
        given = [trials] if isinstance(trials, (str, int)) else trials
        ids = tuple(self.reader.trial(one).trial_id for one in given)
        root, name = self.reader.root, self.reader.name
        self.reader.refuse_imported()
        if not (may_come := self._may_answer()):
            self._refuse_unless_kept(verb)
        request, give_up = write(root, verb, ids, values), time.monotonic() + _PATIENCE_S
        answer = None
        try:
            while may_come and answer is None and time.monotonic() < give_up:
                time.sleep(_LOOK_S)
                may_come = self._may_answer()
                answer = take_answer(root, request)
        except BaseException:  # Ctrl-C
            withdraw(root, request)
            raise
        if answer is None and verb not in KEPT:  # whoever drives it next is not to be stopped by this
            withdraw(root, request)
        if answer is not None and not answer.is_done:
            raise ConfigError(answer.said)
        if answer is not None:
            return answer.said
        if may_come:
            then = f"it is done when that goes on: {request.id}.json in {root / DIRECTORY}, to be deleted until then"
            raise ExperimentError(
                f"the driver of {name} has not answered for {_PATIENCE_S:.0f} s; "
                f"{then if verb in KEPT else 'nothing is done. Ask again, or end its process'}."
            )
        if request.id in self.reader.requests_done():
            return f"it was done; the driver of {name} has ended since"
        self._refuse_unless_kept(verb)
        return f"no driver runs {name}; it is done at its next start: `sweep resume {shlex.quote(name)}`"

    def _may_answer(self) -> bool:
        driver = self.reader.driver()
        return driver is not None and driver.is_alive is not False

    def _refuse_unless_kept(self, verb: str) -> None:
        """Raise ExperimentError for what a sweep that does not run cannot be asked for."""
        name = self.reader.name
        if (self.reader.root / REMOTE_NOTE).exists():
            where = self.reader.root
            raise ExperimentError(f"no driver on this machine runs {name}, and {where} is a copy: ask where it runs.")
        if verb not in KEPT:
            raise ExperimentError(
                f"no driver runs {name}: there is nothing to {verb}. `sweep resume {shlex.quote(name)}` goes on."
            )
