"""`Program`: a script or a command as a trainable, checked before anything starts."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile
from pathlib import Path
from typing import Any

import cloudpickle

from searchers.errors import closest
from sweep import checks
from sweep.core.config import CheckpointConfig
from sweep.errors import ConfigError, refuse_unknown
from sweep.programs.arguments import appended
from sweep.programs.config_file import with_values
from sweep.programs.interface import check_space, interface_of, settings
from sweep.programs.notices import ProgramNotices
from sweep.programs.run import rendered, run_trial
from sweep.programs.source import Source
from sweep.worker.trainable import PreparedTrainable

_UNKNOWN = {"args_json_file": "{trial_dir}/args.json", "config_file": "{config_file}"}
_FLAGS = ("-u", "-B")  # of the interpreter, that a fork can do without


@refuse_unknown()
@dataclass(frozen=True)
class Program:
    """A program as a trainable: it imports nothing of this package, and its metrics are found where it sends them.

    A Python script runs in a fork that has imported what the script imports at its top, so it starts in milliseconds.
    Whatever else is named runs as a child process. Parameters become arguments, spelt as the program takes them;
    metrics are taken from wandb, mlflow, TensorBoard and others, from files, and from what is printed.

    Args:
        command: a script, `"train.py"`, or an argument list, `["torchrun", "train.py", "--lr", "{lr}"]`. `{name}`
            stands for a parameter, or for `checkpoint_dir`, `trial_dir`, `trial_id`, `seed`, `num_gpus`, `port`,
            `config_file`; parameters that are not named are appended. There is no shell.
        config_file: a yaml, json or toml file: each trial gets a copy in which its parameters are set, in place of
            arguments.
        isolate: each trial runs in a directory of its own that shows the files of `directory` by links and keeps what
            the program writes.
        fresh: give a Python script an interpreter of its own.
        workers: start so many copies as one group, with `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and
            `MASTER_PORT`; the first one's metrics count.
        resume: arguments that are added when there is something in `SWEEP_CHECKPOINT_DIR` to continue from.
        setup, ready, teardown: a server under test: started before the program and ended after it; a URL or a command
            that succeeds once it is ready; what is run at the end.
        ready_timeout_s: seconds until it must be ready.
        pattern: a regular expression for lines of output, with groups `key` and `value`, perhaps `step`.
        closed: no parameters are appended: the program reads them from `wandb.config` or the file `SWEEP_CONFIG`.
        directory: the working directory; empty: that of the caller.

    Raises:
        ConfigError: the program is not there or cannot be executed, or an argument is wrong.

    Example:
        >>> sweep.run(sweep.Program("train.py"), config={"lr": sweep.loguniform(1e-5, 1e-1)}, metric="loss", mode="min")
    """

    command: str | os.PathLike[str] | Sequence[str]
    config_file: str = ""
    isolate: bool = True
    fresh: bool = False
    workers: int = 1
    resume: Sequence[str] = ()
    setup: Sequence[str] = ()
    ready: str | Sequence[str] = ()
    teardown: Sequence[str] = ()
    ready_timeout_s: float = 60.0
    pattern: str | None = None
    closed: bool = False
    directory: str = ""
    _words: tuple[str, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        here = os.path.abspath(self.directory or os.curdir)
        object.__setattr__(self, "directory", here)
        checks.whole("workers", self.workers, least=1)
        checks.number("ready_timeout_s", self.ready_timeout_s, above=0)
        if isinstance(self.command, (str, os.PathLike)):
            words = [os.fspath(self.command)]
        else:
            words = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in self.command]
        for name in ("resume", "setup", "teardown"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"Program: {name} is a text; expected a list of words: there is no shell.")
        if not words:
            raise ConfigError("Program: the command is empty; expected a script, or a list of words.")
        object.__setattr__(self, "_words", tuple([_placed(word, here) for word in words]))
        self._check_command(here)

    def _check_command(self, here: str) -> None:
        first = self._words[0]
        path = os.path.join(here, first)
        if not _which(first, here) and not (first.endswith(".py") and os.path.isfile(path)):
            if os.path.isfile(path):
                raise ConfigError(f"{path} is not executable. Make it so (chmod +x), or name what runs it: sh {first}.")
            place, name = os.path.split(path)
            near = closest(name, os.listdir(place) if os.path.isdir(place) else [])
            hint = f" Did you mean {near!r}?" if near else ""
            if len(words := first.split()) > 1:
                hint = f" Expected a script, or a list such as {words!r}."
            raise ConfigError(f"there is no program {first!r} in {place} or on PATH.{hint}")
        if os.path.basename(first).startswith("python"):
            script = next((word for word in self._words[1:] if not word.startswith("-")), "")
            if script.endswith(".py") and not os.path.isfile(path := os.path.join(here, script)):
                raise ConfigError(f"there is no file {path}.")
        if self.config_file and not os.path.isfile(os.path.join(here, self.config_file)):
            raise ConfigError(f"there is no config file {os.path.join(here, self.config_file)}.")

    @property
    def name(self) -> str:
        """The program's name, for people and directories."""
        words = _python_words(self._words) or self._words  # or bash run.sh, torchrun train.py
        name = next((word for word in words if word.endswith((".py", ".sh"))), words[0])
        name = words[1] if words[0] == "-m" else name
        return os.path.basename(name).removesuffix(".py").removesuffix(".sh")

    def _read(self) -> tuple[list[str], bool, tuple[str, ...]]:
        """Return what follows the interpreter, see `_python_words`; whether trials are forks that run it; and what
        these have imported. The script is read anew for each run: a notebook edits its own."""
        words, source = _python_words(self._words), None
        if words:
            is_module = words[0] == "-m"
            base = os.path.join(self.directory, *words[1].split(".")) if is_module else ""
            names = [f"{base}.py", os.path.join(base, "__main__.py")] if is_module else words[:1]
            files = [path for name in names if os.path.isfile(path := os.path.join(self.directory, name))]
            source = Source(files[0], self.directory if is_module else None) if files else None
        is_own = self.fresh or self.workers > 1 or (source is not None and source.needs_own_interpreter)
        is_fork = bool(words) and not is_own
        imports = source.imports if source is not None and is_fork else ()
        return words, is_fork, (*imports, "sweep.programs.program")

    @property
    def __sweep_preload__(self) -> tuple[str, ...]:
        """The modules that trials are forked with: known before the script has said what it takes."""
        return self._read()[2]

    def __sweep_trainable__(self) -> PreparedTrainable:
        """Return the program in the form in which engines take it."""
        words, is_fork, imports = self._read()
        interface = interface_of([sys.executable, *words] if words else self._words, cwd=self.directory)
        why = interface.why
        alone = [sys.executable] if self._words[0].endswith(".py") else []  # a script as a child
        template = words if is_fork else [*alone, *self._words]
        trial = partial(run_trial, self, template, is_fork, interface)

        def space(config: Mapping[str, Any]) -> dict[str, Any]:
            if not self.config_file and not self.closed:
                extra = appended(self._words, config)
                check_space(interface, {name: config[name] for name in extra}, self.name)
            if self.config_file:
                given = Path(self.directory, self.config_file)
                known = dict.fromkeys(dict(settings(interface, config)), 0)
                with_values(given, known, Path(os.devnull))  # refuses what the file does not have
            return dict(config)

        return PreparedTrainable(
            name=self.name,
            kind="function",
            payload=cloudpickle.dumps(partial(trial, "")),
            payload_for=lambda metric: cloudpickle.dumps(partial(trial, metric)),
            imports=imports,
            space=space,
            defaults={"checkpoint_config": CheckpointConfig(1), "resources_per_trial": {"cpu": self.workers}},
            notices=lambda config: [f"{self.name} was not asked for its options: {why}"] if why else [],
            command_line=lambda config: shlex.join(
                ["python"] * is_fork + rendered(self, template, interface, config, _UNKNOWN)
            ),
            observers=lambda notice, stops_early: [ProgramNotices(notice, stops_early=stops_early)],
        )


def _placed(word: str, here: str) -> str:
    """Return a script's path as it is found in the trial's own directory: relative within, absolute elsewhere."""
    if not word.endswith(".py") or not os.path.isfile(path := os.path.join(here, word)):
        return word
    path = os.path.normpath(path)
    return os.path.relpath(path, here) if path.startswith(os.path.join(here, "")) else path


def _python_words(words: Sequence[str]) -> list[str]:
    """Return what follows the interpreter, when it is the one that runs here: a script or `-m` and a module, and
    arguments; empty: it is another program."""
    rest = list(words)
    if not rest[0].endswith(".py"):
        found = _which(rest[0], os.curdir) if os.path.basename(rest[0]).startswith("python") else None
        if not found or os.path.dirname(os.path.abspath(found)) != os.path.dirname(os.path.abspath(sys.executable)):
            return []
        rest = list(dropwhile(_FLAGS.__contains__, rest[1:]))
    is_script = bool(rest) and rest[0].endswith(".py")
    return rest if is_script or (rest[:1] == ["-m"] and len(rest) > 1) else []


def _which(word: str, directory: str) -> str | None:
    """Return the file that a command's first word starts; None: there is none that can be executed."""
    return shutil.which(os.path.join(directory, word) if os.sep in word else word)
