"""The child side of `interface.py`: run a Python script up to where it parses its arguments, and write what it takes.

Started by its path in the interpreter of the user's program, so it imports nothing of this package and runs on Python
3.8. What parses arguments is replaced by what answers and ends the process; so is what only a script that has read
its arguments does, such as building an optimizer.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import inspect
import io
import json
import linecache
import os
import re
import runpy
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

_PATIENCE_S = 5  # for a script that parses some of its arguments and seems to go on parsing
_ASIDE = {"_HelpAction", "_VersionAction", "_ActionPrintConfig", "_ActionHelpClassPath"}
_COMPLETION = ("install_completion", "show_completion")  # typer's
_fd = 1
_is_composing = False
_arguments: list[str] = []  # the fixed ones
_seen: list[dict[str, Any]] = []  # options of parsers that parsed some arguments, before the last one


def _answer(kind: str, options: Sequence[dict[str, Any]], is_open: bool = False, why: str = "") -> NoReturn:
    """Write the answer and end the process at once: nothing that the script has registered runs."""
    by_name = {one["name"]: one for one in (*_seen, *reversed(options))}
    ordered = [by_name.pop(one["name"]) for one in (*options, *_seen) if one["name"] in by_name]
    os.write(_fd, json.dumps({"kind": kind, "options": ordered, "is_open": is_open, "why": why}).encode())
    os._exit(0)


def _give_up(*why: Any) -> None:
    """End the process with what was seen so far."""
    text = " ".join(map(str, why))
    _answer("argparse" if _seen else "none", (), True, "" if _seen else text)


def _option(name: str, flags: Sequence[str], kind: str, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"default": None, "choices": None, "type": "", "help": "", "required": False, "before": ""}
    given = {key: _plain(value) for key, value in more.items()}
    given["type"] = "" if given.get("type") == "NoneType" else str(given.get("type", ""))
    given["help"] = " ".join(str(given.get("help", "")).replace("<__TEMP__>", "").split())  # of simple_parsing
    return {**empty, "name": name, "flags": list(flags), "kind": kind, **given}


def _plain(value: Any) -> Any:
    """Return what JSON can say of a value."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return None if value == argparse.SUPPRESS else value
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, os.PathLike):
        return str(value)
    return getattr(value, "name", None) or getattr(value, "__name__", None) or repr(value)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _long_first(flags: Sequence[str]) -> list[str]:
    return sorted(flags, key=lambda flag: not flag.startswith("--"))


