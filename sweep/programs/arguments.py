"""A config as arguments of a program, in the way in which the program takes them; always a list, never a shell."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.core.literals import jsonable
from sweep.errors import ConfigError
from sweep.programs.interface import NO, SWITCHES, Interface, Option, alike, settings

_PLACE = re.compile(r"\{\{|\}\}|\$?\{([A-Za-z_][\w./-]*)\}")
_ENVIRONMENT = re.compile(r"\$\{envvar:(\w*)\}")
_MACRO = re.compile(r"\$\{(\w+)\}")
_MACROS = ("env", "interpreter", "args", "args_no_equals", "args_no_boolean_flags")
_RAW = ("args_no_hyphens", "args_append_hydra", "args_override_hydra", "args_json", "args_json_file")
_UNQUOTED = re.compile(r"[A-Za-z_./][\w./@%+?|*-]*")  # strings that Hydra and Fire take for strings
_WORDS = ("true", "false", "null", "none", "nan", "inf")

Settings = Sequence[tuple[str, Any]]


def appended(template: Iterable[Any], names: Iterable[str]) -> list[str]:
    """Return the parameters that `render` writes as options of the program, which it must therefore take: those that
    neither a placeholder carries nor one of W&B's macros that knows no options."""
    words = [str(word) for word in template]
    if any(word == f"${{{macro}}}" for macro in _RAW for word in words):
        return []
    placed = {alike(match[1]) for word in words for match in _PLACE.finditer(word) if match[1] and match[0][0] == "{"}
    return [name for name in names if alike(name) not in placed]


def render(
    template: Sequence[Any], config: Mapping[str, Any], *, interface: Interface, variables: Mapping[str, Any]
) -> list[str]:
    """Return the command of one trial. Parameters that nothing in the template carries are added at the end.

    Args:
        template: words. `{name}` stands for a parameter or a variable, and what names neither stays as it is; where a
            word has `{{`, that and `}}` are braces. `${args}` and the other macros of W&B's sweep files are words of
            their own, but for `${envvar:NAME}`; an unknown one is a ConfigError.
        variables: what else can be named, such as `checkpoint_dir`; `${args_json_file}` is written to `trial_dir`.
    """
    flat = dict(settings(interface, config))
    by_name = {alike(name): value for name, value in (flat | {str(key): config[key] for key in config}).items()}
    left = [(name, by_name[alike(name)]) for name in appended(template, flat)]
    words = [_ENVIRONMENT.sub(lambda match: os.environ.get(match[1], match[1]), str(word)) for word in template]
    before = {option.before for name, _ in left if (option := interface.option(name))} - {""}  # sub-commands
    rendered: list[str] = []
    for word in words:
        if word in before:
            rendered += _written(interface, left, before=word)
            before.remove(word)
        macro, whole = _MACRO.fullmatch(word), _PLACE.fullmatch(word)
        name = whole[1] if whole and whole[1] else ""
        option, value = interface.option(name), by_name.get(alike(name))
        switch = interface.option(rendered[-1]) if isinstance(value, bool) and rendered else None
        if macro and macro[1] not in variables:
            rendered += _expanded(macro[1], interface, config, left, variables)
        elif switch and rendered[-1] in switch.flags and switch.kind in SWITCHES:  # --amp {amp}
            rendered += _words(interface, switch, rendered.pop(), value)
        elif option and option.kind in ("many", "positional") and value is not None:
            rendered += _texts(value)
        else:
            rendered.append(_filled(word, by_name, variables))
    if not any(word.startswith("${args") for word in words):
        rendered += _written(interface, left)
    return [*rendered, *(word for name in before for word in _written(interface, left, before=name))]


def _filled(word: str, values: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """Return a word whose placeholders are filled in."""
    is_escaped = "{{" in word

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0] if is_escaped else match[0]
        if match[0][0] == "{" and alike(name) in values:
            return _text(values[alike(name)])
        return str(variables[name]) if name in variables else match[0]

    return _PLACE.sub(fill, word)


def _expanded(
    macro: str, interface: Interface, config: Mapping[str, Any], left: Settings, variables: Mapping[str, Any]
) -> list[str]:
    """Return what one of W&B's macros stands for."""
    match macro:
        case "env" | "interpreter":  # as W&B's agent has them
            return ["/usr/bin/env" if macro == "env" else "python"]
        case "args":
            return _written(interface, left)
        case "args_no_equals":
            written = _written(interface, left)
            return [part for word in written for part in (word.split("=", 1) if word[:1] == "-" else [word])]
        case "args_no_boolean_flags":
            unknown = [name for name, value in left if isinstance(value, bool) and not interface.option(name)]
            flags = [Option(name, (f"--{name}",), "flag") for name in unknown]
            return _written(replace(interface, options=(*interface.options, *flags)), left)
        case "args_no_hyphens" | "args_append_hydra" | "args_override_hydra":
            prefix = {"args_append_hydra": "+", "args_override_hydra": "++"}.get(macro, "")
            to_text = _hydra_text if prefix or interface.kind == "hydra" else _text
            return [f"{prefix}{name}={to_text(value)}" for name, value in settings(interface, config)]
        case "args_json":
            return [json.dumps(jsonable(config, is_strict=False))]
        case "args_json_file":
            path = Path(variables["trial_dir"], "args.json")
            path.write_text(json.dumps(jsonable(config, is_strict=False)), encoding="utf-8")
            return [str(path)]
    raise ConfigError(f"unknown macro ${{{macro}}}. {nearest(macro, (*variables, *_MACROS, *_RAW))}")


