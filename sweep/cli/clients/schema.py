"""`sweep schema`: what each command prints with `--json`, as JSON schemas (draft 2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from searchers.errors import nearest
from sweep.cli.tables import emit, json_option
from sweep.core.literals import json_text
from sweep.core.trial import STATES
from sweep.errors import ConfigError

Schema = dict[str, Any]
NUMBER: Schema = {"type": "number"}


def said(schema: Schema, description: str) -> Schema:
    """Return a schema with what it means."""
    return schema | {"description": description}


def one_of(*names: str) -> Schema:
    """Return the schema of a text that is one of these."""
    return {"type": "string", "enum": list(names)}


def listed(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


_TYPES: dict[str, Schema] = {
    "text": {"type": "string"},
    "count": {"type": "integer", "minimum": 0},
    "number": NUMBER,
    "flag": {"type": "boolean"},
    "any": {},
    "object": {"type": "object"},
    "seconds": said(NUMBER, "seconds"),
    "time": said({"type": "string"}, "local time, YYYY-MM-DD HH:MM:SS"),
    "state": one_of(*STATES),
    "status": one_of("PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"),
    "sweep_state": one_of("running", "ended", "stopped", "crashed", "unknown", "unreadable"),
    "level": said(one_of("ok", "note", "wrong"), "wrong: the exit code is 1"),
}


def _of(words: str) -> Schema:
    """Return the schema of an object from `name:type` words; `type?` may be null, `type[]` is a list. A word `...` says
    that there are other fields, such as metrics and parameters by their names, and `[]` that it is a list of these."""
    fields: Schema = {}
    for word in words.split():
        name, is_field, kind = word.partition(":")
        if is_field:
            schema = _TYPES[kind.rstrip("?[]")]
            schema = listed(schema) if kind.endswith("[]") else schema
            fields[name] = {"anyOf": [schema, {"type": "null"}]} if kind.endswith("?") else schema
    is_open = "..." in words.split()
    made = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": is_open}
    return listed(made) if words.startswith("[] ") else made


_TYPES["metric"] = _of("source:text name:text count:count last:any")
_TYPES["parameter"] = _of("name:text kind:text type:text default:any choices:any help:text range:text?")
_TYPES["attempt"] = _of("attempt:count node:text began:time time_s:seconds ended:text")
_TYPES["side"] = _of("trials:count reports:count trial_seconds:seconds seconds:seconds ...")
_TYPES["finding"] = _of("check:text state:level found:text do:text")
_TYPES["counts"] = _of("trials:count running:count paused:count waiting:count finished:count failed:count ...")
_TYPES["repeated"] = _of(
    "trial:count value:number? runs:count failed:count mean:number? low:number? high:number? dropped:count? "
    "values:number[] config:object"
)
_TYPES["lead"] = _of("over:count pairs:count mean:number low:number high:number p:number")
_EVENT = said(_of("event:text time:seconds ..."), "one a line: sweep_start, trial_result, ..., sweep_end")
_SAID = said(_of("experiment:text verb:text said:text"), "what came of it")
SCHEMAS: Mapping[str, Schema] = {
    "run": {"anyOf": [_EVENT, _of("command:text seconds:seconds? error:text? metrics:metric[]")]},  # --dry-run
    "plan": _of(  # `forecast` with --pilot and --from: `known`, `cut`, `simulated`, and ranges
        "name:text seed:count searcher:text scheduler:text calls:object[] num_trials:count? num_sketched:count "
        "at_once:count nodes:object rungs:object warnings:text[] ..."
    ),
    "new": _of("program:text kind:text takes_others:flag parameters:parameter[]"),
    "ls": _of(
        "[] name:text state:sweep_state created:time? trials:count? running:count? paused:count? waiting:count? "
        "finished:count? stopped_early:count? failed:count? metric:text? best:any"
    ),
    "trials": _of(
        "[] trial:text state:state step:count? time_s:seconds? attempt:count node:text? failure:text? reason:text "
        "trial_id:text status:status ..."
    ),
    "nodes": _of(
        "[] node:text cpus:number gpus:count tpus:count memory_gb:number running:count[] holds:text attempts:count "
        "lost:count there_s:seconds idle_share:number? came:time left:time? why_lost:text"
    ),
    "best": _of("[] trial:text state:state status:status ..."),
    "show": {
        "anyOf": [
            _of(
                "sweep:text state:sweep_state hint:text trainable:text? command:text? created:time? updated:time? "
                "trials:counts metric:text? best:text? better_earlier:text? best_config:object? pareto_set:text[] "
                "path:text ..."
            ),
            _of(
                "trial:text state:state status:status failure:text reason:text hint:text config:object asks:text "
                "holds:text attempts:count each_attempt:attempt[] failures:count node_losses:count? created:time? "
                "started:time? ended:time? took:text? peak_memory_mb:number? reports:count "
                "last_report:object? best_report:object? checkpoints:text[] error:text? traceback:text? output:any"
            ),
        ]
    },
    "logs": _of("trial:text state:state status:status output:object"),
    "why": _of("[] trial:text state:state status:status failure:text asks:text reason:text"),
    "html": _of("path:text bytes:count"),
    "compare": _of("experiments:object[] progress:object[] differences:object note:text?"),
    "export": _of("path:text rows:count columns:count"),
    "rm": _of("[] name:text state:sweep_state unfinished:count checkpoints:count files:count bytes:count path:text"),
    "import": _of("experiment:text tool:text path:text trials:count parameters:text[] metric:any"),
    **dict.fromkeys(("watch", "dashboard"), _of("url:text")),
    "resume": {"anyOf": [_EVENT, _SAID]},  # of one that runs: what came of it
    **dict.fromkeys(("note", "stop", "cancel", "pause", "retry", "enqueue", "edit"), _SAID),
    "confirm": _of(
        "name:text metric:text mode:text repeats:count configs:repeated[] lead:lead? is_over:flag "
        "is_constant:flag interrupted:flag best:repeated? said:text"
    ),
    "replay": {
        "anyOf": [
            said(_of("at:seconds fact:text trial:text? about:text commands:text[]"), "one a line"),
            _of("is_same:flag facts:count differences:text[]"),  # --verify
        ]
    },
    "simulate": {
        "anyOf": [
            _of("cut:count recorded:side simulated:side ..."),
            _of("events:count seconds:seconds difference:text?"),  # without options
        ]
    },
    "migrate": said(_of("path:text difference:text left:text[]"), "one a line, for each file"),
    "doctor": _of("is_well:flag versions:object devices:text[] findings:finding[]"),
    "schema": _TYPES["object"],
}
"""Command -> schema of what it prints with `--json` where no option chooses columns."""


@click.command(short_help="Print the JSON schema of what a command prints.")
@click.argument("verb", required=False)
@json_option("It is JSON in any case.")
def schema(verb: str | None, as_json: bool) -> None:
    """Print the JSON schema (2020-12) of what VERB prints with --json; without VERB all of them, by command.

    \b
    Examples:
      sweep schema trials
    """
    if verb is not None and verb not in SCHEMAS:
        raise ConfigError(f"{verb!r} prints no JSON. {nearest(verb, SCHEMAS)}")
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    emit(json_text(SCHEMAS if verb is None else dialect | SCHEMAS[verb]) + "\n")
