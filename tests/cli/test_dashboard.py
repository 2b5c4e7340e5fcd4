"""`sweep dashboard`: what it serves, to whom, in which state of a sweep, and how it ends."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import console_errors, open_page, requested_urls, screenshot
from click.testing import CliRunner
from made_experiment import MadeExperiment

import sweep
from searchers.space import to_json
from sweep.cli import dashboard, main
from sweep.core.values import shown
from sweep.record.reader import ExperimentReader
from sweep.results.optuna_study import objectives_for

ROOT = Path(__file__).parents[2]
TEXT = "<script>document.title = 'hit'</script>"
SPACE = {"lr": sweep.loguniform(1e-4, 1), "act": sweep.choice(["relu", TEXT])}


def made(folder: Path, name: str = "digits") -> MadeExperiment:
    """Three trials: one that has ended, one that was stopped early, one that runs."""
    experiment = MadeExperiment(folder, name, prefix=name, domains=to_json(SPACE, shown))
    for number, reason in enumerate(["", "stopped early: worse", None]):
        trial = experiment.trial({"lr": 0.1 / (1 + number), "act": TEXT, "note": TEXT})
        experiment.start(trial)
        for step in range(4):
            experiment.report(trial, {"loss": 1 / (1 + step + number), TEXT: 1.0})
        if reason is not None:
            experiment.end(trial, reason=f"{reason}{TEXT if reason else ''}")
    experiment.commit()
    return experiment


@contextmanager
def served(*roots: Path) -> Iterator[str]:
    """Serve experiments in a thread, and give the address."""
    import optuna_dashboard  # here, because each process of the suite loads this file, and it takes a second

    readers = [ExperimentReader(root) for root in roots]
    server = dashboard._server([(reader, objectives_for(reader)) for reader in readers], 0, optuna_dashboard)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())


def test_it_serves_every_sweep_as_a_study_with_its_trials(tmp_path):
    first, second = made(tmp_path), made(tmp_path, "other")
    with served(first.root, second.root) as address:
        studies = get(f"{address}/api/studies")["study_summaries"]
        assert [study["study_name"] for study in studies] == ["digits", "other"]
        detail = get(f"{address}/api/studies/1")
        assert [trial["state"] for trial in detail["trials"]] == ["Complete", "Pruned", "Running"]
        assert detail["trials"][0]["values"] == [0.25]
        assert {"key": "config/note", "value": TEXT} in detail["trials"][0]["user_attrs"]


def test_it_shows_what_was_recorded_after_it_was_started(tmp_path):
    experiment, other = MadeExperiment(tmp_path, domains=to_json({"lr": SPACE["lr"]}, shown)), made(tmp_path / "b")
    trial = experiment.trial({"lr": 0.1})
    with served(experiment.commit(), other.root) as address:
        (waiting,) = get(f"{address}/api/studies/0")["trials"]
        assert waiting["state"] == "Waiting"
        experiment.start(trial)
        experiment.report(trial, {"loss": 3.0})
        experiment.commit()
        (now,) = get(f"{address}/api/studies/0")["trials"]
        assert (now["state"], now["intermediate_values"]) == ("Running", [{"step": 1, "value": 3.0}])
        experiment.end(trial)
        experiment.commit()
        (then,) = get(f"{address}/api/studies/0")["trials"]
        assert (then["state"], then["values"]) == ("Complete", [3.0])


def test_sweeps_of_one_name_are_told_apart(tmp_path):
    one, other = made(tmp_path), made(tmp_path / "b")
    with served(one.root, other.root) as address:
        names = [study["study_name"] for study in get(f"{address}/api/studies")["study_summaries"]]
        assert names == [f"digits ({one.root})", f"digits ({other.root})"]


def refusal_of(request: Any) -> int:
    """Send a request; return the code that it is answered with."""
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_nothing_can_be_changed_and_only_who_calls_it_by_a_name_of_this_machine_is_answered(tmp_path):
    with served(made(tmp_path).root) as address:
        for path, method in [("/api/studies/0", "DELETE"), ("/api/studies/0/note", "PUT"), ("/api/studies", "POST")]:
            body = json.dumps({"study_name": "new", "directions": [0], "body": "x", "version": 1}).encode()
            headers = {"Content-Type": "application/json"}
            assert refusal_of(urllib.request.Request(address + path, body, headers, method=method)) == 403
        assert len(get(f"{address}/api/studies")["study_summaries"]) == 1
        for host, code in [
            *(("evil.example.com", 403), ("127.0.0.1.evil.example:80", 403)),
            *(("localhost:8080", 200), ("127.0.0.1:1", 200)),
        ]:
            assert refusal_of(urllib.request.Request(f"{address}/api/studies", headers={"Host": host})) == code


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main.main(["dashboard", *arguments])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_cannot_be_shown_is_one_line(tmp_path, capsys, monkeypatch):
    root = made(tmp_path).root
    assert "Did you mean 'digits'?" in fails(capsys, "digit", "--storage", str(tmp_path))
    nothing = MadeExperiment(tmp_path, "nothing", metric=None, mode=None).commit()
    assert "needs metric and mode, and nothing has metric=None" in fails(capsys, str(nothing))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 cannot be used: Address already in use" in fails(
            capsys, str(root), "--port", str(port)
        )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "needs optuna_dashboard, which is not installed. Run: pip install optuna-dashboard" in fails(
        capsys, str(root)
    )


def test_the_help_says_that_there_is_no_password():
    assert "no password" in CliRunner().invoke(main.sweep, ["dashboard", "--help"]).output


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """Run the command; give the process, the address and the lines after it."""
    command = [sys.executable, "-u", "-W", "error", "-m", "sweep.cli.main", "dashboard", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            found = re.search(r"http://\S+", lines[0])
            assert found is not None, lines
            yield process, found[0], lines
        finally:
            process.kill()


@pytest.mark.browser
@pytest.mark.parametrize("state", ["read-only", "crashed"])
def test_a_browser_shows_the_trials_and_ctrl_c_ends_it(tmp_path, state):
    experiment = made(tmp_path)
    root = experiment.close()
    before = {path.name: path.stat().st_mtime_ns for path in root.iterdir()}
    if state == "read-only":
        root.chmod(0o500)
    with started(str(root)) as (process, address, lines):
        port = address.split(":")[2].partition("/")[0]
        assert f"ssh -L {port}:127.0.0.1:{port} " in lines[1]
        assert "no password" in lines[2]
        with open_page(address) as driver:
            from selenium.webdriver.support.ui import WebDriverWait

            def text_of_page(_: Any) -> str:
                return driver.execute_script("return document.body.innerText")

            WebDriverWait(driver, 30).until(
                lambda one: "Best Trial" in text_of_page(one) and "0.25" in text_of_page(one)
            )
            driver.get(f"{address}/trials")
            WebDriverWait(driver, 30).until(lambda one: "3 Trials" in text_of_page(one))
            shown_text = text_of_page(driver)
            assert all(word in shown_text for word in ("Trial 0", "Complete", "Pruned", "Running", TEXT))
            assert driver.title != "hit"
            assert console_errors(driver) == []
            assert [url for url in requested_urls(driver) if not url.startswith("http://127.0.0.1:")] == []
            assert screenshot(driver, tmp_path / "trials.png").stat().st_size > 10_000
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
        assert rest.splitlines() == ["ended"]
        assert process.returncode == 0
    assert {path.name: path.stat().st_mtime_ns for path in root.iterdir()} == before
    root.chmod(0o700)
