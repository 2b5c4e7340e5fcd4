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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.errors import UserCodeError
from sweep.programs import hooks
from sweep.programs.arguments import appended, render
from sweep.programs.command import run_command
from sweep.programs.config_file import with_values
from sweep.programs.feed import Feed, is_time
from sweep.programs.interface import Interface
from sweep.programs.place import Place
from sweep.programs.script import run_script
from sweep.programs.wandb_variables import prepare_wandb
from sweep.record.files import write_atomically
from sweep.record.layout import COMMAND_FILE
from sweep.worker.rendezvous import open_ports
from sweep.worker.session import Session, StopRequested, current

if TYPE_CHECKING:
    from sweep.programs.program import Program

SEEN_FILE = "metrics_seen.json"  # in a trial's directory: which metrics came from which source
TOLD_FILE = "last_step.json"  # likewise: the step of its last report
_OF_CONFIG_FILES = {"config", "config_file", "cfg", "conf", "config_path"}  # options that take the path of one
_PLACEHOLDERS = ("trial_id", "trial_dir", "checkpoint_dir", "seed")


def run_trial(
    program: Program,
    template: Sequence[str],
    is_script: bool,
    interface: Interface,
    metric: str,
    config: dict[str, Any],
) -> None:
    """Be a trial: called in its worker.

    Args:
        template: the words of the command; of a Python script that can run in a fork, what follows `python`.
        is_script: whether that is so.
        interface: how arguments are written.
        metric: that the sweep optimises; empty: none.
    """
    session = current()
    assert session is not None
    place = Place(session, program.directory, is_isolated=program.isolate)
    is_fork = is_script and bool(session.job.code)  # not in the driver's own process
    reporter = _Reporter(session, place, is_waiting=is_fork)
    feed = Feed(metric, reporter.report, pattern=program.pattern, has_library=lambda: bool(hooks.installed()))
    (port,) = open_ports(1, "named")
    variables = place.variables(config) | {"SWEEP_NUM_WORKERS": str(program.workers), "SWEEP_METRIC": metric}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.number), "PET_STANDALONE": "1"}
    gpus = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    known = {name: variables[f"SWEEP_{name.upper()}"] for name in _PLACEHOLDERS}
    known |= {"num_gpus": str(len(gpus)), "port": str(port.number)}
    if program.config_file:
        known["config_file"] = _written(program, config, place)

    def filled(words: Sequence[str]) -> list[str]:
        """Return words with the parameters that they name, and no others."""
        extra = appended(words, config)
        named = {name: value for name, value in config.items() if name not in extra}
        return render(words, named, interface=interface, variables=known)

    words = rendered(program, template, interface, config, known)
    words += filled(program.resume) if place.has_checkpoint else []
    write_atomically(Path(session.trial_dir, COMMAND_FILE), shlex.join(["python"] * is_script + words) + "\n")
    script = next((word for word in words if word.endswith(".py")), "")
    home = os.path.dirname(os.path.join(program.directory, script))
    prepare_wandb(variables, config, session.trial_dir, session.job.trial_id, session.job.experiment, home)
    try:
        with port.holder:
            if is_fork:
                run_script(program, words, place, variables, feed)
            else:
                words = [sys.executable] * is_script + words
                run_command(program, words, filled, place, variables, feed, session)
    except StopRequested:
        raise
    except BaseException:  # what it had logged before counts
        with contextlib.suppress(StopRequested):
            feed.end(is_good=False)
        raise
    else:
        feed.end()
    finally:
        found = [[*key, *seen] for key, seen in feed.seen.items()]
        write_atomically(Path(session.trial_dir, SEEN_FILE), json.dumps(found, default=str))
    reporter.finish()
    if metric and not session.num_reports and not place.has_checkpoint:  # else it was at its end already
        raise UserCodeError(f"{program.name} ended without a value of {metric!r}. {feed.why_nothing()}")


def rendered(
    program: Program,
    template: Sequence[str],
    interface: Interface,
    config: Mapping[str, Any],
    variables: Mapping[str, str],
) -> list[str]:
    """Return the words of a trial's command; arguments as those of `run_trial` and `render`."""
    template = _with_config_file(program, template, interface) if program.config_file else template
    given = {} if program.config_file or program.closed else config
    return render(template, given, interface=interface, variables=variables)


