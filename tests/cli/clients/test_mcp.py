"""`sweep mcp`, driven by the protocol's own client as an agent would that knows nothing but the tools."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--epochs", type=int, default=4)
given = parser.parse_args()
for epoch in range(1, given.epochs + 1):
    time.sleep(0.05)
    print(f"epoch {epoch} loss={abs(given.lr - 0.03) * 10 + 1 / epoch:.5f}", flush=True)
    while given.width == 64 and epoch == 2 and given.lr > 0.0:
        time.sleep(0.05)
"""


class Client:
    """Calls tools and counts the calls."""

    def __init__(self, session: Any) -> None:
        self.session, self.num_calls = session, 0

    async def __call__(self, tool: str, /, **given: Any) -> Any:
        self.num_calls += 1
        result = await self.session.call_tool(tool, given)
        text = result.content[0].text
        if result.is_error:
            raise ValueError(text)
        return json.loads(text)


@asynccontextmanager
async def server(storage: Path, *more: str) -> Any:
    mcp = pytest.importorskip("mcp")
    command = ["-m", "sweep.cli.main", "mcp", "--storage", str(storage), *more]
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=str(storage.parent)
    )
    async with mcp.stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield Client(session)


async def an_agent(storage: Path, programs: Path) -> None:
    async with server(storage, "--allow-run", "--programs", str(programs), "--budget", "60 trials") as call:
        (program,) = await call("programs")
        found = {one["name"]: one for one in (await call("new", program=program))["parameters"]}
        assert found["lr"]["range"].startswith("loguniform(")
        parameters = {name: one["range"] for name, one in found.items() if one["range"]} | {"width": [16, 32]}
        tried = await call("run", program=program, parameters=parameters, dry_run=True)
        metric = tried["metrics"][-1]["name"]
        assert metric == "loss"
        asked = {"program": program, "parameters": parameters, "metric": metric, "goal": "minimize", "trials": 40}
        asked["arguments"] = ["--epochs", 3]
        planned = await call("plan", **asked, concurrency=2)
        assert (planned["num_trials"], planned["at_once"], planned["warnings"]) == (40, 2, [])
        name = (await call("run", **asked, concurrency=2))["name"]
        said = await call("enqueue", name=name, config={"width": 64})  # hangs: hopeless
        assert "tried next" in said["said"]
        running: list[dict[str, Any]] = []
        while not running:
            await asyncio.sleep(1.0)
            running = await call("trials", name=name, filter=["width=64", "state=running"])
        assert "is ended" in (await call("cancel", name=name, trial=[running[0]["trial"]]))["said"]
        pid = json.loads((storage / name / "driver.lock").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        crashed = await call("show", name=name, wait=5)
        assert crashed["state"] in ("crashed", "stopped")
        assert crashed["driver"]["exit_code"] == -signal.SIGKILL
        await call("resume", name=name)
        facts = await call("show", name=name, wait=50)
        assert facts["state"] == "ended"
        assert facts["trials"]["finished"] == facts["trials"]["trials"] == 41
        assert " --epochs 3" in facts["command"]
        (best,) = await call("best", name=name)
        drawn = await call("figure", name=name, figure="importance")
        shares = dict(zip(drawn["layout"]["yaxis"]["ticktext"], drawn["data"][0]["x"], strict=True))
        assert max(shares, key=lambda one: shares[one]).startswith("lr ")
        assert abs(best["lr"] - 0.03) < 0.02
        assert call.num_calls <= 15
        with pytest.raises(ValueError, match="19 of 60 trials are left"):
            await call("run", **asked)


@pytest.mark.slow
def test_an_agent_that_knows_only_the_tools_sweeps_an_unknown_script(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "train.py").write_text(SCRIPT)
    asyncio.run(an_agent(tmp_path / "store", tmp_path / "programs"))


@pytest.mark.slow
def test_a_started_sweep_goes_on_when_the_server_ends_and_a_reading_server_shows_it(tmp_path: Path) -> None:
    async def start() -> str:
        async with server(tmp_path / "store", "--allow-run", "--programs", str(tmp_path)) as call:
            with pytest.raises(ValueError, match="takes no parameter 'rl'"):
                await call("run", program="train.py", parameters={"rl": 1}, name="bad")
            asked = {"parameters": {"lr": [0.1, 0.2], "epochs": 40}, "metric": "loss", "goal": "minimize", "trials": 2}
            started = await call("run", program="train.py", **asked)
            return str(started["name"])

    async def look(name: str) -> None:
        async with server(tmp_path / "store") as call:
            facts = await call("show", name=name, wait=50)
            assert (facts["state"], facts["trials"]["finished"]) == ("ended", 2)
            assert "driver" not in facts
            with pytest.raises(ValueError, match="only reads"):
                await call("resume", name=name)

    (tmp_path / "train.py").write_text(SCRIPT)
    asyncio.run(look(asyncio.run(start())))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--allow-run"], "belong together"),
        (["--programs", "."], "belong together"),
        (["--storage", "memory://x"], "not a directory of this machine"),
        (["--budget", "much"], "no span of time"),
    ],
)
def test_a_server_that_would_not_be_confined_does_not_start(arguments: list[str], why: str, capsys: Any) -> None:
    from sweep.cli.main import _run

    assert _run(["mcp", *arguments]) == 2
    assert why in capsys.readouterr().err
