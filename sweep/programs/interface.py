"""What arguments a Python script takes: found by running it once, in a child that stops where it parses them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchers.errors import closest
from sweep.core.literals import parse_literal
from sweep.core.results import TRIAL_INDEX
from sweep.errors import ConfigError
from sweep.programs import ask
from sweep.programs.source import parses_arguments

_MODULE_FLAGS = ("-m", "--module")
SWITCHES = ("flag", "off", "pair")
_NUMBERS = ("int", "integer", "float")
YES, NO = ("1", "1.0", "true", "yes", "on"), ("", "0", "0.0", "false", "no", "off")
_MOST_NAMES = 30


@dataclass(frozen=True)
class Option:
    """One thing that a program takes.

    Attributes:
        name: what the script calls it; a dotted path where options are nested.
        flags: how it is written, the best first; of a pair, the one for true and the one for false.
        kind: value, flag (given for true), off (given for false), pair, many (values after one flag), repeat (the flag
            once per value), positional, tree (`--name.key` is taken, too), or group (of keys of a config).
        default: as JSON can say it; other objects by their repr.
        before: the sub-command before whose name it stands; empty: at the end.
    """

    name: str
    flags: Sequence[str] = ()
    kind: str = "value"
    default: Any = None
    choices: Sequence[Any] | None = None
    type: str = ""
    help: str = ""
    before: str = ""


@dataclass(frozen=True)
class Interface:
    """What a program takes.

    Attributes:
        kind: argparse, click, absl, fire, hydra, or none: not known.
        is_open: unknown names are taken, or may be.
        why: what is not known, and why; empty with kind none: the program names no library that parses arguments.
    """

    kind: str
    options: Sequence[Option] = ()
    is_open: bool = True
    why: str = ""

    def option(self, name: str) -> Option | None:
        """Return the option that a key of a config means: by its name or by a flag, `-` and `_` alike."""
        wanted = alike(name)
        by_name = (one for one in self.options if alike(one.name) == wanted)
        by_flag = (one for one in self.options if wanted in map(alike, one.flags))
        return next(itertools.chain(by_name, by_flag), None)

    def takes(self, name: str) -> bool:
        """Say whether an option, or a tree of options, has this name."""
        if self.kind == "hydra" and name.startswith(("+", "~", "hydra.")):
            return True
        trees = tuple(f"{alike(one.name)}." for one in self.options if one.kind == "tree")
        return self.option(name) is not None or alike(name).startswith(trees)


def alike(name: str) -> str:
    """Return a name or a flag without what is written in either way."""
    return name.lstrip("-").replace("-", "_")


def interface_of(argv: Sequence[str], *, cwd: str | None = None, timeout_s: float = 30) -> Interface:
    """Run a Python command up to where it parses its arguments, and return what it takes.

    A script that mentions no library for arguments, itself or in the modules beside it, is not run. The child sees no
    GPU, and ends at the latest where the script would build an optimizer or start a run of a tracker.

    Args:
        argv: such as `["torchrun", "train.py", "fit"]`. The fixed arguments choose the sub-command; those with a
            `{placeholder}` are left out.
        cwd: where it runs.
    """
    directory = Path(cwd or "").absolute()
    roots = [directory, *(directory / path for path in os.environ.get("PYTHONPATH", "").split(":") if path)]
    target, index = _target(argv, directory, roots)
    is_module = index > 0 and argv[index - 1] in _MODULE_FLAGS
    if target is None or not parses_arguments(target, roots if is_module else [target.parent, *roots]):
        return Interface("none")
    what = ("module", argv[index]) if is_module else ("script", str(target))
    fixed = [word for word in argv[index + 1 :] if not re.search(r"\{\w+\}", word)]
    with tempfile.TemporaryFile() as answer:
        command = [_python(argv[:index], directory), ask.__file__, str(answer.fileno()), *what, *fixed]
        try:
            why = f"it ended with code {_run(command, directory, answer.fileno(), timeout_s)}"
        except subprocess.TimeoutExpired:
            why = f"it parsed no arguments within {timeout_s:g} s"
        except OSError as error:
            why = f"{command[0]} cannot be started: {error.strerror}"
        answer.seek(0)
        found = answer.read()
    if not found:
        return Interface("none", why=why)
    given = json.loads(found)
    return Interface(**given | {"options": [Option(**one) for one in given["options"]]})


def _run(command: Sequence[str], cwd: Path, fd: int, timeout_s: float) -> int:
    """Run the child, end all processes of its group, and return its code."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled"}
    null = subprocess.DEVNULL
    child = subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=null, stdout=null, stderr=null, pass_fds=[fd], process_group=0
    )
    try:
        return child.wait(timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _target(argv: Sequence[str], directory: Path, roots: Sequence[Path]) -> tuple[Path | None, int]:
    """Return the file of the script or the local module that a command runs, and where it is named."""
    for index, word in enumerate(argv):
        if index and argv[index - 1] in _MODULE_FLAGS:
            path = word.replace(".", "/")
            found = [root / one for root in roots for one in (f"{path}.py", f"{path}/__main__.py")]
        else:
            found = [directory / word] if word.endswith(".py") else []
        if file := next((one for one in found if one.is_file()), None):
            return file, index
    return None, 0


def _python(before: Sequence[str], directory: Path) -> str:
    """Return the interpreter that runs what stands after these words."""
    for word in before:
        if re.fullmatch(r"python[\d.]*", os.path.basename(word)):
            return word if os.sep not in word else str(directory / word)
    places = [directory / ".venv" / "bin", *(Path(found).parent for found in map(shutil.which, before[:1]) if found)]
    own = [place / "python" for place in places if (place.parent / "pyvenv.cfg").exists()]
    return str(own[0]) if own and before else sys.executable


# --- what is wrong with a search space ---


def check_names(interface: Interface, names: Iterable[str], program: str) -> None:
    """Refuse parameters that a program does not take, all at once, each with the nearest that it takes."""
    unknown = [name for name in names if not interface.takes(name)]
    if interface.is_open or not unknown:
        return
    known = [one.name for one in interface.options]
    more = f", ... ({len(known)} in all)" if len(known) > _MOST_NAMES else ""
    said = [f"{name!r}{f' (did you mean {near!r}?)' if (near := closest(name, known)) else ''}" for name in unknown]
    takes = f"It takes {', '.join(known[:_MOST_NAMES])}{more}." if known else "It takes none."
    raise ConfigError(f"{program} takes no parameter {', nor '.join(said)}. {takes} {interface.why}".rstrip())


def check_space(interface: Interface, space: Mapping[str, Any], program: str) -> None:
    """Refuse a search space with names or values that a program does not take.

    Args:
        space: name -> constant, grid or domain; may be nested. Of domains only categories are looked at.
    """
    given = dict(settings(interface, space))
    check_names(interface, given, program)
    for name, value in given.items():
        listed = value.get("grid_search") if isinstance(value, Mapping) else getattr(value, "categories", None)
        values = listed if listed is not None else () if hasattr(value, "sample") else (value,)
        expected, suits = _expected(interface, interface.option(name) or Option(name))
        wrong = [one for one in values if one is not None and not suits(str(one).lower())]
        if wrong:
            raise ConfigError(f"{program} does not take {name}={', '.join(map(repr, wrong))}; {expected}.")


def _expected(interface: Interface, option: Option) -> tuple[str, Callable[[str], bool]]:
    """Return what an option takes, in words, and what says whether it takes a value in small letters."""
    if option.kind in SWITCHES:
        return "it is true or false", {*YES, *NO}.__contains__
    if option.kind in ("value", "positional"):
        if option.choices:
            known = {str(one).lower() for one in option.choices}  # some ignore the case
            return f"its choices are {', '.join(map(str, option.choices))}", known.__contains__
        if interface.kind in ("argparse", "click", "absl") and option.type in _NUMBERS:
            return "it is a number", lambda word: isinstance(parse_literal(word), (int, float))
    return "", lambda word: True


def settings(interface: Interface, config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each setting of a config; what one option takes whole stays whole."""
    for key, value in config.items():
        if key == TRIAL_INDEX:
            continue
        name, is_nested = f"{path}{key}", isinstance(value, Mapping) and value and "grid_search" not in value
        option = interface.option(name) if is_nested else None
        if is_nested and (option is None or option.kind in ("tree", "group")):
            yield from settings(interface, value, f"{name}.")
        else:
            yield name, value