def _written(interface: Interface, given: Settings, *, before: str = "") -> list[str]:
    """Return settings as arguments: those that stand before the sub-command `before`; empty: all others."""
    options: list[str] = []
    positionals: dict[str, list[str]] = {}
    for name, value in given:
        option = interface.option(name)
        is_left_out = value is None and interface.kind != "hydra"
        if is_left_out or before != (option.before if option else ""):
            continue
        if option and option.kind == "positional":
            positionals[option.name] = _texts(value)
        else:
            options += _words(interface, option, name, value)
    placed = [word for one in interface.options for word in positionals.get(one.name, ())]
    if any(re.match(r"-(?!\.?\d)", word) for word in placed):  # as an option would begin
        return [*options, "--", *placed]
    return [*placed, *options]


def _words(interface: Interface, option: Option | None, name: str, value: Any) -> list[str]:
    """Return one setting as the option takes it."""
    if interface.kind == "hydra":
        return [f"{option.name if option else name}={_hydra_text(value)}"]
    if option is None:
        return [f"--{name}={_text(value)}"]
    if option.type in ("int", "integer") and isinstance(value, (bool, float)) and float(value).is_integer():
        value = int(value)  # such as a rounded one of q_uniform
    flag = next((one for one in option.flags if alike(one) == alike(name)), option.flags[0])
    is_on = str(value).lower() not in NO
    is_meant_by_flag = alike(name) != alike(option.name)  # no_cuda=true for what is stored as cuda
    match option.kind:
        case "flag":
            return [flag] if is_on else []
        case "off":
            return [flag] if is_on == is_meant_by_flag else []
        case "pair":
            return [option.flags[is_on == (alike(name) == alike(option.flags[1]) and is_meant_by_flag)]]
        case "many" if len(texts := _texts(value)) != 1 or not texts[0].startswith("-"):
            return [flag, *texts]
        case "many" | "repeat":
            return [word for text in _texts(value) for word in _joined(interface, flag, text)]
    if option.type == "list" and interface.kind == "absl":
        return [f"{flag}={','.join(_texts(value))}"]
    if interface.kind == "fire" and not isinstance(value, (bool, int, float)):
        is_word = isinstance(value, str) and _UNQUOTED.fullmatch(value) and value.lower() not in _WORDS
        return [f"{flag}={value if is_word else repr(jsonable(value, is_strict=False))}"]
    if interface.kind == "argparse" and option.type == "bool" and value is False and not option.choices:
        return [f"{flag}="]  # type=bool, to which every other text is true
    return _joined(interface, flag, _text(value))


def _joined(interface: Interface, flag: str, text: str) -> list[str]:
    """Return a flag and its value; click takes what follows a short one whole."""
    return [flag, text] if interface.kind == "click" and not flag.startswith("--") else [f"{flag}={text}"]


def _texts(value: Any) -> list[str]:
    return [_text(one) for one in value] if isinstance(value, (list, tuple)) else [_text(value)]


def _text(value: Any) -> str:
    """Return a value as text: numbers as Python reads them back, lists and dicts as JSON."""
    plain = value if isinstance(value, float) else jsonable(value, is_strict=False)
    is_nested = isinstance(plain, (list, dict))
    return json.dumps(plain, ensure_ascii=False) if is_nested else plain if isinstance(plain, str) else repr(plain)


def _hydra_text(value: Any) -> str:
    """Return a value in the grammar of Hydra's overrides."""
    plain = jsonable(value, is_strict=False)
    if isinstance(plain, dict):
        return f"{{{','.join(f'{_hydra_text(key)}:{_hydra_text(item)}' for key, item in plain.items())}}}"
    if isinstance(plain, list):
        return f"[{','.join(map(_hydra_text, plain))}]"
    if not isinstance(plain, str):
        return "null" if plain is None else repr(plain).lower() if isinstance(plain, bool) else repr(plain)
    if _UNQUOTED.fullmatch(plain) and plain.lower() not in _WORDS:
        return plain
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), plain)
    return f"'{escaped}'"
