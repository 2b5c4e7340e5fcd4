"""The child side of `interface.py`: run a Python script up to where it parses its arguments, and write what it takes.

It is started by its path in the interpreter of the user's program: it imports nothing of this package and runs on
Python 3.8. What parses arguments is replaced by what answers and ends the process.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import functools
import importlib.util
import inspect
import json
import linecache
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn

_MOST_CHOICES = 200
_PATIENCE_S = 5  # for a script that parses some of its arguments and seems to go on parsing
_ASIDE = {"_HelpAction", "_VersionAction", "_ActionPrintConfig", "_ActionHelpClassPath"}
_KINDS = {"_StoreFalseAction": "off", "_ExtendAction": "many", "_AppendAction": "repeat", "_ActionConfigLoad": "group"}
_fd = 1
_fixed: list[str] = []  # arguments
_seen: list[dict[str, Any]] = []  # options of parsers that parsed some arguments, before the last one
_parse_known = argparse.ArgumentParser.parse_known_args


def _answer(kind: str, options: Iterable[dict[str, Any]] = (), is_open: bool = True, why: str = "") -> NoReturn:
    """Write the answer and end the process at once: nothing that the script has registered runs."""
    if kind == "none" and _seen:
        kind, why = "argparse", ""
    by_name = {one["name"]: one for one in (*_seen, *options)}
    answer = {"kind": kind, "options": [*by_name.values()], "is_open": is_open, "why": why}
    os.write(_fd, json.dumps(answer, default=str, skipkeys=True).encode())
    os._exit(0)


def _option(
    name: str, flags: list[str], kind: str, default: Any, type_: Any = None, choices: Any = (), told: Any = ""
) -> dict[str, Any]:
    """Return an option as `interface.Option` has it."""
    listed = [*choices] if isinstance(choices, Collection) and len(choices) <= _MOST_CHOICES else []
    are_plain = all(isinstance(one, (str, int, float)) for one in listed)  # how others are written is not known
    if type_ is None:
        type_ = "" if default is None else type(default)
    return {
        "name": name,
        "flags": flags,
        "kind": kind,
        "default": None if isinstance(default, str) and default == argparse.SUPPRESS else default,
        "choices": listed if listed and are_plain else None,
        "type": getattr(type_, "__name__", str(type_)),
        "help": " ".join(str(told or "").split()),
    }


def _answer_command(kind: str, describe: Callable[[Any], tuple[Any, ...]], command: Any) -> NoReturn:
    """Answer with the options of the sub-command that the fixed arguments choose, and of those around it, which stand
    before its name. `describe` returns a command's options, its sub-commands, and whether unknown options are taken."""
    options, commands, is_open = describe(command)
    for word in _fixed:
        if word in commands:
            inner, commands, is_open = describe(commands[word])
            names = {one["name"] for one in inner}
            around = (one for one in options if one["kind"] != "positional" and one["name"] not in names)
            options = [*inner, *({"before": word, **one} for one in around)]
    which = f"It has the sub-commands {', '.join(commands)}: give one as a fixed argument, after --."
    _answer(kind, options, is_open, which if commands else "")


def _answer_parser(parser: Any, *more: Any, is_open: bool = False, **named: Any) -> NoReturn:
    is_open = is_open or named.get("return_remaining_strings", False)  # HfArgumentParser's
    _answer_command("argparse", lambda one: (*_parser_options(one), is_open), parser)


def _parser_options(parser: Any) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """Return the options of a parser, and its sub-commands by name."""
    options: dict[str, dict[str, Any]] = {}
    commands: Mapping[str, Any] = {}
    for action in parser._actions:
        classes = {base.__name__ for base in type(action).__mro__}  # some libraries have a copy of argparse
        if "_SubParsersAction" in classes:
            commands = action.choices
        elif not classes & _ASIDE:
            one = _action_option(action, classes)
            same = options.setdefault(one["name"], one)
            by_kind = {same["kind"]: same, one["kind"]: one}
            if by_kind.keys() == {"flag", "off"}:  # --x and --no-x
                same.update(kind="pair", flags=[by_kind["flag"]["flags"][0], by_kind["off"]["flags"][0]])
    return [*options.values()], commands


