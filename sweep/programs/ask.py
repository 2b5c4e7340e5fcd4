"""The child side of `interface.py`: run a Python script up to where it parses its arguments, and write what it takes.

It is started by its path in the interpreter of the user's program: it imports nothing of this package and runs on
Python 3.8. What parses arguments is replaced by what answers and ends the process.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import importlib.util
import inspect
import io
import itertools
import json
import linecache
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

_MOST_CHOICES, _MOST_SHOWN = 200, 20
_PR_SET_PDEATHSIG = 1
_PATIENCE_S = 5  # for a script that parses some of its arguments and seems to go on parsing
_ASIDE = {"_HelpAction", "_VersionAction", "_ActionPrintConfig", "_ActionHelpClassPath"}
_COMPLETION = ("install_completion", "show_completion")  # typer's
_fd = 1
_is_composing = False
_fixed: list[str] = []  # arguments
_seen: list[dict[str, Any]] = []  # options of parsers that parsed some arguments, before the last one


def _answer(kind: str, options: Sequence[dict[str, Any]], is_open: bool = False, why: str = "") -> NoReturn:
    """Write the answer and end the process at once: nothing that the script has registered runs."""
    names = {one["name"] for one in options}
    found = [*(one for one in _seen if one["name"] not in names), *options]
    os.write(_fd, json.dumps({"kind": kind, "options": found, "is_open": is_open, "why": why}).encode())
    os._exit(0)


def _give_up(why: str) -> NoReturn:
    """End the process with what was seen so far."""
    _answer("argparse" if _seen else "none", (), True, "" if _seen else why)


def _option(
    name: str,
    flags: Sequence[str],
    kind: str,
    default: Any = None,
    choices: Any = None,
    type_: Any = None,
    told: Any = "",
    required: bool = False,
) -> dict[str, Any]:
    if type_ is None:
        type_ = "" if default is None else type(default)
    listed = [*itertools.islice(choices or (), _MOST_CHOICES + 1)]
    are_plain = 0 < len(listed) <= _MOST_CHOICES and all(isinstance(one, (str, int, float)) for one in listed)
    return {
        "name": name,
        "flags": sorted(flags, key=lambda flag: not flag.startswith("--")),
        "kind": kind,
        "default": _plain(default),
        "choices": listed if are_plain else None,  # how others are written is not known
        "type": getattr(type_, "__name__", str(type_)),
        "help": " ".join(str(told or "").split()),
        "required": bool(required),
    }


def _plain(value: Any) -> Any:
    """Return what JSON can say of a value."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return None if value == argparse.SUPPRESS else value
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, os.PathLike):
        return str(value)
    return getattr(value, "name", None) or getattr(value, "__name__", None) or repr(value)


def _named_one(commands: Sequence[str]) -> str:
    shown = ", ".join([*commands][:_MOST_SHOWN]) + ", ..." * (len(commands) > _MOST_SHOWN)
    return f"It has the sub-commands {shown}: give one as a fixed argument, after --." if commands else ""