def _placed(before: str, outer: Sequence[dict[str, Any]], inner: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the options of a sub-command, and those of the commands around it, which stand before its name."""
    return [*inner, *({**one, "before": one["before"] or before} for one in outer if one["kind"] != "positional")]


# --- argparse, and what stands on it ---


def _parser_options(parser: Any, given: Sequence[str]) -> list[dict[str, Any]]:
    options: list[dict[str, Any]] = []
    commands: Any = None
    for action in parser._actions:
        kinds = {base.__name__ for base in type(action).__mro__}  # some libraries have a copy of argparse
        if "_SubParsersAction" in kinds:
            commands = action
        elif not kinds & _ASIDE:
            options.append(_action_option(action, kinds))
    flags = {one["name"]: one for one in options if one["kind"] == "flag"}
    for one in [one for one in options if one["kind"] == "off" and one["name"] in flags]:  # --x and --no-x
        flags[one["name"]].update(kind="pair", flags=[flags[one["name"]]["flags"][0], one["flags"][0]])
        options.remove(one)
    word = next((word for word in given if commands and word in commands.choices), None)
    if word is None:
        return options
    return _placed(word, options, _parser_options(commands.choices[word], given[given.index(word) + 1 :]))


def _action_option(action: Any, kinds: set[str]) -> dict[str, Any]:
    flags, name = [flag for flag in _long_first(action.option_strings) if not flag.endswith("+")], action.dest
    negative = [one for one in flags if one.split(".")[-1].lstrip("-")[:3] in ("no-", "no_")]
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
    else:
        hint = getattr(action, "_typehint", None)
        is_tree = hint and (action.is_subclass_typehint(hint) or action.is_mapping_typehint(hint))
        kind = "tree" if is_tree else "value" if action.nargs in (None, "?", 1) else "many"
    if "." in name and flags and name not in [flag.lstrip("-").replace("-", "_") for flag in flags]:
        name = flags[0].lstrip("-")  # where the value goes is another matter
    default, told = action.default, re.search(r"\(default: (.*?)\)", action.help or "")
    if "MISSING" in repr(default):  # tyro's
        default = None if told is None else _literal(told[1])
    return _option(
        name.replace("-", "_"),
        flags,
        kind,
        default=default,
        choices=None if action.choices is None else [*action.choices][:200],
        type=getattr(action, "_typehint", None) or action.type or type(default),
        help=action.help or "",
        required=bool(action.required),
    )


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
            _answer("argparse", _parser_options(self, _arguments))
        if frame.f_code.co_filename != module.__file__ and not _is_of_a_library(args, frame):
            options = _parser_options(self, _arguments)
            if self.add_help and not _parses_more(frame):
                _answer("argparse", options, _leaves_the_rest(frame))
            _seen.extend(options)
            signal.signal(signal.SIGALRM, _give_up)
            signal.alarm(_PATIENCE_S)
        return known(self, args, namespace, *more, **named)

    def parse_mixed(self: Any, args: Any = None, namespace: Any = None) -> None:
        _answer("argparse", _parser_options(self, _arguments))

    module.ArgumentParser.parse_args = parse_args
    module.ArgumentParser.parse_known_args = parse_known_args
    module.ArgumentParser.parse_intermixed_args = parse_mixed


def _is_of_a_library(args: Any, frame: Any) -> bool:
    """Say whether a library parses arguments of its own."""
    is_ours = not args or bool({*args} & {*_arguments})
    return _is_composing or (not is_ours and "site-packages" in frame.f_code.co_filename)


def _parses_more(frame: Any) -> bool:
    """Say whether the code that parses some arguments does so again further down."""
    lines = linecache.getlines(frame.f_code.co_filename)[frame.f_lineno :]
    return any("parse_args(" in line or "parse_known" in line for line in lines)


def _leaves_the_rest(frame: Any) -> bool:
    """Say whether unknown arguments are accepted: those who parse for Hugging Face's dataclasses choose."""
    for _ in range(4):
        if frame is None:
            break
        if "return_remaining_strings" in frame.f_locals:
            return bool(frame.f_locals["return_remaining_strings"])
        frame = frame.f_back
    return True


# --- click and typer ---


def _patch_click(module: Any) -> None:
    def main(self: Any, args: Any = None, *more: Any, **extra: Any) -> None:
        is_open, options = _command_options(self, _arguments if args is None else [*args])
        _answer("click", options, is_open)

    for name in ("BaseCommand", "Command", "TyperCommand", "TyperGroup"):
        if name in vars(module):
            vars(module)[name].main = main


def _command_options(command: Any, given: Sequence[str]) -> Any:
    context = command.context_class(command, info_name=command.name)
    options = [
        _parameter_option(one, context)
        for one in command.get_params(context)
        if one.expose_value or not one.is_eager  # not --help, --version
        if one.name not in _COMPLETION
    ]
    if hasattr(command, "get_command"):
        for index, word in enumerate(given):
            chosen = command.get_command(context, word)
            if chosen is not None:
                is_open, inner = _command_options(chosen, given[index + 1 :])
                return is_open, _placed(word, options, inner)
    return context.ignore_unknown_options or context.allow_extra_args, options


def _parameter_option(one: Any, context: Any) -> dict[str, Any]:
    flags, off = _long_first(one.opts), _long_first(getattr(one, "secondary_opts", ()))
    if one.param_type_name == "argument":
        kind = "positional"
        flags = []
    elif getattr(one, "count", False):
        kind = "count"
    elif getattr(one, "is_flag", False):
        kind = "pair" if off else "off" if getattr(one, "flag_value", True) is False else "flag"
        flags = [flags[0], off[0]] if off else flags
    else:
        kind = "repeat" if getattr(one, "multiple", False) else "value" if one.nargs == 1 else "many"
    default = one.get_default(context, call=False)
    if "UNSET" in repr(default) or callable(default):
        default = None
    described = getattr(one, "type", None) or one.type_descriptor  # typer's own, since 0.26
    choices = [getattr(choice, "value", choice) for choice in getattr(described, "choices", None) or ()] or None
    return _option(
        one.name,
        flags,
        kind,
        default=default,
        choices=choices,
        type=getattr(described, "name", ""),
        help=getattr(one, "help", None) or "",
        required=bool(one.required),
    )


# --- absl ---


def _patch_absl(module: Any) -> None:
    def parse(self: Any, argv: Any, known_only: bool = False) -> None:
        options = [
            _flag_option(flag)
            for name, flags in self.flags_by_module_dict().items()
            if not name.startswith("absl.")
            for flag in flags
        ]
        _answer("absl", options, known_only)

    module.FlagValues.__call__ = parse


def _flag_option(flag: Any) -> dict[str, Any]:
    name, is_config = flag.name, "Config" in type(flag).__name__  # those of ml_collections
    is_many = "Multi" in type(flag).__name__
    kind = "pair" if flag.boolean else "repeat" if is_many else "tree" if is_config else "value"
    flags = [f"--{name}", f"--no{name}"] if flag.boolean else [f"--{name}"]
    choices = getattr(flag.parser, "enum_values", None)
    type_ = "list" if "List" in type(flag.parser).__name__ else flag.flag_type()
    return _option(name, flags, kind, default=flag.default, choices=choices, type=type_, help=flag.help or "")


# --- fire ---


def _patch_fire(module: Any) -> None:
    def fire(component: Any = None, command: Any = None, *more: Any, **named: Any) -> None:
        words = shlex.split(command) if isinstance(command, str) else command or _arguments
        component = sys._getframe(1).f_globals if component is None else component
        options: dict[str, dict[str, Any]] = {}
        is_open = _take_signature(component, options)
        for word in [word for word in words if not word.startswith("-")]:
            found = component.get(word) if isinstance(component, dict) else None
            if found is None and not word.startswith("_"):
                found = getattr(component, word.replace("-", "_"), None)
            if found is None:
                break
            component = found
            is_open = _take_signature(component, options) or is_open
        _answer("fire", [*options.values()], is_open)

    module.Fire = fire


def _take_signature(component: Any, options: dict[str, dict[str, Any]]) -> bool:
    """Add the parameters of what Fire would call; return whether it takes any."""
    if not callable(component):
        return False
    is_open = False
    for name, one in inspect.signature(component).parameters.items():
        if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            is_open = is_open or one.kind == one.VAR_KEYWORD
        elif name not in ("self", "cls"):
            is_needed = one.default is one.empty
            default = None if is_needed else one.default
            type_ = one.annotation if one.annotation is not one.empty else type(default)
            options[name] = _option(name, [f"--{name}"], "value", default=default, type=type_, required=is_needed)
    return is_open


# --- Hydra and OmegaConf ---


def _patch_hydra(module: Any) -> None:
    original = module.main

    def main(*config: Any, **named: Any) -> Any:
        def decorate(task: Any) -> Any:
            run = original(*config, **named)(task)

            def ask(cfg: Any = None) -> Any:
                return _answer_composed(run) if cfg is None else run(cfg)

            return ask

        return decorate

    module.main = main


def _answer_composed(run: Callable[[], Any]) -> None:
    """Answer with the keys of the config that Hydra composes of the fixed overrides; with none if it cannot."""
    global _is_composing
    _is_composing = True
    sys.argv[1:] = [*(word for word in _arguments if word not in ("-m", "--multirun")), "--cfg", "job"]
    written = io.StringIO()
    options: list[dict[str, Any]] = []
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        run()
    omegaconf = sys.modules["omegaconf"]
    config = omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.create(written.getvalue()))
    _take_keys(config or {}, "", options)
    _answer("hydra", options, not options)


