"""What the tools of `sweep mcp` take, refuse and leave as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from made_experiment import MadeExperiment

from sweep.cli.clients import tools
from sweep.cli.clients.tools import Desk
from sweep.errors import SweepError

READING = {"ls", "show", "trials", "nodes", "best", "why", "logs", "replay", "simulate", "doctor", "figure", "compare"}
ACTING = {"programs", "new", "plan", "run", "resume", "stop", "cancel", "pause", "retry", "enqueue", "edit", "confirm"}
TOOLS = Desk(Path("store"), Path("programs")).tools
VALID = {  # what an argument that a tool must have may be
    "name": "made",
    "names": ["made", "made"],
    "program": "train.py",
    "trial": "0",
    "config": {"lr": 1},
    "figure": "history",
}
PATHS = ("../outside", "made/../../outside", "made/../x", "link", "linked", "/etc/passwd", "--help", "$HOME", "")
SCRIPTS = ("../evil.py", "link.py", "/etc/passwd", "train", "$(id).py", "-c", "sub/../../evil.py", "", ".")
OUTSIDE = {"name": PATHS, "names": PATHS, "from": PATHS, "program": SCRIPTS, "trial": ("../0", "-1", "--help", "99")}
CONTROLS = ("a\0b", "a\nb", "\x1b[2J", "x" * 30_000)
SHELL = ("$(id)", "`id`", "1; rm -rf /", "a|b", "a && b", "a > /tmp/x")
WRONG: dict[str, tuple[Any, ...]] = {
    "string": (7, None, True, ["made"], {"a": 1}),
    "integer": ("all", 1.5, -2, 10**9, None, [1]),
    "number": ("long", -2, None, [1]),
    "boolean": ("yes", 1, None),
    "array": ("made", 7, None, {}),
    "object": ("lr=1", [1], None, {}, {"--storage": 1}, {"a;b": 1}, {"": 1}, {"a\0": 1}, {"lr": None}, {"lr": {}}),
}


def hostile(key: str, schema: dict[str, Any]) -> list[Any]:
    """Return what an argument must not be, by its schema."""
    kind = schema.get("type", "string")
    found = list(WRONG[kind]) if isinstance(kind, str) else [None, {}]
    if kind == "object":
        found += [{"lr": text} for text in CONTROLS + SHELL]
    elif kind == "array":
        found += [[one] for one in hostile(key, schema["items"])] + [["made"] * 1000]
    elif "string" in kind:
        found += CONTROLS + OUTSIDE.get(key, ()) + (SHELL if key != "filter" else ())  # in which a<1 is what is meant
    return found


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A storage with one sweep, and what lies outside and is linked into it; nothing may be started."""
    storage, programs = tmp_path / "store", tmp_path / "programs"
    for root, name in ((storage, "made"), (tmp_path, "outside")):
        made = MadeExperiment(root, name)
        trial = made.trial({"lr": 0.1})
        made.start(trial)
        made.report(trial, {"loss": 0.5})
        made.close()
    (storage / "link").symlink_to(tmp_path / "outside")
    (storage / "linked").mkdir()
    (storage / "linked" / "sweep.db").symlink_to(tmp_path / "outside" / "sweep.db")
    programs.mkdir()
    (programs / "train.py").write_text("print('ran')")
    (tmp_path / "evil.py").write_text("print('ran')")
    (programs / "link.py").symlink_to(tmp_path / "evil.py")

    def refuse(*words: Any, **options: Any) -> Any:
        raise AssertionError(f"started {words}")

    monkeypatch.setattr(tools.subprocess, "run", refuse)
    monkeypatch.setattr(tools.subprocess, "Popen", refuse)
    return Desk(storage, programs)


def everything(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (os.lstat(path).st_mtime_ns, os.lstat(path).st_size) for path in root.rglob("*")}


def test_without_leave_to_run_only_what_reads_is_offered(desk: Desk) -> None:
    assert desk.tools.keys() == READING | ACTING
    reading = Desk(desk.storage)
    assert reading.tools.keys() == READING
    with pytest.raises(SweepError, match="without --allow-run"):
        reading.call("cancel", {"name": "made"})


def test_every_tool_says_what_it_is_for_and_takes_nothing_unknown(desk: Desk) -> None:
    for name, (about, takes) in desk.tools.items():
        assert len(about) > 30, name
        Draft202012Validator.check_schema(takes)
        assert takes["additionalProperties"] is False
        plain = {"wait", "limit", "config", "figure"}
        assert [key for key, one in takes["properties"].items() if key not in plain and not _says(one)] == [], name
        assert takes["required"] == [key for key in takes["properties"] if key in takes["required"]], name
        assert takes["required"] or name in ("ls", "doctor", "programs")