def _action_option(action: Any, classes: set[str]) -> dict[str, Any]:
    long = [one for one in action.option_strings if one[:2] == "--" and one[-1] != "+"]
    flags = [*long, *(one for one in action.option_strings if one[:2] != "--")]
    default, hint = action.default, getattr(action, "_typehint", None)  # jsonargparse's
    told = (action.help or "").replace("<__TEMP__>", "")  # simple-parsing's
    kind = next((kind for name, kind in _KINDS.items() if name in classes), None)
    if "BooleanOptionalAction" in classes and long[1:]:
        kind, flags = "pair", [long[0], long[-1]]
    elif not flags:
        kind = "positional"
    elif kind is None and hint and (action.is_subclass_typehint(hint) or action.is_mapping_typehint(hint)):
        kind = "tree"
    elif kind is None:
        kind = "flag" if action.nargs == 0 else "value" if action.nargs in (None, "?", 1) else "many"
    name = flags[0].lstrip("-") if "." in action.dest and flags else action.dest  # simple-parsing keeps it elsewhere
    type_ = "boolean" if hint is bool else hint or action.type or (type(default) if isinstance(default, bool) else "")
    if "Missing" in type(default).__name__:  # tyro has it in the help
        match = re.search(r"\(default: (.*?)\)", told)
        default = match and match[1]
        with contextlib.suppress(SyntaxError, ValueError):
            default = ast.literal_eval(default or "None")
        type_ = type(default)
    return _option(name.replace("-", "_"), flags, kind, default, type_, action.choices, told)


def _parse_args(parser: Any, args: Any = None, namespace: Any = None) -> Any:
    """Go on to `_parse_known_args`, which answers: a subclass may add arguments before it calls that."""
    parser.takes_all = sys._getframe(1).f_globals.get("__name__") not in ("hydra.main", "hydra._internal.utils")
    return parser.parse_known_args(args, namespace)[0]


def _parse_known_args(parser: Any, *given: Any, **named: Any) -> Any:
    frame = sys._getframe(1)
    takes_all, file = vars(parser).get("takes_all"), frame.f_code.co_filename
    if takes_all:
        _answer_parser(parser)
    if takes_all is None and file != argparse.__file__:
        below = linecache.getlines(file)[frame.f_lineno :]
        if parser.add_help and not any("parse_args(" in line or "parse_known" in line for line in below):
            _answer_parser(parser, is_open=True)
        _seen.extend(_parser_options(parser)[0])
        signal.signal(signal.SIGALRM, lambda *signal: _answer("none"))
        signal.alarm(_PATIENCE_S)
    return _parse_known(parser, *given, **named)


def _answer_tyro(function: Any, *, args: Any = None, return_unknown_args: bool = False, **more: Any) -> NoReturn:
    get_parser = sys.modules["tyro._cli"].get_parser
    known = more.keys() & inspect.signature(get_parser).parameters.keys()
    _answer_parser(get_parser(function, **{name: more[name] for name in known}), is_open=return_unknown_args)


def _answer_click(command: Any, *more: Any, **named: Any) -> NoReturn:
    _answer_command("click", _command_options, command)


def _command_options(command: Any) -> tuple[list[dict[str, Any]], dict[str, Any], bool]:
    """Return the options of a command, its sub-commands by name, and whether it takes options that are unknown."""
    context = command.context_class(command, info_name=command.name)
    options = [_parameter_option(one, context) for one in command.get_params(context) if one.expose_value]
    if hasattr(command, "get_command"):
        names = command.list_commands(context)
        return options, {name: name in _fixed and command.get_command(context, name) for name in names}, False
    return options, {}, context.ignore_unknown_options or context.allow_extra_args


def _parameter_option(one: Any, context: Any) -> dict[str, Any]:
    flags, off = sorted(one.opts, key=len, reverse=True), getattr(one, "secondary_opts", None)
    if one.param_type_name == "argument":
        kind, flags = "positional", []
    elif off:
        kind, flags = "pair", [flags[0], max(off, key=len)]
    elif getattr(one, "is_flag", False) or getattr(one, "count", False):
        kind = "off" if getattr(one, "flag_value", True) is False else "flag"
    else:
        kind = "repeat" if getattr(one, "multiple", False) else "value" if one.nargs == 1 else "many"
    default = one.get_default(context, call=False)
    default = None if callable(default) or "UNSET" in repr(default) else default
    attribute = "name" if hasattr(one, "type") else "value"  # of an enumeration; typer has a descriptor of its own
    described = getattr(one, "type", None) or one.type_descriptor
    choices = [getattr(choice, attribute, choice) for choice in getattr(described, "choices", None) or ()]
    type_ = getattr(described, "name", None)
    return _option(one.name, flags, kind, default, type_, choices, getattr(one, "help", ""))


def _answer_absl(values: Any, argv: Any, known_only: bool = False) -> NoReturn:
    by_module = reversed([*values.flags_by_module_dict().items()])  # those of libraries last
    flags = [flag for name, flags in by_module if not name.startswith("absl.") for flag in flags]
    _answer("absl", map(_flag_option, flags), known_only)


def _flag_option(flag: Any) -> dict[str, Any]:
    kind = "repeat" if "Multi" in type(flag).__name__ else "value"
    kind = "pair" if flag.boolean else "tree" if "Config" in type(flag).__name__ else kind  # of ml_collections
    flags = [f"--{flag.name}", f"--no{flag.name}"][: 1 + bool(flag.boolean)]
    type_ = "list" if "List" in type(flag.parser).__name__ else flag.flag_type()
    return _option(flag.name, flags, kind, flag.default, type_, getattr(flag.parser, "enum_values", None), flag.help)


