"""The commands as tools for agents: what each takes as a JSON schema, made from its options, and how it is carried out.

A tool runs `sweep VERB ... --json` as a child with a list of words, and never a shell. Before that its arguments are
held against its schema, and names and paths against the one storage and the one directory of scripts that are open.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from searchers.variants import grid_values
from sweep.cli.arguments import parse_count, parse_seconds
from sweep.cli.clients.schema import NUMBER, Schema, listed, one_of, said
from sweep.cli.main import COMMANDS
from sweep.cli.main import sweep as command_line
from sweep.cli.ranges import parse_parameter
from sweep.core.literals import as_arguments, json_text
from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.record.layout import DATABASE, check_name
from sweep.record.reader import ExperimentReader, list_experiments
from sweep.requests.attached import Attached

_MOST_ASKED, _MOST_ANSWERED = 20_000, 200_000  # characters
_START_S, _CHILD_S = 60.0, 300.0
_OF_LINES, _OF_A_STORAGE = ("replay", "resume"), ("ls", "doctor", "run", "plan")
_COMMAND = [sys.executable, "-P", "-m", "sweep.cli.main"]
_FIGURES = ("history", "curves", "pareto", "parallel", "importance", "slice", "rungs", "population", "timeline")
_OF_RUN = "metric goal trials time trial-time concurrency cpus gpus mem searcher scheduler max-t grace seed retries"
_READING = {  # verb: its options that are offered, and what is said in place of its own help, or (+) behind that
    "ls": ("sort desc filter limit", "List the sweeps, oldest first: how each stands, and the best value."),
    "show": ("", "+ With `wait` it answers when the sweep has ended, or after so many seconds."),
    "trials": ("sort desc filter columns limit", ""),
    "best": ("top scope metric goal", ""),
    "compare": ("metric goal", ""),
    "logs": ("rank tail", ""),
    "replay": ("trial", "+ The last `limit` facts are returned."),
    "simulate": ("scheduler eta max-t grace cpus gpus concurrency trials", "+ Give at least one option."),
    **dict.fromkeys(("why", "doctor"), ("", "")),
}
_ACTING = {
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
_PLACES: Mapping[str, tuple[str, Schema]] = {  # argument of a command: what it is called here, and its schema
    "reader": ("name", said(_TEXT, "of a sweep, as `ls` gives it")),
    "readers": ("names", said(listed(_TEXT) | {"minItems": 2, "maxItems": 20}, "of sweeps, as `ls` gives them")),
    "trial": ("trial", _TRIAL),
    "some": ("trial", said(listed(_TRIAL) | {"maxItems": 100}, "these trials; none: the whole sweep")),
    "target": ("program", _PROGRAM),
    "script": ("program", _PROGRAM),
    "values": ("config", _CONFIG | {"additionalProperties": _VALUE}),
    "ranges": ("parameters", said(_CONFIG | {"additionalProperties": {"anyOf": [_VALUE, _VALUES]}}, _RANGES)),
}


@dataclass
class Desk:
    """Carries tools out, within a storage and a directory of scripts, both without links in their paths.

    Attributes:
        programs: None: no script is run, and nothing is changed.
        most_trials, most_s: budget of all sweeps in the storage together: trials, and seconds of driving.
        tools: name -> what is said of it to those who know nothing else, and the schema of its arguments.
    """

    storage: Path
    programs: Path | None = None
    most_trials: int | None = None
    most_s: float | None = None
    tools: dict[str, tuple[str, Schema]] = field(default_factory=dict)
    _drivers: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of what acts: the budget holds

    def __post_init__(self) -> None:
        if self.programs is not None:
            self.tools["programs"] = "List the scripts that can be run, by path.", _object({})
        for verb, (options, about) in (_READING | (_ACTING if self.programs is not None else {})).items():
            if verb in COMMANDS:
                self.tools[verb] = _tool(verb, options.split(), about)
        shown = _object({"name": _PLACES["reader"][1], "figure": one_of(*_FIGURES)}, ["name", "figure"])
        self.tools["figure"] = "Return the data of a figure as plotly's JSON: traces with x and y.", shown

    def call(self, name: str, given: dict[str, Any]) -> str:
        """Return what a tool answers, as JSON.

        Raises:
            SweepError: it is refused, and nothing was changed.
        """
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match

        if name not in self.tools:
            why = "this server only reads: it was started without --allow-run" if name in _ACTING else "see tools/list"
            raise ConfigError(f"there is no tool {name!r:.60}: {why}.")
        if len(json.dumps(given)) > _MOST_ASKED:
            raise ConfigError(f"the arguments have more than {_MOST_ASKED} characters. Nothing was done.")
        if wrong := best_match(Draft202012Validator(self.tools[name][1]).iter_errors(given)):
            where = ".".join(map(str, wrong.absolute_path)) or "arguments"
            raise ConfigError(f"{where}: {wrong.message:.300}. Nothing was done. Expected: {wrong.schema!r:.600}")
        for key, value in given.items():  # no shell is ever asked, but nothing here needs what means something to one
            odd = r"\\[^\"]" if key == "filter" else r"[;&|<>$`]|\\[^\"]"
            if found := re.search(odd, text := json.dumps(value, ensure_ascii=False)):
                raise ConfigError(f"{key}: {text:.100} has {found[0]!r}, which is not taken here. Nothing was done.")
        if name in _ACTING:
            with self._lock:
                answer = json_text(self._act(name, given))
        else:
            answer = json_text(self._read(name, given))
        if len(answer) > _MOST_ANSWERED:
            raise ConfigError(f"the answer has {len(answer):,} characters. Ask for less, such as by limit or columns.")
        return answer

    def _read(self, verb: str, given: dict[str, Any]) -> Any:
        if verb == "programs" and self.programs is not None:
            found = sorted(path.relative_to(self.programs) for path in self.programs.rglob("*.py"))
            return [str(path) for path in found if not any(part.startswith((".", "__")) for part in path.parts)][:500]
        if verb in ("ls", "doctor", "compare"):
            rows, known = _sweep(*self._words(verb, given)), self._experiments()
            return [row for row in rows if self.storage / row["name"] in known] if verb == "ls" else rows
        reader = self._reader(given["name"])
        if verb == "figure":
            from sweep.figures.plots import Plots

            drawn = json.loads(getattr(Plots(reader, reader.metric, reader.mode), given["figure"])().to_json())
            return {**drawn, "layout": {key: value for key, value in drawn["layout"].items() if key != "template"}}
        if verb == "simulate" and len(given) == 1:
            raise ConfigError("simulate: give a scheduler, a machine or a number of trials to compare with.")
        if verb in ("logs", "show"):  # which read what trials print, and what is noted
            place = reader.layout.trial(reader.trial(given["trial"]).trial_id) if "trial" in given else reader.root
            if outside := [path for path in place.glob("*") if not path.resolve().is_relative_to(self.storage)]:
                raise ExperimentError(f"{outside[0]} leads out of the storage: nothing beside it is read.")
        give_up = time.monotonic() + given.pop("wait", 0)
        while time.monotonic() < give_up and reader.state() == "running":
            time.sleep(0.3)
        facts = _sweep(*self._words(verb, given))
        process, output = self._drivers.get(given["name"], (None, None))
        if verb == "show" and process is not None and output is not None and process.poll() is not None:
            facts["driver"] = {"exit_code": process.returncode, "said": _tail(output)}
        return facts[-given.get("limit", 100) :] if verb == "replay" else facts

    def _act(self, verb: str, given: dict[str, Any]) -> Any:
        if "pilot" in given:
            self._afford(None, given["pilot"], parse_seconds(given["time"]) if "time" in given else None)
        if verb in ("new", "plan") or given.get("dry_run"):
            return _sweep(*self._words(verb, given))
        if verb == "run":
            moment = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
            check_name(name := given.setdefault("name", f"{Path(given['program']).stem}-{moment}"))
            if (self.storage / name).is_symlink() or (self.storage / name).exists():
                raise ConfigError(f"{name!r} is taken in the storage. Give another name, or use `resume`.")
            words = self._words(verb, given)
            trials = given.get("trials", None if "time" in given else 10)
            if trials is not None and given.get("searcher") == "grid":
                grids = (
                    grid_values(parse_parameter(one, is_grid=True)[1]) for one in _ranges(given.get("parameters", {}))
                )
                trials *= math.prod(len(values) for values in grids if values is not None)
            self._afford(None, trials, parse_seconds(given["time"]) if "time" in given else None)
            return self._drive(name, words)
        reader = self._reader(name := given["name"])
        plan, words, span = reader.plan(), self._words(verb, given), given.get("time", "")
        trials = parse_count(given["trials"], plan.num_trials or 0) if "trials" in given else plan.num_trials
        seconds = parse_seconds(span.removeprefix("+")) if span else plan.time_budget_s
        if span.startswith("+"):
            seconds = (seconds or 0) + max(reader.driven_s(), plan.time_budget_s or 0)
        if verb == "confirm":
            over = next((ExperimentReader(one) for one in self._experiments() if one.name == f"{name}-confirm"), None)
            self._afford(over, given.get("top", 5) * given.get("repeats", 5), None)
            if over is not None and over.state() == "ended":
                return _sweep(*words)  # what came of it
        elif verb in ("enqueue", "edit", "resume", "retry"):
            self._afford(reader, trials if trials is None else trials + (verb == "enqueue"), seconds)
        if verb == "confirm" or (verb == "resume" and not Attached(reader).is_running):
            script = str(reader.meta.get("import_path") or "")
            self._script(script if script.startswith("/") else "")
            return self._drive(f"{name}-confirm" if verb == "confirm" else name, words)
        return _sweep(*words)

    def _words(self, verb: str, given: Mapping[str, Any]) -> list[str]:
        """Return a command line: what it names was found, and no value of a client's can be taken for an option."""
        reader = None if verb == "run" or "name" not in given else self._reader(given["name"])
        words = [verb, "--json", *[f"--storage={self.storage}"] * (verb in _OF_A_STORAGE)]
        for parameter in _command(verb).params:
            key = _key(parameter)
            if (value := given.get(key)) is None:
                continue
            values = value if isinstance(value, list) else [value]
            if isinstance(parameter, click.Option):
                option = f"--{key.replace('_', '-')}"
                values = [self._reader(one).root for one in values] if key == "from" else values
                words += [option] * value if parameter.is_flag else [f"{option}={one}" for one in values]
            elif reader is not None:
                words += [str(reader.root)] if key == "name" else []
                words += [reader.trial(one).trial_id for one in values] if key == "trial" else []
                words += [_word(name, one) for name, one in value.items()] if key == "config" else []
            elif key == "names":
                words += [str(self._reader(one).root) for one in values]
            else:
                words += [self._script(value)] if key == "program" else _ranges(value)
        fixed = [str(word) for word in given.get("arguments", ())]
        return [*words, *["--"] * bool(fixed), *fixed]

    # --- what holds them to their place ---

    def _experiments(self) -> list[Path]:
        """Return the directories of the sweeps in the storage; not what is linked into it."""
        return [path for path in list_experiments(self.storage) if (path / DATABASE).resolve() == path / DATABASE]

    def _reader(self, name: str) -> ExperimentReader:
        known = [path.name for path in self._experiments()]
        if name not in known:
            raise ExperimentError(f"there is no sweep {name!r}. Known: {', '.join(known[-20:]) or 'none'}.")
        return ExperimentReader(self.storage / name)

    def _script(self, program: str) -> str:
        path = ((self.programs or self.storage) / program).resolve()
        is_inside = self.programs is not None and path.is_relative_to(self.programs)
        if not is_inside or path.suffix != ".py" or not path.is_file():
            raise ConfigError(f"{program!r} is no script below {self.programs}; see `programs`. Nothing was done.")
        return str(path)

    def _afford(self, changed: ExperimentReader | None, trials: int | None, seconds: float | None) -> None:
        """Refuse a sweep of so many trials and seconds that would, with all others, go beyond the budget."""
        for most, asked, what in ((self.most_trials, trials, "trials"), (self.most_s, seconds, "time")):
            if most is None:
                continue
            if asked is None or asked < 0:
                raise ConfigError(f"there is a budget, so say how much this may take: give {what}. Nothing was done.")
            taken = 0.0
            for reader in map(ExperimentReader, self._experiments()):
                if changed is None or reader.root != changed.root:
                    is_time, plan = what == "time", reader.plan()
                    made = reader.driven_s() if is_time else len(reader.trials())
                    planned = plan.time_budget_s if is_time else plan.num_trials
                    taken += made if reader.state() == "ended" else max(made, most if planned is None else planned)
            if taken + asked > most:
                left = f"{max(0, most - taken):g} of {most:g} {'trials' if what == 'trials' else 's'} are left"
                raise ConfigError(f"beyond the budget: {left}, and it would take {asked:g}. Nothing was done.")

    def _drive(self, name: str, words: Sequence[str]) -> Any:
        """Start a driver that outlives this process, and return once it drives."""
        output = tempfile.TemporaryFile()  # noqa: SIM115 - its end is asked for by `show`
        command = [*_COMMAND, words[0], "--quiet", *words[2:]]  # not --json, which nobody would read
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        threading.Thread(target=process.wait, daemon=True).start()  # a zombie would be taken for a driver that lives
        self._drivers[name] = process, output
        give_up = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < give_up:
            with suppress(SweepError):
                reader = ExperimentReader(self.storage / name)
                if (driver := reader.driver()) and driver.pid == process.pid and reader.last_event():
                    return {"name": name, "pid": process.pid}
            time.sleep(0.05)
        if process.poll() in (0, 1, 3) and (self.storage / name / DATABASE).exists():
            return {"name": name, "exit_code": process.returncode, "said": _tail(output)}
        raise ExperimentError(_tail(output) or f"it has not begun after {_START_S:.0f} s; see `show`.")


