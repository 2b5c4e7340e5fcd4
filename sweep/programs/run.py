"""One trial of a program, in its worker: its place, its arguments, its run, and what its reports say."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.errors import UserCodeError
from sweep.programs import hooks
from sweep.programs.arguments import render
from sweep.programs.command import run_command
from sweep.programs.config_file import with_values
from sweep.programs.feed import Feed
from sweep.programs.interface import Interface
from sweep.programs.place import Place, placeholders
from sweep.programs.script import run_script
from sweep.record.files import write_atomically
from sweep.record.layout import COMMAND_FILE
from sweep.worker.session import Session, StopRequested, current

SEEN_FILE = "metrics_seen.json"  # in a trial's directory: which metrics came from which source


@dataclass(frozen=True)
class Launch:
    """How a program is run, in words that every process can read.

    Attributes:
        command: the words of the command, with placeholders.
        script: a Python script, or the name of a module, that can run in a fork; empty: it is a child process.
        is_module: `script` is run as `python -m` would.
        directory: absolute; the working directory.
        interface: how arguments are written.
        config_file: of which each trial gets a copy with its values; empty: none.
        resume: words that are added when there is something to continue from.
        metric: that the sweep optimises; empty: none.
        setup, ready, teardown: around the program, see `Program`.
        is_closed: no parameter becomes an argument.
    """

    command: tuple[str, ...]
    script: str
    is_module: bool
    directory: str
    interface: Interface
    config_file: str = ""
    is_isolated: bool = False
    num_workers: int = 1
    resume: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    ready: str | tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    ready_timeout_s: float = 60.0
    pattern: str | None = None
    is_closed: bool = False
    uses_wandb: bool = False
    name: str = "program"
    metric: str = ""

    def __call__(self, config: dict[str, Any]) -> None:
        """Be the trial: called in its worker with its config."""
        session = current()
        assert session is not None
        place = Place(session, self.directory, is_isolated=self.is_isolated)
        variables = place.variables(config, self.num_workers) | {"SWEEP_METRIC": self.metric}
        is_fork = bool(self.script) and bool(session.job.code)  # not in the driver's own process
        metric = self.metric
        reporter = _Reporter(session, place, is_waiting=is_fork)
        reporter.feed = feed = Feed(
            metric, reporter.report, pattern=self.pattern, has_library=lambda: bool(hooks.installed())
        )
        words = self.words(config, place, variables)
        as_module = ["-m"] if self.is_module else []
        shown = ["python", *as_module, *words] if self.script else words
        if self.script and not is_fork:
            words = [sys.executable, *as_module, *words]
        write_atomically(Path(session.trial_dir, COMMAND_FILE), shlex.join(shown) + "\n")
        if self.uses_wandb:
            script = next((word for word in words if word.endswith(".py")), "")
            home = os.path.dirname(os.path.join(self.directory, script))
            hooks.prepare_wandb(
                variables, config, session.trial_dir, session.job.trial_id, session.job.experiment, home
            )
        try:
            if is_fork:
                run_script(self, words, place, variables, feed)
            else:
                run_command(self, words, config, place, variables, feed, session)
        except StopRequested:
            raise
        except BaseException:  # what it had logged before counts
            with contextlib.suppress(StopRequested):
                feed.end(is_good=False)
            raise
        else:
            feed.end()
        finally:
            found = [[source, name, seen.count, seen.last] for (source, name), seen in feed.seen.items()]
            write_atomically(Path(session.trial_dir, SEEN_FILE), json.dumps(found, default=str))
        reporter.finish()
        if metric and not session.num_reports and not place.has_checkpoint:  # else it was at its end already
            raise UserCodeError(f"{self.name} ended without a value of {metric!r}. {feed.why_nothing()}")

    def words(self, config: Mapping[str, Any], place: Place, variables: Mapping[str, str]) -> list[str]:
        """Return the command of a trial."""
        known = placeholders(variables)
        template = list(self.command)
        if self.config_file:
            template, known["config_file"] = self._with_config_file(config, place, template)
        if self.config_file or self.is_closed:
            config = {}
        words = render(template, config, interface=self.interface, variables=known)
        if place.has_checkpoint and self.resume:
            words += render(self.resume, {}, interface=self.interface, variables=known)
        return words

    def _with_config_file(
        self, config: Mapping[str, Any], place: Place, template: Sequence[str]
    ) -> tuple[list[str], str]:
        """Write the trial's copy of the config file; return the command that names it, and its path."""
        given = os.path.join(self.directory, self.config_file)
        inside = not os.path.isabs(self.config_file) and not self.config_file.startswith("..")
        home = place.directory if self.is_isolated and inside else os.path.dirname(place.checkpoint_dir)
        copy = os.path.join(home, self.config_file if self.is_isolated and inside else os.path.basename(given))
        if os.path.lexists(copy):  # a link: what is written through it would be the user's own file
            os.remove(copy)
        with_values(Path(given), config, Path(copy))
        words = [copy if word in (self.config_file, given) else word for word in template]
        if words == list(template) and not any("{config_file}" in word for word in template):
            option = self.config_option(self.interface)
            words += [option, copy] if option else []
        return words, copy

    @staticmethod
    def config_option(interface: Interface) -> str:
        """Return the option by which a program takes the path of a config file; empty: none is known."""
        names = {"config", "config_file", "cfg", "conf", "config_path"}
        return next((one.flags[-1] for one in interface.options if one.flags and one.name in names), "")


class _Reporter:
    """Turns what the feed gives into reports of the session, with what the program has saved."""

    feed: Feed

    def __init__(self, session: Session, place: Place, *, is_waiting: bool) -> None:
        """Begin; `is_waiting`: the program waits while it reports, so that no file is half written."""
        self._session, self._place, self._is_waiting = session, place, is_waiting
        self._num_reports = 0

    def report(self, values: dict[str, Any]) -> None:
        """Report; a stop that another thread learns of is met by the program at its next report."""
        session = self._session
        if session.num_reports != self._num_reports:
            return  # the program calls `sweep.report` itself
        try:
            checkpoint = None if self.feed.is_late else self._place.checkpoint(is_settled=self._is_waiting)
            session.report(values, checkpoint)
        except StopRequested:
            if threading.current_thread() is threading.main_thread():
                raise
        finally:
            self._num_reports = session.num_reports

    def finish(self) -> None:
        """Store what was saved after the last report."""
        if self._session.num_reports and self._place.checkpoint(is_settled=True) is not None:
            with self._session.checkpoint_dir() as directory:
                shutil.copytree(self._place.checkpoint_dir, directory, dirs_exist_ok=True)
