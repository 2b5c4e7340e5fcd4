"""A record that names what lies outside of its experiment: nothing there is read, written or deleted."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sealed import changed

import sweep
from sweep import ExperimentAnalysis, Tuner
from sweep.checkpoints.store import discard_in
from sweep.cli.main import sweep as command_line
from sweep.errors import ExperimentError, SweepError
from sweep.record.layout import checked_checkpoint, checked_name, checked_trial_id, leads_outside
from sweep.record.reader import ExperimentReader
from sweep.storage.ownership import LocalState

GOLDEN = Path(__file__).parent / "golden"
SECRET = "what the neighbour printed"
LOOKING = [
    ("ls",),
    *((name, "function") for name in ("ls", "trials", "best", "show", "why", "replay")),
    ("trials", "function", "--format", "json"),
    *((name, "function", "0") for name in ("show", "logs")),
    ("simulate", "function", "--scheduler", "asha"),
]
WAYS = {
    "trial id": "UPDATE {table} SET trial_id = '../victim' WHERE trial_id = '{first}'",
    "absolute trial id": "UPDATE {table} SET trial_id = '{storage}/victim' WHERE trial_id = '{first}'",
    "NUL": "UPDATE {table} SET trial_id = 'a' || char(0) || 'b' WHERE trial_id = '{first}'",
    "log_to_file": """INSERT OR REPLACE INTO meta VALUES ('log_to_file', '["../../victim/output.log", "x"]', 0)""",
}


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A storage with an experiment, and a neighbour's directory that looks like a trial's."""
    monkeypatch.syspath_prepend(str(GOLDEN))
    monkeypatch.setenv("GOLDEN_TOKEN", "given again")
    root = tmp_path / "storage"
    shutil.copytree(GOLDEN / "v1" / "function", root / "function")
    victim = root / "victim"
    shutil.copytree(next((root / "function").glob("*_00000")), victim)
    (victim / "output.log").write_text(SECRET)
    (victim / "tmp-save-1").mkdir()
    for path in (root / "function").glob("*_00000/output.log"):
        path.unlink()
    return root


def everything_in(directory: Path) -> dict[str, Any]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


def forge(storage: Path, *statements: str) -> None:
    with changed(storage / "function" / "sweep.db") as database:
        (first,) = database.execute("SELECT trial_id FROM trial WHERE number = 0").fetchone()
        for statement in statements:
            for table in ("trial", "event") if "{table}" in statement else ("",):
                database.execute(statement.format(table=table, first=first, storage=storage))


def resume(storage: Path) -> Any:
    import golden_work

    return Tuner.restore(storage / "function", golden_work.train).fit()


@pytest.mark.parametrize("way", list(WAYS))
def test_a_command_that_looks_stays_inside(storage: Path, way: str):
    forge(storage, WAYS[way])
    before = everything_in(storage / "victim")
    for command in LOOKING:
        done = CliRunner().invoke(command_line, [*command, "--storage", str(storage)])
        assert SECRET not in done.output, command
        assert "\0" not in done.output, command
        assert isinstance(done.exception, SweepError | SystemExit | None), (command, done.exception)
        if command[0] == "logs":
            assert isinstance(done.exception, ExperimentError), (done.output, done.exception)
            assert "the record names a " in str(done.exception)
    assert everything_in(storage / "victim") == before


@pytest.mark.parametrize(
    ("way", "says"),
    [
        (WAYS["trial id"], "names a trial '../victim'"),
        (WAYS["absolute trial id"], "names a trial '/"),
        ("""UPDATE meta SET value = '"../victim"' WHERE key = 'prefix'""", "names a trial '../victim'"),
        (
            "UPDATE trial SET state = json_set(state, '$.checkpoint', json('[\"../victim/checkpoint_000003\", 3]'))"
            " WHERE number = 3",
            "names a checkpoint '../victim/checkpoint_000003'",
        ),
        (
            'UPDATE trial SET state = json_set(state, \'$.pending\', json(\'["CloneTrial", {{"trial_id": "a",'
            ' "source_id": "b", "config": {{}}, "checkpoint": ["../victim/checkpoint_000003", 3]}}]\'))'
            " WHERE number = 3",
            "names a checkpoint '../victim/checkpoint_000003'",
        ),
    ],
)
def test_a_resume_refuses_it_and_leaves_everything_as_it_is(storage: Path, way: str, says: str):
    forge(storage, way)
    before = everything_in(storage / "victim")
    with pytest.raises(ExperimentError, match=says):
        resume(storage)
    assert everything_in(storage / "victim") == before