def _placed(before: str, outer: Sequence[dict[str, Any]], inner: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the options of a sub-command, and those of the commands around it, which stand before its name."""
    names = {one["name"] for one in inner}
    around = [one for one in outer if one["kind"] != "positional" and one["name"] not in names]
    return [*inner, *({"before": before, **one} for one in around)]


# --- argparse, and what stands on it ---


def _answer_parser(parser: Any, is_open: bool = False) -> NoReturn:
    options, commands = _parser_options(parser, _fixed)
    _answer("argparse", options, is_open, _named_one(commands))


def _parser_options(parser: Any, given: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the options of the sub-command that the given words choose, or the sub-commands if they choose none."""
    options: list[dict[str, Any]] = []
    commands: dict[str, Any] = {}
    for action in parser._actions:
        kinds = {base.__name__ for base in type(action).__mro__}  # some libraries have a copy of argparse
        if "_SubParsersAction" in kinds:
            commands = action.choices
        elif not kinds & _ASIDE:
            options.append(_action_option(action, kinds))
    first: dict[str, dict[str, Any]] = {}
    for one in options:
        same = first.setdefault(one["name"], one)
        by_kind = {same["kind"]: same, one["kind"]: one}
        if by_kind.keys() == {"flag", "off"}:  # --x and --no-x
            same.update(kind="pair", flags=[by_kind["flag"]["flags"][0], by_kind["off"]["flags"][0]])
    options = [*first.values()]
    word = next((word for word in given if word in commands), None)
    if word is None:
        return options, [*commands]
    inner, more = _parser_options(commands[word], given[given.index(word) + 1 :])
    return _placed(word, options, inner), more


def _action_option(action: Any, kinds: set[str]) -> dict[str, Any]:
    flags, name, default = [one for one in action.option_strings if one[-1] != "+"], action.dest, action.default
    hint, told = getattr(action, "_typehint", None), (action.help or "").replace("<__TEMP__>", "")  # simple-parsing's
    negative = [one for one in flags if re.match(r"-+(.*\.)?no[-_]", one)]
    if kinds & {"BooleanOptionalAction", "ActionYesNo"} and negative:
        kind, flags = "pair", [next(one for one in flags if one not in negative), negative[0]]
    elif not flags:
        kind = "positional"
    elif action.nargs == 0:
        kind = "off" if "_StoreFalseAction" in kinds else "count" if "_CountAction" in kinds else "flag"
    elif "_AppendAction" in kinds and "_ExtendAction" not in kinds:
        kind = "repeat"
    elif "_ActionConfigLoad" in kinds:
        kind = "group"
    elif hint and (action.is_subclass_typehint(hint) or action.is_mapping_typehint(hint)):
        kind = "tree"
    else:
        kind = "value" if action.nargs in (None, "?", 1) else "many"
    if "." in name and flags and all(flag.lstrip("-").replace("-", "_") != name for flag in flags):
        name = max(flags, key=len).lstrip("-")  # where the script keeps the value is another matter
    is_told = "MISSING" in repr(default)  # tyro's, which are in the help
    if is_told:
        match = re.search(r"\(default: (.*?)\)", told)
        default = _literal(match[1]) if match else None
    guessed = type(default) if is_told or isinstance(default, bool) else ""
    type_ = "boolean" if hint is bool else hint or action.type or guessed
    return _option(name.replace("-", "_"), flags, kind, default, action.choices, type_, told, action.required)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _patch_argparse(module: Any) -> None:
    whole: list[Any] = []  # parsers that parse all arguments
    original, known = module.ArgumentParser.parse_args, module.ArgumentParser.parse_known_args

    def parse_args(self: Any, args: Any = None, namespace: Any = None) -> Any:
        if not _is_of_a_library(args, sys._getframe(1)):
            whole.append(self)
        return original(self, args, namespace)  # a subclass may add arguments before it calls parse_known_args

    def parse_known_args(self: Any, args: Any = None, namespace: Any = None, *more: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        if self in whole:
            _answer_parser(self)
        if frame.f_code.co_filename != module.__file__ and not _is_of_a_library(args, frame):
            if self.add_help and not _parses_more(frame):
                _answer_parser(self, _leaves_the_rest(frame))
            _seen.extend(_parser_options(self, _fixed)[0])
            signal.signal(signal.SIGALRM, lambda *signal: _give_up(""))
            signal.alarm(_PATIENCE_S)
        return known(self, args, namespace, *more, **named)

    module.ArgumentParser.parse_args = parse_args
    module.ArgumentParser.parse_known_args = parse_known_args
    module.ArgumentParser.parse_intermixed_args = lambda self, *more, **named: _answer_parser(self)
    module.ArgumentParser.parse_known_intermixed_args = lambda self, *more, **named: _answer_parser(self, True)


def _is_of_a_library(args: Any, frame: Any) -> bool:
    """Say whether a library parses arguments of its own."""
    is_foreign = args and not {*args} & {*_fixed} and "site-packages" in frame.f_code.co_filename
    return _is_composing or bool(is_foreign)


def _parses_more(frame: Any) -> bool:
    """Say whether the file that parses some arguments does so again further down."""
    lines = linecache.getlines(frame.f_code.co_filename)[frame.f_lineno :]
    return any("parse_args(" in line or "parse_known" in line for line in lines)


def _leaves_the_rest(frame: Any) -> bool:
    """Say whether unknown arguments are accepted: those who parse for Hugging Face's dataclasses choose."""
    for _ in range(4):
        if frame is not None and "return_remaining_strings" in frame.f_locals:
            return bool(frame.f_locals["return_remaining_strings"])
        frame = frame and frame.f_back
    return True


# --- click and typer ---


def _patch_click(module: Any) -> None:
    def main(self: Any, args: Any = None, *more: Any, **extra: Any) -> None:
        _answer("click", *_command_options(self, _fixed if args is None else [*args]))

    for name in ("BaseCommand", "Command", "TyperCommand", "TyperGroup"):
        if name in vars(module):
            vars(module)[name].main = main


def _command_options(command: Any, given: Sequence[str]) -> tuple[Any, ...]:
    """Return the options of the command that the given words choose, whether it takes others, and what to say."""
    context = command.context_class(command, info_name=command.name)
    parameters = [one for one in command.get_params(context) if one.expose_value or not one.is_eager]  # not --help
    options = [_parameter_option(one, context) for one in parameters if one.name not in _COMPLETION]
    if hasattr(command, "get_command"):
        for index, word in enumerate(given):
            chosen = command.get_command(context, word)
            if chosen is not None:
                inner, *more = _command_options(chosen, given[index + 1 :])
                return (_placed(word, options, inner), *more)
        return options, False, _named_one(command.list_commands(context))
    return options, context.ignore_unknown_options or context.allow_extra_args, ""


def _parameter_option(one: Any, context: Any) -> dict[str, Any]:
    flags, off = one.opts, getattr(one, "secondary_opts", None)
    if one.param_type_name == "argument":
        kind, flags = "positional", []
    elif getattr(one, "count", False):
        kind = "count"
    elif getattr(one, "is_flag", False):
        kind = "pair" if off else "off" if getattr(one, "flag_value", True) is False else "flag"
        flags = [max(flags, key=len), max(off, key=len)] if off else flags
    else:
        kind = "repeat" if getattr(one, "multiple", False) else "value" if one.nargs == 1 else "many"
    default = one.get_default(context, call=False)
    default = None if callable(default) or "UNSET" in repr(default) else default
    attribute = "name" if hasattr(one, "type") else "value"  # of an enumeration; typer has a descriptor of its own
    described = getattr(one, "type", None) or one.type_descriptor
    choices = [getattr(choice, attribute, choice) for choice in getattr(described, "choices", None) or ()]
    told, type_ = getattr(one, "help", ""), getattr(described, "name", None)
    return _option(one.name, flags, kind, default, choices, type_, told, one.required)


# --- absl, fire, Hydra, OmegaConf ---


def _patch_absl(module: Any) -> None:
    def parse(self: Any, argv: Any, known_only: bool = False) -> None:
        found = {name: flags for name, flags in self.flags_by_module_dict().items() if not name.startswith("absl.")}
        files = {name: str(getattr(sys.modules.get(name), "__file__", "")) for name in found}
        ordered = sorted(found, key=lambda name: "site-packages" in files[name])  # those of libraries last
        _answer("absl", [_flag_option(one) for name in ordered for one in found[name]], known_only)

    module.FlagValues.__call__ = parse


def _flag_option(flag: Any) -> dict[str, Any]:
    kind = "repeat" if "Multi" in type(flag).__name__ else "value"
    kind = "pair" if flag.boolean else "tree" if "Config" in type(flag).__name__ else kind  # of ml_collections
    flags = [f"--{flag.name}", f"--no{flag.name}"][: 1 + bool(flag.boolean)]
    choices, is_list = getattr(flag.parser, "enum_values", None), "List" in type(flag.parser).__name__
    return _option(flag.name, flags, kind, flag.default, choices, "list" if is_list else flag.flag_type(), flag.help)


def _patch_fire(module: Any) -> None:
    def fire(component: Any = None, command: Any = None, *more: Any, **named: Any) -> None:
        component = sys._getframe(1).f_globals if component is None else component
        options: dict[str, dict[str, Any]] = {}
        is_open = _take_signature(component, options)
        for word in [word for word in (_fixed if command is None else command) if word[:1] not in "-_"]:
            found = component.get(word) if isinstance(component, dict) else None
            component = getattr(component, word.replace("-", "_"), None) if found is None else found
            is_open = _take_signature(component, options) or is_open
        why = "" if options else "Name one of its functions as a fixed argument."
        _answer("fire", [*options.values()], is_open or not options, why)

    module.Fire = fire


def _take_signature(component: Any, options: dict[str, dict[str, Any]]) -> bool:
    """Add the parameters of what Fire would call; return whether it takes any others, too."""
    found = [*inspect.signature(component).parameters.values()] if callable(component) else []
    for one in found:
        if one.name not in ("self", "cls") and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            default, type_ = (None if value is one.empty else value for value in (one.default, one.annotation))
            is_needed = one.default is one.empty
            options[one.name] = _option(one.name, [f"--{one.name}"], "value", default, None, type_, "", is_needed)
    return any(one.kind == one.VAR_KEYWORD for one in found)


def _patch_hydra(module: Any) -> None:
    original = module.main

    def main(*config: Any, **named: Any) -> Any:
        def decorate(task: Any) -> Any:
            run = original(*config, **named)(task)
            return lambda cfg=None: _answer_composed(run) if cfg is None else run(cfg)

        return decorate

    module.main = main


def _answer_composed(run: Callable[[], Any]) -> NoReturn:
    """Answer with the keys of the config that Hydra composes with the fixed overrides; with none if it cannot."""
    global _is_composing
    _is_composing = True
    sys.argv[1:] = [*(word for word in _fixed if word not in ("-m", "--multirun")), "--cfg", "job"]
    with contextlib.redirect_stdout(io.StringIO()) as written, contextlib.suppress(SystemExit):
        run()
    config = sys.modules["omegaconf"].OmegaConf.create(written.getvalue())
    options: list[dict[str, Any]] = []
    _take_keys(sys.modules["omegaconf"].OmegaConf.to_container(config) or {}, "", options)
    _answer("hydra", options, not options, "" if options else "Hydra composed no config.")


def _take_keys(config: dict[Any, Any], path: str, options: list[dict[str, Any]]) -> None:
    for key, value in config.items():
        name, is_group = f"{path}{key}", isinstance(value, dict)
        default = None if is_group or value == "???" else value
        options.append(_option(name, [name], "group" if is_group else "value", default, required=value == "???"))
        _take_keys(value if is_group else {}, f"{name}.", options)


# --- what is replaced, and when ---


def _puts(function: Callable[..., Any], *path: str) -> Callable[[Any], None]:
    """Return what puts a function in the place of another, named by a path in a module."""
    return lambda module: setattr(getattr(module, path[0]) if path[1:] else module, path[-1], function)


def _ends(*path: str) -> Callable[[Any], None]:
    """Return what makes a call give up: a script that has come so far parses nothing any more."""
    return _puts(lambda *more, **named: _give_up(f"it calls {path[0]} before it parses arguments"), *path)


_PATCHES: dict[str, Callable[[Any], None]] = {
    "absl.flags._flagvalues": _patch_absl,
    "click.core": _patch_click,
    "fire.core": _patch_fire,
    "hydra.main": _patch_hydra,
    "jsonargparse._core": _puts(lambda self, *more, **named: _answer_parser(self), "ArgumentParser", "parse_args"),
    "mlflow": _ends("start_run"),
    "omegaconf.omegaconf": _puts(lambda args=None: _answer("hydra", (), True), "OmegaConf", "from_cli"),
    "tensorboardX.writer": _ends("SummaryWriter", "__init__"),
    "torch.optim.optimizer": _ends("Optimizer", "__init__"),
    "torch.utils.tensorboard.writer": _ends("SummaryWriter", "__init__"),
    "typer._click.core": _patch_click,
    "typer.core": _patch_click,
    "tyro._argparse": _patch_argparse,
    "tyro._backends._argparse": _patch_argparse,
    "wandb": _ends("init"),
}
"""Module -> what to do once it is imported."""


class _Watcher:
    """Finds the modules of `_PATCHES` as the others do, and patches what was loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        patch = _PATCHES.pop(name, None)
        spec = importlib.util.find_spec(name) if patch else None
        if spec is None or spec.loader is None or patch is None:
            return None
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), patch(module))[0]  # type: ignore[method-assign]
        return spec


def main(fd: str, kind: str, target: str, *fixed: str) -> None:
    """Run a script or a module with its fixed arguments, and answer on the descriptor."""
    global _fd
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it ends with who asks
    _fd = int(fd)
    os.set_inheritable(_fd, False)
    _fixed[:] = fixed
    _patch_argparse(argparse)
    sys.meta_path.insert(0, _Watcher())
    sys.argv = [target, *fixed]
    try:
        if kind == "module":
            sys.path[0] = os.getcwd()
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(target))
            runpy.run_path(target, run_name="__main__")
    except BaseException as error:  # whatever the user's script raises
        _give_up(f"it ended with {type(error).__name__}: {error}")
    _give_up("it ended without parsing arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
