"""What `make bench` writes: the table from what was recorded, and the programs that it starts and ends."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PEERS = BENCHMARKS / "peers"
MODULES = ("environment", "rows", "run", "table")
_LINK = re.compile(r"\]\((.*?)\)")


@pytest.fixture(scope="module")
def bench() -> Iterator[dict[str, ModuleType]]:
    """The modules of `make bench` by name; they find each other as they do when it runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PEERS))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        yield {name: importlib.import_module(name) for name in MODULES}
        for name in MODULES:
            sys.modules.pop(name)


def tool(*figures: dict[str, float], failure: str = "", says: str = "") -> dict[str, Any]:
    return {"figures": list(figures), "failure": failure, "says": says}


def recorded(**rows: dict[str, Any]) -> dict[str, Any]:
    floors = [{"python_s": 0.02, "fork_bare_per_s": rate} for rate in (1000.0, 900.0, 1100.0)]
    return {"heading": ["On some machine."], "floors": floors, "rows": rows}


def cells(page: str, what: str) -> list[str]:
    """Return the cells of the line of a figure."""
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {what} |"))
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_every_row_has_its_programs_its_peers_and_floors_and_every_program_its_row(bench):
    rows = bench["rows"]
    named = {row.script(program) for row in rows.ROWS for program in row.programs} | set(rows.FLOOR_SCRIPTS)
    there = {str(path.relative_to(PEERS)) for path in [*PEERS.glob("*/with_*.py"), *PEERS.glob("floors/*.py")]}
    assert named == there
    floors = {figure.key for figure in rows.FLOORS}
    for row in rows.ROWS:
        assert row.programs[0].tool == rows.OURS
        assert {program.tool for program in row.programs} <= set(rows.TOOLS)
        assert {figure.floor for figure in row.figures} <= floors | {""}
    assert len({row.name for row in rows.ROWS}) == len(rows.ROWS)
    lines = bench["environment"].requirements()
    for package in {package for _, package in rows.TOOLS.values() if package}:
        assert any(line.startswith(package) for line in lines), package


def test_a_line_has_median_spread_ratio_and_floor(bench):
    ours = tool({"steady_per_s": 180.0}, {"steady_per_s": 260.0}, {"steady_per_s": 240.0})
    ray = tool({"steady_per_s": 1.5}, {"steady_per_s": 1.2}, {"steady_per_s": 2.0}, says="24 trials")
    page = bench["table"].markdown(recorded(noop_fresh={"sweep": ours, "ray": ray}))
    assert cells(page, "no-op trials, a process each, no log files, steady") == [
        "no-op trials, a process each, no log files, steady",
        "200/s, 10x Ray",
        "[sweep](peers/noop_fresh/with_sweep.py) 240/s (180 to 260)",
        "yes",
        "[Ray](peers/noop_fresh/with_ray.py) 1.50/s (1.20 to 2); **160x**; 24 trials",
        "1,000/s, x 0.24",
    ]
    assert "On some machine." in page


def test_what_is_missing_or_failed_is_a_cell_that_says_why(bench):
    page = bench["table"].markdown(
        recorded(
            one_trial={
                "sweep": tool(failure="it took longer than 180 s"),
                "ray": tool(failure="ray is not installed: ERROR: no | such thing"),
                "optuna": tool({"process_s": 0.2}, failure="it ended with 1"),  # one round has no spread
            }
        )
    )
    assert cells(page, "one trial, from process start to exit")[2:] == [
        "[sweep](peers/one_trial/with_sweep.py) failed: it took longer than 180 s",
        "",
        "[Ray](peers/one_trial/with_ray.py) failed: ray is not installed: ERROR: no \\| such thing<br>"
        "[Optuna](peers/one_trial/with_optuna.py) 0.20 s; failed: it ended with 1",
        "",
    ]


@pytest.mark.parametrize(("per_s", "ray", "expected"), [(1300, 20, "yes"), (1300, 140, "no"), (800, 20, "no")])
def test_a_promise_may_be_a_ratio_to_a_peer(bench, per_s, ray, expected):
    found = {"sweep": tool({"steady_per_s": per_s}), "ray": tool({"steady_per_s": ray})}
    page = bench["table"].markdown(recorded(noop_warm=found))
    assert cells(page, "no-op trials, kept processes, steady")[3] == expected