def _sweep(*words: str) -> Any:
    """Return what a command prints; of some a list of what stands on each line."""
    try:
        done = subprocess.run(
            [*_COMMAND, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=_CHILD_S, check=False
        )
        text = done.stdout.decode(errors="replace")
        return [*map(json.loads, text.splitlines())] if text and words[0] in _OF_LINES else json.loads(text)
    except subprocess.TimeoutExpired as error:
        raise ExperimentError(f"`sweep {words[0]}` took longer than {_CHILD_S:.0f} s and was ended.") from error
    except ValueError as error:
        why = done.stderr.decode(errors="replace").strip().removeprefix("error: ")
        raise ConfigError(why or f"`sweep {words[0]}` printed nothing.") from error


def _tool(verb: str, options: Sequence[str], about: str) -> tuple[str, Schema]:
    """Return what is said of a command, and the schema of what it takes as a tool."""
    fields: dict[str, Schema] = {}
    needed = []
    for parameter in _command(verb).params:
        key = _key(parameter)
        if isinstance(parameter, click.Option) and key.replace("_", "-") in options:
            fields[key] = _schema_of(parameter)
        elif isinstance(parameter, click.Argument) and parameter.name in _PLACES:
            fields[key] = _PLACES[parameter.name][1]
            needed += [key] * (parameter.required or key == "program")
    fields |= {"arguments": _FIXED} if "program" in fields else {}
    fields |= {"wait": NUMBER | {"minimum": 0, "maximum": 50}} if verb == "show" else {}
    fields |= {"limit": {"type": "integer", "minimum": 1, "maximum": 1000}} if verb == "replay" else {}
    own = " ".join((_command(verb).help or "").partition("\n\n")[0].split())
    return f"{own}{about[1:]}" if about.startswith("+") else about or own, _object(fields, needed)


def _object(fields: dict[str, Schema], needed: Sequence[str] = ()) -> Schema:
    return {"type": "object", "properties": fields, "required": list(needed), "additionalProperties": False}


def _command(verb: str) -> click.Command:
    command = command_line.get_command(click.Context(command_line), verb)
    assert command is not None, verb
    return command


def _key(parameter: click.Parameter) -> str:
    """Return what a parameter of a command is called in a tool: as its option, or as `_PLACES` says."""
    if isinstance(parameter, click.Option):
        return parameter.opts[0].lstrip("-").replace("-", "_")
    return _PLACES.get(parameter.name or "", ("", {}))[0]


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


def _ranges(parameters: Mapping[str, Any]) -> list[str]:
    """Return the ranges as `sweep run` takes them; a text is one already."""
    found = []
    for name, value in parameters.items():
        values = value if isinstance(value, list) else [value]
        texts = [value] if isinstance(value, str) else [_word("x", one)[2:] for one in values]
        found.append(f"{name}={','.join(texts)}")
    return found


def _word(name: str, value: Any) -> str:
    return shlex.split(as_arguments({name: value}))[0]


def _tail(file: IO[bytes]) -> str:
    """Return the end of what a driver wrote."""
    file.seek(max(0, file.seek(0, 2) - 4000))
    return file.read().decode(errors="replace").strip().removeprefix("error: ")