def test_checkpoints_that_results_name_outside_are_neither_opened_nor_deleted(storage: Path):
    forge(
        storage,
        "UPDATE event SET data = json_set(data, '$.checkpoint', '../victim/checkpoint_000003')"
        " WHERE json_extract(data, '$.checkpoint') LIKE '%_00003/checkpoint_000001'",
    )
    before = everything_in(storage / "victim")
    analysis = ExperimentAnalysis(storage / "function")
    with pytest.raises(ExperimentError, match=r"names a checkpoint '\.\./victim/checkpoint_000003'"):
        analysis.get_trial_checkpoints_paths(analysis.trials[3])
    assert resume(storage)[3].status == "TERMINATED"  # retention keeps two: it would have been discarded
    assert everything_in(storage / "victim") == before


def test_a_symbolic_link_that_leads_out_is_not_followed_to_delete_anything(storage: Path):
    trial = next((storage / "function").glob("*_00003"))
    before = {path.name for path in (storage / "victim").iterdir()}
    shutil.rmtree(trial)
    trial.symlink_to(storage / "victim")
    grid = resume(storage)
    assert before <= {path.name for path in (storage / "victim").iterdir()}  # its strays and old checkpoints
    assert grid[3].status == "TERMINATED"


def test_what_a_link_leads_to_is_deleted_only_where_it_lies_inside(tmp_path: Path):
    root, victim = tmp_path / "experiment", tmp_path / "victim"
    (victim / "checkpoint_000001").mkdir(parents=True)
    (root / "a_1" / "checkpoint_000001").mkdir(parents=True)
    (root / "out").symlink_to(victim)
    (root / "in").symlink_to("a_1")
    assert leads_outside(root, "out/checkpoint_000001")
    assert not discard_in(root, "out/checkpoint_000001")
    assert (victim / "checkpoint_000001").is_dir()
    assert discard_in(root, "in/checkpoint_000001")
    assert not (root / "a_1" / "checkpoint_000001").exists()
    (root / "a_1" / "checkpoint_000002").symlink_to(victim)  # the link itself goes, what it leads to stays
    assert discard_in(root, "a_1/checkpoint_000002")
    assert os.listdir(root / "a_1") == []
    assert (victim / "checkpoint_000001").is_dir()


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checked_trial_id, ["a1b2c_00042", "t"], ["", ".", "..", "../a", "a/b", "/a", "a\0", "a\n", ".a", None, 7]),
        (
            checked_checkpoint,
            ["a_1/checkpoint_000003", "a_1/checkpoint_000003.2"],
            ["a_1", "a_1/", "a_1/sweep.db", "../checkpoint_000003", "a_1/../checkpoint_000003", "/checkpoint_000003",
             "a_1/checkpoint_000003/..", "a_1/checkpoint_000003/x", "a_1/tmp-x", None, 7],
        ),
        (checked_name, ["output.log", "a b"], ["", ".", "..", "../x", "a/b", "/x", None]),
    ],
)  # fmt: skip
def test_what_a_record_may_name(check: Callable[[Any], str], good: list[Any], bad: list[Any]):
    assert [check(one) for one in good] == good
    for one in bad:
        with pytest.raises(ExperimentError, match="the record names a "):
            check(one)


# --- a bomb in every file: looking loads no pickle -------------------------------------------------------------------