def _take_keys(config: dict[Any, Any], path: str, options: list[dict[str, Any]]) -> None:
    for key, value in config.items():
        name, is_group = f"{path}{key}", isinstance(value, dict)
        default = None if is_group or value == "???" else value
        kind, type_ = "group" if is_group else "value", "" if default is None else type(default).__name__
        options.append(_option(name, [name], kind, default=default, type=type_, required=value == "???"))
        if is_group:
            _take_keys(value, f"{name}.", options)


def _patch_omegaconf(module: Any) -> None:
    module.OmegaConf.from_cli = lambda args=None: _answer("hydra", (), True)


# --- what is replaced, and when ---


def _ends(*path: str) -> Callable[[Any], None]:
    """Return what makes a call of something give up: a script that comes so far parses nothing any more."""

    def patch(module: Any) -> None:
        owner = module
        for name in path[:-1]:
            owner = getattr(owner, name)
        setattr(
            owner, path[-1], lambda *more, **named: _give_up("it calls", ".".join(path), "before it parses arguments")
        )

    return patch


def _patch_jsonargparse(module: Any) -> None:
    module.ArgumentParser.parse_args = lambda self, *more, **named: _answer(
        "argparse", _parser_options(self, _arguments)
    )


_PATCHES: dict[str, Callable[[Any], None]] = {
    "absl.flags._flagvalues": _patch_absl,
    "click.core": _patch_click,
    "fire.core": _patch_fire,
    "hydra.main": _patch_hydra,
    "jsonargparse._core": _patch_jsonargparse,
    "omegaconf.omegaconf": _patch_omegaconf,
    "typer.core": _patch_click,
    "mlflow": _ends("start_run"),
    "tensorboardX.writer": _ends("SummaryWriter", "__init__"),
    "torch.optim.optimizer": _ends("Optimizer", "__init__"),
    "torch.utils.tensorboard.writer": _ends("SummaryWriter", "__init__"),
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

        def exec_module(module: Any) -> None:
            execute(module)
            assert patch is not None
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def main(fd: str, kind: str, target: str, *given: str) -> None:
    """Run a script or a module with its fixed arguments, and answer on the descriptor."""
    global _fd
    _fd = int(fd)
    os.set_inheritable(_fd, False)
    _arguments[:] = given
    _patch_argparse(argparse)
    sys.meta_path.insert(0, _Watcher())
    sys.argv = [target, *given]
    try:
        if kind == "module":
            sys.path[0] = os.getcwd()
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(target))
            runpy.run_path(target, run_name="__main__")
    except BaseException as error:  # whatever the user's script raises
        _give_up(f"it ended with {type(error).__name__}: {error}")
    _give_up("it ended without parsing arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