def _answer_fire(component: Any = None, *more: Any, **named: Any) -> NoReturn:
    """Answer with the parameters of all that Fire would call on the way to what the fixed arguments name."""
    called = [sys._getframe(1).f_globals if component is None else component]
    for word in (word for word in _fixed if word[:1] not in ("-", "_")):
        at = called[-1]
        called.append(at.get(word) if isinstance(at, dict) else getattr(at, word.replace("-", "_"), None))
    found = [one for part in called if callable(part) for one in inspect.signature(part).parameters.values()]
    options = []
    for one in found:
        if one.name not in ("self", "cls") and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            default, type_ = (None if value is one.empty else value for value in (one.default, one.annotation))
            options.append(_option(one.name, [f"--{one.name}"], "value", default, type_))
    why = "" if options else "Name one of its functions as a fixed argument."
    _answer("fire", options, not options or any(one.kind == one.VAR_KEYWORD for one in found), why)


def _answer_hydra(hydra: Any, config_name: Any, task_function: Any, overrides: Any, **more: Any) -> NoReturn:
    """Answer with the keys of the config that Hydra composes with the fixed overrides; with none if it cannot."""
    config: dict[Any, Any] = {}
    with contextlib.suppress(Exception):
        composed = hydra.compose_config(config_name, overrides, sys.modules["hydra.types"].RunMode.RUN)
        config = sys.modules["omegaconf"].OmegaConf.to_container(composed)
    config.pop("hydra", None)
    _answer("hydra", _keys(config), not config, "" if config else "Hydra composed no config.")


def _keys(config: Mapping[Any, Any], path: str = "") -> Iterator[dict[str, Any]]:
    for key, value in config.items():
        name, is_group = f"{path}{key}", isinstance(value, dict)
        yield _option(name, [name], "group" if is_group else "value", None if is_group or value == "???" else value)
        yield from _keys(value if is_group else {}, f"{name}.")


def _end(what: str, *more: Any, **named: Any) -> NoReturn:
    """End a script that has come to its work: it parses nothing any more."""
    _answer("none", why=f"it calls {what} before it parses arguments")


_REPLACED: dict[str, dict[str, Callable[..., Any]]] = {
    "absl.flags._flagvalues": {"FlagValues.__call__": _answer_absl},
    "argparse": {"ArgumentParser.parse_args": _parse_args, "ArgumentParser.parse_known_args": _parse_known_args},
    "click.core": {"Command.main": _answer_click},
    "fire.core": {"Fire": _answer_fire},
    "hydra._internal.hydra": {"Hydra.run": _answer_hydra, "Hydra.multirun": _answer_hydra},
    "jsonargparse._core": {"ArgumentParser.parse_args": _answer_parser},
    "mlflow": {"start_run": functools.partial(_end, "start_run")},
    "omegaconf.omegaconf": {"OmegaConf.from_cli": lambda args=None: _answer("hydra")},
    "tensorboardX.writer": {"SummaryWriter.__init__": functools.partial(_end, "SummaryWriter")},
    "torch.optim.optimizer": {"Optimizer.__init__": functools.partial(_end, "Optimizer")},
    "torch.utils.tensorboard.writer": {"SummaryWriter.__init__": functools.partial(_end, "SummaryWriter")},
    "transformers.hf_argparser": {"HfArgumentParser.parse_args_into_dataclasses": _answer_parser},
    "typer._click.core": {"Command.main": _answer_click},
    "typer.core": {"TyperCommand.main": _answer_click, "TyperGroup.main": _answer_click},
    "tyro._cli": {"cli": _answer_tyro},
    "wandb": {"init": functools.partial(_end, "init")},
}
"""Module -> what is replaced in it once it is imported."""


def _replace(module: Any, functions: Mapping[str, Callable[..., Any]]) -> None:
    for path, function in functions.items():
        *outer, name = path.split(".")
        setattr(functools.reduce(getattr, outer, module), name, function)


class _Watcher:
    """Finds the modules of `_REPLACED` as the others do, and replaces what was loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        functions = _REPLACED.pop(name, {})
        spec = importlib.util.find_spec(name) if functions else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: [execute(module), _replace(module, functions)]  # type: ignore
        return spec


def main(fd: str, kind: str, target: str, *fixed: str) -> None:
    """Run a script or a module with its fixed arguments, and answer on the descriptor."""
    global _fd
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: it ends with who asks
    _fd = int(fd)
    _fixed[:] = fixed
    _replace(argparse, _REPLACED.pop("argparse"))
    sys.meta_path.insert(0, _Watcher())
    sys.argv = [target, *fixed]
    sys.path[0] = os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(target))
    run = functools.partial(runpy.run_module, alter_sys=True) if kind == "module" else runpy.run_path
    try:
        run(target, run_name="__main__")
    except BaseException as error:  # whatever the user's script raises
        _answer("none", why=f"it ended with {type(error).__name__}: {error}")
    _answer("none", why="it ended without parsing arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