def test_every_link_of_a_full_page_leads_to_a_file(bench):
    found = {
        row.name: {
            program.tool: tool({figure.key: 1.0 for figure in row.figures}, failure="then it failed")
            for program in row.programs
        }
        for row in bench["rows"].ROWS
    }
    page = bench["table"].markdown(recorded(**found))
    links = set(_LINK.findall(page))
    assert len(links) > 25
    assert [link for link in links if not (BENCHMARKS / link).is_file()] == []
    assert bench["table"].text(recorded(**found)).count("\n") + 1 == sum(len(row.figures) for row in bench["rows"].ROWS)


def test_unknown_rows_are_refused_with_those_that_there_are(bench):
    assert [row.name for row in bench["run"].chosen_rows("resume,asha", is_long=False)] == ["resume", "asha"]
    assert "memory" not in [row.name for row in bench["run"].chosen_rows("", is_long=False)]
    with pytest.raises(SystemExit, match=r"no row is called 'ash'; there are one_trial, .*asha"):
        bench["run"].chosen_rows("ash", is_long=False)


def test_a_program_that_needs_what_could_not_be_installed_says_why(bench):
    rows, missing = bench["rows"], bench["run"].missing
    program = rows.Program("ray", package="torch")
    assert missing(program, {"ray": "2", "torch": "2"}, {}) == ""
    assert missing(program, {"ray": "2"}, {}) == "torch is not installed"
    reason = missing(program, {"torch": "2"}, {"ray[tune,train]==2": "ERROR: no such version"})
    assert reason == "ray is not installed: ERROR: no such version"


def test_the_last_line_of_a_program_is_read_and_the_last_of_its_errors(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench["run"], "HERE", tmp_path)
    (tmp_path / "prints.py").write_text("import sys; print('a line'); print('{\"n\": ' + sys.argv[2] + '}')")
    (tmp_path / "fails.py").write_text("raise ValueError('no such thing')")
    (tmp_path / "scratch").mkdir()
    runner = bench["run"].Runner(sys.executable, tmp_path / "scratch")
    assert runner.figures("prints.py", [7])["n"] == 7
    with pytest.raises(bench["run"].Failed, match="ValueError: no such thing"):
        runner.figures("fails.py", [])
    assert len(list((tmp_path / "scratch").iterdir())) == 2, "a place of its own for each"


def test_what_failed_is_tried_again_in_the_next_round_and_what_took_too_long_is_not(bench):
    run, rows = bench["run"], bench["rows"]
    answers = {
        "asha/with_sweep.py": [run.Failed("no luck"), {"ratio": 2.0}],
        "asha/with_ray.py": [run.TookTooLong("it took longer than 180 s")],
        "asha/with_optuna.py": [{"ratio": 3.0}, {"ratio": 4.0}],
    }

    class Played:
        def figures(self, script, arguments, timeout_s):
            answer = answers[script].pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    tools = ("sweep", "ray", "optuna")
    row = rows.Row("asha", tuple(rows.Program(tool) for tool in tools), ())
    found = {"asha": {name: tool() | {"is_over": False} for name in tools}}
    programs = [(row, program) for program in row.programs]
    assert run.measure(Played(), programs, found, False) == ["asha/with_sweep.py failed: no luck"]
    assert run.measure(Played(), programs, found, False) == []
    assert [found["asha"][name]["figures"] for name in tools] == [
        [{"ratio": 2.0}],
        [],
        [{"ratio": 3.0}, {"ratio": 4.0}],
    ]
    assert not any(answers.values())


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench["run"], "HERE", tmp_path)
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(99)"
    (tmp_path / "hangs.py").write_text(
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(99)\n"
    )
    runner = bench["run"].Runner(sys.executable, tmp_path)
    with pytest.raises(bench["run"].Failed, match="longer than 2 s"):
        runner.figures("hangs.py", [], timeout_s=2.0)
    process = Path("/proc", (tmp_path / "pid").read_text(), "stat")
    deadline = time.monotonic() + 30
    while process.exists() and process.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "the program's child is alive"
        time.sleep(0.01)


@pytest.mark.slow
def test_every_program_of_ours_runs(bench):
    command = [sys.executable, str(PEERS / "run.py"), "--quick"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for row in bench["rows"].ROWS:
        for figure in row.figures if not row.is_long else ():
            assert f"\n{figure.what}" in ended.stdout
