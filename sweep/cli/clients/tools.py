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
from sweep.cli.clients.bounds import Bounds
from sweep.cli.clients.offers import ACTING, FIGURES, PLACES, READING, command_of, key_of, object_of, tool_of
from sweep.cli.clients.schema import Schema, one_of
from sweep.cli.main import COMMANDS
from sweep.cli.ranges import parse_parameter
from sweep.confirmation import REPEATS, TOP
from sweep.core.literals import as_arguments, json_text
from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.record.layout import DATABASE, check_name
from sweep.record.reader import ExperimentReader
from sweep.requests.attached import Attached

_MOST_ASKED, _MOST_ANSWERED = 20_000, 200_000  # characters
_START_S, _CHILD_S = 60.0, 300.0
_OF_LINES, _OF_A_STORAGE = ("replay", "resume"), ("ls", "doctor", "run", "plan")
_COMMAND = [sys.executable, "-P", "-m", "sweep.cli.main"]


@dataclass
class Desk(Bounds):
    """Carries tools out, within bounds.

    Attributes:
        tools: name -> what is said of it to those who know nothing else, and the schema of its arguments.
    """

    tools: dict[str, tuple[str, Schema]] = field(default_factory=dict)
    _drivers: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of what acts: the budget holds

    def __post_init__(self) -> None:
        if self.programs is not None:
            self.tools["programs"] = "List the scripts that can be run, by path.", object_of({})
        for verb, (options, about) in (READING | (ACTING if self.programs is not None else {})).items():
            if verb in COMMANDS:
                self.tools[verb] = tool_of(verb, options.split(), about)
        shown = object_of({"name": PLACES["reader"][1], "figure": one_of(*FIGURES)}, ["name", "figure"])
        self.tools["figure"] = "Return the data of a figure as plotly's JSON: traces with x and y.", shown

    def call(self, name: str, given: dict[str, Any]) -> str:
        """Return what a tool answers, as JSON.

        Raises:
            SweepError: it is refused, and nothing was changed.
        """
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match

        if name not in self.tools:
            why = "this server only reads: it was started without --allow-run" if name in ACTING else "see tools/list"
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
        if name in ACTING:
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
            rows, known = _sweep(*self._words(verb, given)), self.experiments()
            return [row for row in rows if self.storage / row["name"] in known] if verb == "ls" else rows
        reader = self.reader(given["name"])
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
            self.afford(None, given["pilot"], parse_seconds(given["time"]) if "time" in given else None)
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
            self.afford(None, trials, parse_seconds(given["time"]) if "time" in given else None)
            return self._drive(name, words)
        reader = self.reader(name := given["name"])
        plan, words, span = reader.plan(), self._words(verb, given), given.get("time", "")
        trials = parse_count(given["trials"], plan.num_trials or 0) if "trials" in given else plan.num_trials
        seconds = parse_seconds(span.removeprefix("+")) if span else plan.time_budget_s
        if span.startswith("+"):
            seconds = (seconds or 0) + max(reader.driven_s(), plan.time_budget_s or 0)
        if verb == "confirm":
            over = next((ExperimentReader(one) for one in self.experiments() if one.name == f"{name}-confirm"), None)
            self.afford(over, given.get("top", TOP) * given.get("repeats", REPEATS), None)
            if over is not None and over.state() == "ended":
                return _sweep(*words)  # what came of it
        elif verb in ("enqueue", "edit", "resume", "retry"):
            self.afford(reader, trials if trials is None else trials + (verb == "enqueue"), seconds)
        if verb == "confirm" or (verb == "resume" and not Attached(reader).is_running):
            script = str(reader.meta.get("import_path") or "")
            self.script(script if script.startswith("/") else "")
            return self._drive(f"{name}-confirm" if verb == "confirm" else name, words)
        return _sweep(*words)

    def _words(self, verb: str, given: Mapping[str, Any]) -> list[str]:
        """Return a command line: what it names was found, and no value of a client's can be taken for an option."""
        reader = None if verb == "run" or "name" not in given else self.reader(given["name"])
        words = [verb, "--json", *[f"--storage={self.storage}"] * (verb in _OF_A_STORAGE)]
        for parameter in command_of(verb).params:
            key = key_of(parameter)
            if (value := given.get(key)) is None:
                continue
            values = value if isinstance(value, list) else [value]
            match key:
                case "name" if reader is not None:
                    values = [str(reader.root)]
                case "names" | "from":
                    values = [str(self.reader(one).root) for one in values]
                case "trial" if reader is not None:
                    values = [reader.trial(one).trial_id for one in values]
                case "program":
                    values = [self.script(value)]
                case "config":
                    values = [_word(name, one) for name, one in value.items()]
                case "parameters":
                    values = _ranges(value)
            option = f"--{key.replace('_', '-')}"
            if not isinstance(parameter, click.Option):
                words += values
            else:
                words += [option] * value if parameter.is_flag else [f"{option}={one}" for one in values]
        fixed = [str(word) for word in given.get("arguments", ())]
        return [*words, *["--"] * bool(fixed), *fixed]

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
