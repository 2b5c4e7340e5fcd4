"""What a recorded sweep was asked, and its trainable: found again by its path, or taken from where it is kept."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Collection
from operator import attrgetter
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.errors import ConfigError, ExperimentError, SweepError, TrainableError
from sweep.record.importing import DriverCalled, ended_at, load_file, why_missing
from sweep.record.reader import ExperimentReader
from sweep.record.saved_spec import read_saved_spec, with_environment


def split_target(text: str) -> tuple[str, str] | None:
    """Return (file, name) of `file.py:name`, or None if `text` is no such thing."""
    file, colon, name = text.rpartition(":")
    return (file, name) if colon and file.endswith(".py") and name else None


def import_trainable(target: str, notice: Callable[[str], None] | None = None) -> Any:
    """Import `file.py:name` and return what `name` is there; the file's directory comes first on `sys.path`.

    The file is imported as the module of its name, as `python file.py` would see its neighbours. Code under
    `if __name__ == "__main__":` does not run, and where it starts a sweep of its own, it ends: `notice` is told."""
    if split_target(target) is None:
        raise ConfigError(f"{target!r} is no trainable; expected FILE.py:FUNCTION, such as train.py:train.")
    value = import_named(target, notice)
    if not callable(value) and not hasattr(value, "__sweep_trainable__"):
        file, _, name = target.rpartition(":")
        found = type(value).__name__
        raise ConfigError(f"{name!r} in {Path(file).name} is a {found}; expected a function, a class or a trainer.")
    return value


def import_named(target: str, notice: Callable[[str], None] | None = None) -> Any:
    """Return what `file.py:name`, see `import_trainable`, or `package.module:name` is."""
    parts = split_target(target)
    if parts is None:
        module, _, name = target.rpartition(":")
        if sys.path[:1] != [os.getcwd()]:
            sys.path.insert(0, os.getcwd())
        try:
            return attrgetter(name)(importlib.import_module(module))
        except Exception as error:  # whatever the user's module raises while it is imported, or the lack of a name
            raise ConfigError(
                f"{target}: {type(error).__name__}: {error}. Expected MODULE:NAME or FILE.py:NAME."
            ) from error
    path, name = Path(parts[0]).expanduser().absolute(), parts[1]
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path}. {nearest(path.name, [one.name for one in path.parent.glob('*.py')])}"
        )
    refuse_shadows(path.parent)
    module = _import(path)
    call = ended_at(module.__name__)
    if call is not None and notice is not None:
        notice(f"{call}. Here that is not run, nor what stands below it.")
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            known = [key for key, item in vars(value).items() if callable(item) and not key.startswith("_")]
            why = f"{call}, where an import by sweep ends. Define {name!r} above." if call else nearest(part, known)
            raise ConfigError(f"{path.name} has no {name!r}. {why}")
        value = getattr(value, part)
    return value


def refuse_shadows(directory: Path) -> None:
    """Say when a file beside the script hides this package: the script and all trials would import that one."""
    import sweep

    own = Path(sweep.__file__).parent
    for package in ("sweep", "searchers"):
        for shadow in (directory / f"{package}.py", directory / package / "__init__.py"):
            if shadow.is_file() and shadow.parent.resolve() not in (own.resolve(), own.parent.resolve() / "searchers"):
                raise ConfigError(
                    f"{shadow} hides the package {package!r}: "
                    f"`import {package}` in your script would find that file. Rename it."
                )


def _import(path: Path) -> Any:
    directory, name, loaded = str(path.parent), path.stem, sys.modules.get(path.stem)
    if sys.path[:1] != [directory]:
        sys.path.insert(0, directory)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "") == path:
        return loaded
    if loaded is not None or name in sys.builtin_module_names or not name.isidentifier():
        # It is no name of a module, or that of another: loaded beside it, and shipped to trials by value.
        name = f"sweep_script_{re.sub(r'[^A-Za-z0-9]', '_', name)}"
    argv, sys.argv = sys.argv, [str(path)]  # a script that parses its arguments finds none of ours
    try:
        return load_file(name, path)
    except (Exception, SystemExit, DriverCalled) as error:  # whatever the user's file raises while it is imported
        why = why_missing(error)
        said = f"{type(error).__name__}: {error}" if not isinstance(error, DriverCalled) else str(error)
        raise TrainableError(f"importing {path} failed: {said}{'. ' if why else ''}{why}") from error
    finally:
        sys.argv = argv


def asked(
    reader: ExperimentReader,
    storage: str,
    notice: Callable[[str], None] | None = None,
    trainable: Any = None,
    spare: Collection[str] = (),
) -> tuple[Any, dict[str, Any]]:
    """Return the trainable of a sweep, unless it is given, and the arguments of the call that started it, for going on;
    without those in `spare`."""
    target = str(reader.meta.get("import_path") or "")
    file = target.rpartition(":")[0]
    how = (
        f" {reader.name} was started from Python; resume it there{f' ({file})' if file else ''}: make the same call "
        f"with name={reader.root.name!r}, storage_path={storage!r}, resume=True. "
        "Raise num_samples or time_budget_s in it to extend the sweep."
    )
    if str(reader.meta.get("command")).startswith("sweep "):
        how = ""
    sys.path.insert(0, os.path.dirname(file) or os.getcwd())  # where the script finds its own modules
    try:
        given, lost = read_saved_spec(reader.root, with_trainable=True)
        own = given.pop("trainable", None)
        trainable = own if trainable is None else trainable
        given |= reader.edits()
        lost = {name: why for name, why in lost.items() if name not in spare and (name != "trainable" or not trainable)}
        if trainable is None and target and not lost:
            trainable = import_trainable(target, notice)
    except SweepError as error:
        raise type(error)(f"{error}{how}") from error.__cause__
    if trainable is None or lost:
        what = ", ".join(f"{name} ({why})" for name, why in lost.items()) or "the trainable"
        raise ExperimentError(f"{what} cannot be loaded here.{how}")
    if notice is None:
        given.pop("progress_reporter", None)
    if target:
        given["import_path"] = target
    given |= {"name": reader.root.name, "storage_path": storage}
    return trainable, with_environment({name: value for name, value in given.items() if name not in spare}, os.environ)
