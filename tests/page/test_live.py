"""`sweep watch`: what it serves to whom, what it sends when something changes, and that it only reads."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment
from served_page import TOKEN, Served, served
from shown_experiment import begin, shown_experiment, subject

from sweep.errors import ConfigError
from sweep.page.live import LivePage, listening_socket
from sweep.record.reader import ExperimentReader

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made(tmp_path: Path) -> MadeExperiment:
    return shown_experiment(tmp_path)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (f"/?token={TOKEN}", {}, 200),
        ("/", {}, 403),
        ("/?token=other", {}, 403),
        ("/?token=s%C3%A9cret", {}, 403),
        ("/events?version=0", {}, 403),
        (f"/events?token={TOKEN}", {}, 400),
        (f"/events?token={TOKEN}&version=1,2", {}, 400),
        (f"/events?token={TOKEN}&version=-1", {}, 400),
        (f"/?token={TOKEN}", {"Host": "evil.example:80"}, 421),
        (f"/?token={TOKEN}", {"Host": "127.0.0.1.evil.example:80"}, 421),
        (f"/?token={TOKEN}", {"Host": "localhost:8080"}, 200),
        (f"/?token={TOKEN}", {"Sec-Fetch-Site": "cross-site"}, 403),
        (f"/?token={TOKEN}", {"Sec-Fetch-Site": "same-site"}, 403),
        (f"/?token={TOKEN}", {"Sec-Fetch-Site": "none"}, 200),
        (f"/sweep.db?token={TOKEN}", {}, 404),
    ],
)
def test_only_who_knows_the_token_and_asks_here_is_served(shared, path, headers, status):
    found, sent = shared.get(path, **headers)
    assert found == status
    if status == 200:
        assert sent["cross-origin-resource-policy"] == "same-origin"
        assert sent["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in sent


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(shown_experiment(tmp_path_factory.mktemp("shared")).root) as page:
        yield page


def test_what_happens_is_sent_to_who_looks_and_nothing_is_read_while_nobody_does(made):
    with served(made.root) as page:
        assert (len(page.live.watching), page.live.models[0].version) == (0, 0)
        assert page.get(f"/?token={TOKEN}")[0] == 200
        with closing(page.news("0")) as stream:  # who comes back with an old version is sent what was missed
            first = next(stream)
            assert len(page.live.watching) == 1
        assert first["title"] == "8/10 shown"
        assert len(first["experiments"][0]["rows"]) == 10
        assert "winner" in first["experiments"][0]["parts"]
        version = ",".join(str(model.version) for model in page.live.models)
        stream = page.news(version)
        figures = next(stream)["experiments"][0]["figures"]
        while len(figures) < len(page.live.models[0].order):
            figures |= next(stream)["experiments"][0]["figures"]
        assert {"history", "curves", "timeline"} <= set(figures)
        trial = begin(made, 10, at=20.0)
        made.report(trial, {"loss": 0.5}, at=21.0)
        made.commit()
        rows: dict[int, Any] = {}
        while 10 not in rows:
            rows |= dict(next(stream)["experiments"][0]["rows"])
        assert rows[10][:3] == [10, "running", 1]
        stream.close()  # the connection goes with it: noticed at the next thing that is sent
    assert not page.live.watching


def test_a_figure_with_another_metric_is_drawn_for_who_asks_and_sent_to_who_comes_later(made: MadeExperiment) -> None:
    live, key = LivePage([subject(made.root)]), "curves\neval/acc\ntime_total_s"
    live.page("events")
    list(live.renew())
    assert live.models[0].figures[key].text == ""
    live.watching["somebody"] = [(0, key), (0, "curves\nno such"), (7, key)]
    list(live.renew())
    now, _ = live.news([0])
    assert live.news(now)[1] == ""
    (sent,) = json.loads(live.news(now, live.watching["somebody"])[1])["experiments"]
    assert list(sent["figures"]) == [key]
    assert sent["choices"]["curves"]["metrics"][:2] == ["loss", "eval/acc"]


def test_a_record_that_disappears_stays_as_it_was_shown(made: MadeExperiment) -> None:
    live = LivePage([subject(made.root)])
    assert live.page("events")
    version = live.models[0].version
    made.close()
    (made.root / "sweep.db").rename(made.root / "moved.db")
    list(live.renew())
    assert live.models[0].version == version
    (made.root / "moved.db").rename(made.root / "sweep.db")
    list(live.renew())
    assert live.models[0].version > version


def refuses_stopping(reader: ExperimentReader, given: Any) -> str:
    if given["verb"] == "stop":
        raise ConfigError("it does not run")
    return f"{given['verb']} {reader.name}"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    roots = [shown_experiment(tmp_path_factory.mktemp("asked"), name).root for name in ("one", "other")]
    with served(*roots, ask=refuses_stopping) as page:
        yield page


PAUSE = '{"index": 2, "verb": "pause"}'


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (PAUSE, {}, 200, "pause other"),
        (PAUSE, {"Sec-Fetch-Site": ""}, 200, "pause other"),
        ('{"index": 1, "verb": "stop"}', {}, 409, "it does not run"),
        ('{"index": 0, "verb": "pause"}', {}, 409, "not understood: "),  # the comparison of the two
        ('{"index": 9, "verb": "pause"}', {}, 409, "not understood: "),
        ('{"verb"', {}, 409, "not understood: "),
        ("[]", {}, 409, "not understood: "),
        (PAUSE, {"X-Sweep-Token": "other"}, 403, "token"),
        (PAUSE, {"X-Sweep-Token": "", "path": f"/ask?token={TOKEN}"}, 403, "token"),
        (PAUSE, {"Origin": ""}, 403, ""),
        (PAUSE, {"Origin": "null"}, 403, ""),
        (PAUSE, {"Origin": "http://evil.example"}, 403, ""),
        (PAUSE, {"Origin": "http://127.0.0.1:1"}, 403, ""),  # another server of this machine
        (PAUSE, {"Host": "evil.example", "Origin": "http://evil.example"}, 421, ""),
        (PAUSE, {"Sec-Fetch-Site": "same-site"}, 403, ""),
    ],
)
def test_a_sweep_is_asked_by_the_page_itself_and_by_nobody_else(asked, body, headers, status, said):
    found, text = asked.post(body, **headers)
    assert (found, said in text) == (status, True), text


def test_a_page_that_only_reads_takes_no_request_and_a_link_is_none(asked, shared):
    assert asked.get(f"/ask?token={TOKEN}")[0] == 405
    assert shared.post(PAUSE)[0] == 404


def test_a_port_that_is_taken_is_named() -> None:
    with (
        listening_socket(0) as taken,
        pytest.raises(ConfigError, match=f"port {taken.getsockname()[1]} cannot be used"),
    ):
        listening_socket(taken.getsockname()[1])


def test_the_command_serves_until_ctrl_c_and_leaves_everything_as_it_was(tmp_path: Path) -> None:
    root = shown_experiment(tmp_path).close()
    before = {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep.cli.main", "watch", str(root)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        found = re.fullmatch(r"shown: http://127\.0\.0\.1:(\d+)/\?token=(\S{32})\n", process.stdout.readline())
        assert f"ssh -L {found[1]}:127.0.0.1:{found[1]} " in process.stdout.readline()
        with closing(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)) as connection:
            connection.request("GET", f"/?token={found[2]}")
            assert "<h1>shown</h1>" in connection.getresponse().read().decode()
        with socket.create_connection(("127.0.0.1", int(found[1]))) as watching:
            watching.sendall(f"GET /events?token={found[2]}&version=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert b"200 OK" in watching.recv(1000)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
    assert {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))} == before
