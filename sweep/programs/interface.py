"""What arguments a Python script takes: found by running it once, in a child that stops where it parses them."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from searchers.errors import closest
from sweep.core.results import TRIAL_INDEX
from sweep.errors import ConfigError
from sweep.programs import ask
from sweep.programs.source import parsed

_SPEAKS = re.compile(
    r"(click|typer|fire|tyro|jsonargparse|simple_parsing|absl\.(app|flags)|hydra\.main)(\..*)?"
    r"|(.*\.)?(parse_(known_|intermixed_)?args\w*|LightningCLI|from_cli)"
)
_MODULE_FLAGS = ("-m", "--module")
_SWITCHES = ("flag", "off", "pair")
_NUMBERS = ("int", "integer", "float")
YES, NO = ("1", "1.0", "true", "yes", "on"), ("", "0", "0.0", "false", "no", "off")
_MOST_FILES, _MOST_NAMES = 100, 30


@dataclass(frozen=True)
class Option:
    """One thing that a program takes.

    Attributes:
        name: what the script calls it; a dotted path where options are nested.
        flags: how it is written, the best first; of a pair, the one for true and the one for false.
        kind: value, flag (given for true), off (given for false), pair, many (values after one flag), repeat (the flag
            once per value), count, positional, tree (`--name.key` is taken, too), or group (of keys of a config).
        default: as JSON can say it; other objects by their repr.
        before: the sub-command before whose name it stands; empty: at the end.
    """

    name: str
    flags: tuple[str, ...] = ()
    kind: str = "value"
    default: Any = None
    choices: tuple[Any, ...] | None = None
    type: str = ""
    help: str = ""
    required: bool = False
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
    options: tuple[Option, ...] = ()
    is_open: bool = True
    why: str = ""

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Interface:
        """Return what `dataclasses.asdict`, or JSON, holds of one."""
        options = (
            Option(**{**one, "flags": tuple(one["flags"]), "choices": one["choices"] and tuple(one["choices"])})
            for one in given["options"]
        )
        return cls(**{**given, "options": tuple(options)})

    def option(self, name: str) -> Option | None:
        """Return the option that a key of a config means: by its name or by a flag, `-` and `_` alike."""
        wanted = alike(name)
        named = [one for one in self.options if alike(one.name) == wanted]
        return next((one for one in (*named, *self.options) if one in named or wanted in map(alike, one.flags)), None)

    def takes(self, name: str) -> bool:
        """Say whether an option, or a tree of options, has this name."""
        if self.kind == "hydra" and name.startswith(("+", "~", "hydra.")):
            return True
        trees = tuple(f"{alike(one.name)}." for one in self.options if one.kind == "tree")
        return self.option(name) is not None or alike(name).startswith(trees)


def alike(name: str) -> str:
    """Return a name or a flag without what is written in either way."""
    return name.lstrip("-").replace("-", "_")


def interface_of(
    argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, timeout_s: float = 30
) -> Interface:
    """Run a Python command up to where it parses its arguments, and return what it takes.

    A script that mentions no library for arguments, itself or in the modules beside it, is not run. The child sees no
    GPU, and ends at the latest where the script would build an optimizer or start a run of a tracker.

    Args:
        argv: such as `["torchrun", "train.py", "fit"]`. The fixed arguments choose the sub-command; those with a
            `{placeholder}` are left out.
        cwd: where it runs. env: its environment; None: this one.
    """
    directory, environment = Path(cwd or "").absolute(), {**(os.environ if env is None else env)}
    roots = [directory, *(directory / path for path in environment.get("PYTHONPATH", "").split(":") if path)]
    target, index = _target(argv, directory, roots)
    if target is None or not _speaks_of_arguments(target, [target.parent, *roots]):
        return Interface("none")
    is_module = index > 0 and argv[index - 1] in _MODULE_FLAGS
    what = ("module", argv[index]) if is_module else ("script", str(target))
    fixed = [word for word in argv[index + 1 :] if not re.search(r"\{\w+\}", word)]
    environment |= {"CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled", "PYTHON_TYRO_BACKEND": "argparse"}
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as said:
        command = [_python(argv[:index], directory), ask.__file__, str(answer.fileno()), *what, *fixed]
        try:
            why = f"it ended with code {_run(command, directory, environment, said, answer.fileno(), timeout_s)}"
        except subprocess.TimeoutExpired:
            why = f"it parsed no arguments within {timeout_s:g} s"
        except OSError as error:
            why = f"{command[0]} cannot be started: {error.strerror}"
        answer.seek(0)
        said.seek(max(0, said.seek(0, os.SEEK_END) - 2000))
        found, last = answer.read(), said.read().decode(errors="replace").strip()
    if found:
        return Interface.from_dict(json.loads(found))
    return Interface("none", why=f"{why}: {last[-300:]}" if last else why)


def _run(command: Sequence[str], cwd: Path, env: Mapping[str, str], said: IO[bytes], fd: int, timeout_s: float) -> int:
    """Run the child, end all processes of its group, and return its code."""
    child = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=[fd], process_group=0
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


def _speaks_of_arguments(script: Path, roots: Sequence[Path]) -> bool:
    """Say whether a script, or a local module that it imports, names what parses arguments."""
    waiting, seen = [script], {script}
    while waiting and len(seen) < _MOST_FILES:
        file = waiting.pop(0)
        try:
            body = parsed(file).body
        except (OSError, SyntaxError, ValueError):  # the interpreter that runs it will say so
            continue
        if file != script:  # what it does as a program of its own
            body = [node for node in body if not isinstance(node, ast.If) or "__main__" not in ast.dump(node.test)]
        nodes = [node for one in body for node in ast.walk(one)]
        imported = {name for node in nodes for name in _imported(node)}
        used = {f"{getattr(one.value, 'id', '')}.{one.attr}" for one in nodes if isinstance(one, ast.Attribute)}
        if any(map(_SPEAKS.fullmatch, imported | used)):
            return True
        modules = {name[: match.start()] for name in imported for match in re.finditer(r"\.|$", name)}
        for root in [*roots, file.parent, file.parent.parent]:
            for path in (root / name.replace(".", "/") for name in modules):
                found = {one for one in (path.with_suffix(".py"), path / "__init__.py") if one not in seen}
                waiting += (new := [one for one in found if one.is_file()])
                seen |= {*new}
    return bool(waiting)


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a node imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names)


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
        option = interface.option(name) or Option(name)
        expected = _expected(interface, option)
        wrong = [one for one in values if one is not None and not _suits(option, one)] if expected else []
        if wrong:
            raise ConfigError(f"{program} does not take {name}={', '.join(map(repr, wrong))}; {expected}.")


def _expected(interface: Interface, option: Option) -> str:
    """Return what an option takes, in words; empty: all that can be written, for all one knows."""
    if option.choices and option.kind in ("value", "positional"):
        return f"its choices are {', '.join(map(str, option.choices))}"
    if option.kind in _SWITCHES:
        return "it is true or false"
    is_checked = interface.kind in ("argparse", "click", "absl") and option.kind in ("value", "positional")
    return "it is a number" if is_checked and option.type in _NUMBERS else ""


def _suits(option: Option, value: Any) -> bool:
    word = str(value).lower()
    if option.kind in _SWITCHES:
        return word in YES or word in NO
    if option.choices:
        return word in {str(one).lower() for one in option.choices}  # some ignore the case
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


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
