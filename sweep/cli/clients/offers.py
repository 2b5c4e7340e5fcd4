"""Which commands are tools, and what each takes, as a JSON schema that is made from its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from sweep.cli.clients.schema import NUMBER, Schema, listed, one_of, said
from sweep.cli.main import sweep as command_line

FIGURES = ("history", "curves", "pareto", "parallel", "importance", "slice", "rungs", "population", "timeline")
_OF_RUN = "metric goal trials time trial-time concurrency cpus gpus mem searcher scheduler max-t grace seed retries"
READING = {  # verb: its options that are offered, and what is said in place of its own help, or (+) behind that
    "ls": ("sort desc filter limit", "List the sweeps, oldest first: how each stands, and the best value."),
    "show": ("", "+ With `wait` it answers when the sweep has ended, or after so many seconds."),
    "trials": ("sort desc filter columns limit", ""),
    "best": ("top scope metric goal", ""),
    "compare": ("metric goal", ""),
    "logs": ("rank tail", ""),
    "replay": ("trial", "+ The last `limit` facts are returned."),
    "simulate": ("scheduler eta max-t grace cpus gpus concurrency trials", "+ Give at least one option."),
    **dict.fromkeys(("why", "nodes", "doctor"), ("", "")),
}
ACTING = {
    "new": ("", "Find what a script takes, with ranges worth trying. It is run up to where it parses arguments."),
    "plan": (f"{_OF_RUN} pilot from", ""),
    "run": (
        f"{_OF_RUN} name dry-run",
        "Start a sweep of a script and return its name at once; `show` watches it. Parameters become arguments of the "
        "script. With `dry_run` one trial runs alone, for 30 s at most; returned are its command and the metrics that "
        "it gives, by the names to optimise.",
    ),
    "resume": ("trials time errored", "+ It is started as by `run`."),
    "confirm": (
        "top repeats metric goal concurrency",
        "+ It is started as by `run`; when that has ended, call it again.",
    ),
    "retry": ("failed", ""),
    "edit": ("trials time concurrency", ""),
    **dict.fromkeys(("stop", "cancel", "pause", "enqueue"), ("", "")),
}

_TEXT = {"type": "string", "maxLength": 300}
_VALUE = _TEXT | {"type": ["string", "number", "boolean"]}
_VALUES = listed(_VALUE) | {"minItems": 1, "maxItems": 200}
_NAMES = {"pattern": r"^[A-Za-z_][\w./+-]*$", "maxLength": 100}
_CONFIG: Schema = {"type": "object", "propertyNames": _NAMES, "minProperties": 1, "maxProperties": 100}
_RANGES = "name -> a range: loguniform(1e-5,1e-1), uniform(0,0.5), int(loguniform(16,512)), range(1,6); a list; a value"
_TRIAL, _PROGRAM = said(_TEXT, "its number, such as 7, or its id"), said(_TEXT, "a script, as `programs` gives it")
_FIXED = said(_VALUES, "words that each run of the script gets as they are")
PLACES: Mapping[str, tuple[str, Schema]] = {  # argument of a command: what it is called here, and its schema
    "reader": ("name", said(_TEXT, "of a sweep, as `ls` gives it")),
    "readers": ("names", said(listed(_TEXT) | {"minItems": 2, "maxItems": 20}, "of sweeps, as `ls` gives them")),
    "trial": ("trial", _TRIAL),
    "some": ("trial", said(listed(_TRIAL) | {"maxItems": 100}, "these trials; none: the whole sweep")),
    "target": ("program", _PROGRAM),
    "script": ("program", _PROGRAM),
    "values": ("config", _CONFIG | {"additionalProperties": _VALUE}),
    "ranges": ("parameters", said(_CONFIG | {"additionalProperties": {"anyOf": [_VALUE, _VALUES]}}, _RANGES)),
}


def tool_of(verb: str, options: Sequence[str], about: str) -> tuple[str, Schema]:
    """Return what is said of a command, and the schema of what it takes as a tool."""
    fields: dict[str, Schema] = {}
    needed = []
    for parameter in command_of(verb).params:
        key = key_of(parameter)
        if isinstance(parameter, click.Option) and key.replace("_", "-") in options:
            fields[key] = _schema_of(parameter)
        elif isinstance(parameter, click.Argument) and parameter.name in PLACES:
            fields[key] = PLACES[parameter.name][1]
            needed += [key] * (parameter.required or key == "program")
    fields |= {"arguments": _FIXED} if "program" in fields else {}
    fields |= {"wait": NUMBER | {"minimum": 0, "maximum": 50}} if verb == "show" else {}
    fields |= {"limit": {"type": "integer", "minimum": 1, "maximum": 1000}} if verb == "replay" else {}
    own = " ".join((command_of(verb).help or "").partition("\n\n")[0].split())
    return f"{own}{about[1:]}" if about.startswith("+") else about or own, object_of(fields, needed)


def object_of(fields: dict[str, Schema], needed: Sequence[str] = ()) -> Schema:
    return {"type": "object", "properties": fields, "required": list(needed), "additionalProperties": False}


def command_of(verb: str) -> click.Command:
    command = command_line.get_command(click.Context(command_line), verb)
    assert command is not None, verb
    return command


def key_of(parameter: click.Parameter) -> str:
    """Return what a parameter of a command is called in a tool: as its option, or as `PLACES` says."""
    if isinstance(parameter, click.Option):
        return parameter.opts[0].lstrip("-").replace("-", "_")
    return PLACES.get(parameter.name or "", ("", {}))[0]


def _schema_of(option: click.Option) -> Schema:
    kind, about = option.type, option.help or ""
    if option.is_flag:
        return said({"type": "boolean"}, about)
    if isinstance(kind, click.Choice):
        return said(one_of(*map(str, kind.choices)), about)
    if isinstance(kind, click.types.IntParamType):
        return said({"type": "integer", "minimum": getattr(kind, "min", None) or 0, "maximum": 10**6}, about)
    if isinstance(kind, click.types.FloatParamType):
        return said(NUMBER | {"minimum": 0}, about)
    text = said(_TEXT, f"{option.metavar or 'TEXT'}: {about}")
    return listed(text) | {"maxItems": 20} if option.multiple else text