def _says(schema: dict[str, Any]) -> str:
    return str(schema.get("description") or schema.get("items", {}).get("description") or "")


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_hostile_input_is_refused_and_changes_nothing(name: str, desk: Desk, tmp_path: Path) -> None:
    takes = desk.tools[name][1]
    least = {key: VALID[key] for key in takes["required"]}
    calls: list[dict[str, Any]] = [least | {key: 1} for key in ("storage", "output", "", "a;b", "x" * 30_000)]
    calls += [{other: value for other, value in least.items() if other != key} for key in least]
    for key, schema in takes["properties"].items():
        calls += [least | {key: value} for value in hostile(key, schema)]
    before = everything(tmp_path)
    for given in calls:
        with pytest.raises(SweepError) as caught:
            desk.call(name, json.loads(json.dumps(given)))
        assert 20 < len(str(caught.value)) < 1500, given
    assert everything(tmp_path) == before


def test_a_log_or_a_note_that_is_a_link_out_of_the_storage_is_not_read(desk: Desk) -> None:
    trial = desk.storage / "made" / "abcde_00000"
    trial.mkdir(exist_ok=True)
    (trial / "output.log").symlink_to("/etc/passwd")
    with pytest.raises(SweepError, match="leads out of the storage"):
        desk.call("logs", {"name": "made", "trial": "0"})
    (desk.storage / "made" / "notes.md").symlink_to("/etc/passwd")
    with pytest.raises(SweepError, match="leads out of the storage"):
        desk.call("show", {"name": "made"})


def test_what_a_client_says_is_never_taken_for_an_option(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, ...]] = []
    monkeypatch.setattr(tools, "_sweep", lambda *words: said.append(words) or [])
    root, script = str(desk.storage / "made"), str(desk.programs and desk.programs / "train.py")
    desk.call("trials", {"name": "made", "sort": "--help", "filter": ["loss<1"], "limit": 3, "desc": True})
    parameters = {"lr": "loguniform(1e-3,1)", "opt": ["adam", "s,gd"], "n": 3, "on": True}
    desk.call("run", {"program": "train.py", "parameters": parameters, "dry_run": True, "arguments": ["--all", "x y"]})
    desk.call("enqueue", {"name": "made", "config": {"lr": 0.5, "opt": "a(b)"}})
    assert said == [
        ("trials", "--json", root, "--sort=--help", "--desc", "--filter=loss<1", "--limit=3"),
        (
            *("run", "--json", f"--storage={desk.storage}", script, "lr=loguniform(1e-3,1)", "opt=adam,'s,gd'", "n=3"),
            *("on=true", "--dry-run", "--", "--all", "x y"),
        ),
        ("enqueue", "--json", root, "lr=0.5", "opt='a(b)'"),
    ]


def test_what_goes_beyond_the_budget_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(Desk, "_drive", lambda desk, name, words: started.append(name))
    monkeypatch.setattr(tools, "_sweep", lambda *words: started.append(words[0]) or {})
    limited = Desk(desk.storage, desk.programs, most_trials=20, most_s=3600.0)
    script = {"program": "train.py", "parameters": {"lr": [1, 2, 3]}}
    for given, why in (
        ({"time": "1h"}, "give trials"),
        ({"trials": 5}, "give time"),
        ({"trials": 20, "time": "1h"}, "19 of 20 trials are left, and it would take 20"),
        ({"trials": 7, "time": "1h", "searcher": "grid"}, "would take 21"),
        ({"trials": 5, "time": "2h"}, "would take 7200"),
    ):
        with pytest.raises(SweepError, match=why):
            limited.call("run", {**script, **given})
    with pytest.raises(SweepError, match="would take 21"):
        limited.call("plan", {**script, "pilot": 21, "time": "10m"})
    for given in ({"trials": "30", "time": "10m"}, {"trials": "+20", "time": "10m"}, {"time": "2h"}, {"trials": "2"}):
        with pytest.raises(SweepError, match=r"beyond the budget|there is a budget"):
            limited.call("edit", {"name": "made", **given})
    assert started == []
    limited.call("edit", {"name": "made", "trials": "18", "time": "30m"})
    assert started == ["edit"]
    unlimited = Desk(desk.storage, desk.programs)
    unlimited.call("run", {**script, "trials": 1000, "name": "new"})
    with pytest.raises(SweepError, match="is no script below"):  # the made one was started from nowhere
        unlimited.call("confirm", {"name": "made"})
    assert started == ["edit", "new"]