class Bomb(Exception):
    """Makes a directory when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (BOMB_MARK, 0o777, True)

    def __deepcopy__(self, memo: Any) -> Any:
        return self


BOMB_MARK = ""
NOTES = {"pickle": {"uri": "", "shown": "x"}, "address": {"uri": "memory://somewhere/made", "shown": "x"}}


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An experiment of somebody else, with a pickle that acts in each of its files and in all that its record holds."""
    global BOMB_MARK
    storage = tmp_path_factory.mktemp("mined")
    BOMB_MARK = str(storage / "ran")

    def train(config: dict[str, Any]) -> None:
        with sweep.checkpoint_dir() as directory:
            Path(directory, "model.pkl").write_text("x")
        sweep.report({"loss": config["x"]})
        if config["x"] > 2:
            raise Bomb

    class Stateful(sweep.Callback):
        def get_state(self) -> Any:
            return Bomb()

    space = {"x": sweep.grid_search([1.0, 2.0, 3.0]), "y": sweep.uniform(0, 1), "bomb": Bomb()}
    how: dict[str, Any] = {"engine": "inline", "verbose": 0, "raise_on_failed_trial": False, "callbacks": [Stateful()]}
    sweep.run(train, config=space, metric="loss", mode="min", name="made", storage_path=storage, **how)
    root = storage / "made"
    (root / "code").mkdir()
    for path in (root / "code" / "x.pkl", *(trial / "output.log" for trial in root.glob("*_0000?"))):
        path.touch()
    for path in root.rglob("*"):
        if path.is_file() and path.suffix not in (".db", ".mark"):
            path.write_bytes(pickle.dumps(Bomb()))
    yield root
    BOMB_MARK = ""


def read_by_python(root: Path) -> None:
    analysis, reader = ExperimentAnalysis(root), ExperimentReader(root)
    assert len(analysis.trials) == 3
    analysis.dataframe(), analysis.history(), analysis.events(), analysis.stats(), analysis.runner_data()
    repr(analysis), analysis._repr_html_(), dict(analysis.trial_dataframes), analysis.get_all_configs()
    repr([analysis.best_config, analysis.best_result, analysis.best_trial, analysis.results, analysis.best_logdir])
    for trial in analysis.trials:
        result = sweep.Result.from_path(trial.path)
        repr([trial.error, trial.get_error(), trial.get_pickled_error(), trial.metric_analysis, trial.config])
        repr([result, result.error, result.metrics, result.checkpoint, result._repr_html_()])
    repr([reader.history().lives(), list(reader.results()), reader.plan(), reader.state()])
    repr([sweep.Curves.from_experiment(root).curves, Tuner.can_restore(root)])


def read_checkpoints(root: Path) -> None:
    analysis = ExperimentAnalysis(root)
    found = [analysis.best_checkpoint, analysis.get_last_checkpoint(), analysis.best_trial.checkpoint]
    for checkpoint in [*found, *(result.checkpoint for result in analysis.trials)]:
        for read in (lambda c: c.get_metadata(), lambda c: c.as_directory().__enter__(), lambda c: c.to_directory()):
            with pytest.raises(SweepError, match="copy that was made elsewhere"):
                read(checkpoint)


def read_by_commands(root: Path, *more: tuple[str, ...]) -> None:
    for command in more or LOOKING:
        words = [root.name if word == "function" else word for word in command]
        done = CliRunner().invoke(command_line, [*words, "--storage", str(root.parent)])
        assert done.exit_code == 0, (command, done.output, done.exception)


def read_as_pictures(root: Path) -> None:
    analysis = ExperimentAnalysis(root)
    for name in analysis.plot.suited():
        getattr(analysis.plot, name)()
    analysis.to_html(root.parent / "page.html")
    analysis.to_optuna()
    read_by_commands(
        root, ("html", "function", "--output", str(root.parent / "other.html")), ("watch", "--text", "function")
    )


@pytest.mark.parametrize(
    "read", [read_by_python, read_checkpoints, read_by_commands, pytest.param(read_as_pictures, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("note", NOTES)
def test_looking_runs_no_code_whatever_the_files_hold(
    mined: Path, tmp_path: Path, note: str, read: Callable[..., None]
):
    root = tmp_path / "made"
    shutil.copytree(mined, root)
    (root / ".sweep-remote.json").write_text(json.dumps(NOTES[note] | {"object": pickle.dumps(Bomb()).hex()}))
    checkpoints = [path.relative_to(root).as_posix() for path in root.glob("*/checkpoint_*")]
    (root / ".sweep-mirror.json").write_text(json.dumps(asdict(LocalState(elsewhere=checkpoints))))
    for path in checkpoints:
        shutil.rmtree(root / path)
    shutil.rmtree(BOMB_MARK, ignore_errors=True)
    read(root)
    assert not os.path.exists(BOMB_MARK)
    ExperimentAnalysis(root, trust=True).get_all_configs()
    assert os.path.exists(BOMB_MARK)