def _with_config_file(program: Program, template: Sequence[str], interface: Interface) -> list[str]:
    """Return a command that takes the trial's copy of the config file, if it takes one as an argument."""
    paths = (program.config_file, os.path.join(program.directory, program.config_file))
    words = ["{config_file}" if word in paths else word for word in template]
    named = [one.flags[-1] for one in interface.options if one.flags and one.name in _OF_CONFIG_FILES]
    is_named = any("{config_file}" in word for word in words)
    return words if is_named or not named else [*words, named[0], "{config_file}"]


def _written(program: Program, config: Mapping[str, Any], place: Place) -> str:
    """Write the trial's copy of the config file; return its path."""
    given = program.config_file
    is_beside = place.is_isolated and not os.path.isabs(given) and not given.startswith("..")
    home = os.path.join(place.directory, given) if is_beside else place.checkpoint_dir
    copy = os.path.join(os.path.dirname(home), os.path.basename(given))
    if os.path.lexists(copy):  # a link: what is written through it would be the user's own file
        os.remove(copy)
    with_values(Path(program.directory, given), config, Path(copy))
    return copy


class _Reporter:
    """Turns what the feed gives into reports of the session, with what the program has saved."""

    def __init__(self, session: Session, place: Place, *, is_waiting: bool) -> None:
        """Begin; `is_waiting`: the program waits while it reports, so that no file is half written."""
        self._session, self._place, self._is_waiting = session, place, is_waiting
        self._num_reports = 0
        self._told = _Told(session, is_continued=place.has_checkpoint)

    def report(self, values: dict[str, Any], is_late: bool) -> None:
        """Report; a stop that another thread learns of is met by the program at its next report."""
        session = self._session
        if session.num_reports != self._num_reports or self._told.has(values):
            return  # the program calls `sweep.report` itself, or does a step again
        try:
            is_settled = self._is_waiting and threading.current_thread() is threading.main_thread()
            checkpoint = None if is_late else self._place.checkpoint(is_settled=is_settled)
            session.report(values, checkpoint)
        except StopRequested:
            if threading.current_thread() is threading.main_thread():
                raise
        finally:
            if session.num_reports > self._num_reports and self._place.has_saved:
                self._told.note(values)  # also of the report whose answer is to stop
            self._num_reports = session.num_reports

    def finish(self) -> None:
        """Store what was saved after the last report."""
        if self._session.num_reports and self._place.checkpoint(is_settled=True) is not None:
            with self._session.checkpoint_dir() as directory:
                shutil.copytree(self._place.checkpoint_dir, directory, dirs_exist_ok=True)


class _Told:
    """Which step of the program was reported last, by its own count.

    Most programs report a step and save it afterwards. One that is killed in between does that step again when it goes
    on, and its report is in the record already.
    """

    def __init__(self, session: Session, *, is_continued: bool) -> None:
        self._file = Path(session.trial_dir, TOLD_FILE)
        self._before: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._num_last = self._num_before = 0
        is_own = session.job.checkpoint.startswith(os.path.join(session.trial_dir, ""))
        if is_continued and is_own:  # another trial's steps were reported there
            with contextlib.suppress(OSError, ValueError):  # it reported no step
                self._before, self._num_before = json.loads(self._file.read_text())

    def note(self, values: Mapping[str, Any]) -> None:
        """Remember the step of a report that is in the record."""
        if times := _times(values):
            self._num_last = self._num_last + 1 if times == self._last else 1
            self._last = times
            write_atomically(self._file, json.dumps([times, self._num_last]))

    def has(self, values: Mapping[str, Any]) -> bool:
        """Whether the attempt before has reported this; from the first report on that it has not, nothing more was."""
        times = _times(values)
        known = [(times[name], before) for name, before in self._before.items() if name in times]
        is_back = any(times.get(name, last) < last for name, last in self._last.items())
        is_again = bool(known) and not is_back and all(time <= before for time, before in known)
        if is_again and all(time == before for time, before in known):
            is_again, self._num_before = self._num_before > 0, self._num_before - 1
        if is_again:
            self._last = times
        else:
            self._before = {}
        return is_again


def _times(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if is_time(name) and isinstance(value, (int, float))}
