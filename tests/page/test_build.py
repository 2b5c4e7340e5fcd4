"""A page as a file: needs nothing else, holds no markup of the user's, is written whole or not at all."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment
from shown_experiment import SCRIPT, shown_experiment, subject

from sweep import ExperimentAnalysis, ResultGrid
from sweep.cli.main import sweep as command_line
from sweep.errors import ConfigError
from sweep.page.build import rendered, write_page
from sweep.record.reader import ExperimentReader


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shown_experiment(tmp_path_factory.mktemp("made")).root


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return rendered([subject(root)])


def packed(text: str, name: str) -> str:
    found = re.search(rf'<script type="text/plain" id="{name}">([^<]*)</script>', text)
    return gzip.decompress(base64.b64decode(found[1])).decode()


def payload(text: str) -> Any:
    return json.loads(packed(text, "payload"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_it_asks_nobody_for_anything_has_its_data_and_is_below_what_a_mail_takes(text):
    outside = re.sub(r'<script type="text/plain"[^>]*>[^<]*</script>', "", text)
    assert not re.search(r"""(?:src|href|action)\s*=\s*["'](?!data:|#)""", outside)
    assert not re.search(r"@import|url\(", outside)
    assert "connect-src 'none'" in outside
    assert "plotly.js v" in packed(text, "plotly")
    assert len(text) < 2_200_000
    (experiment,) = payload(text)["experiments"]
    assert [row[0] for _, row in experiment["rows"]] == list(range(10))
    assert {name for name in experiment["figures"] if "\n" not in name} == set(experiment["order"])
    assert set(experiment["order"]) >= {"history", "curves", "timeline"}
    assert all(json.loads(figure)["data"] for figure in experiment["figures"].values())


def test_no_text_of_the_user_is_markup(text: str, root: Path) -> None:
    assert text.count("<script") == 3
    assert SCRIPT not in text
    figures = payload(text)["experiments"][0]["figures"]
    literal = {
        key for key in figures if key.startswith("parallel")
    }  # plotly shows the ticks of parallel axes literally
    assert not [key for key in figures.keys() - literal if "<script" in figures[key]]


def test_a_landmark_a_heading_and_a_name_for_everything(text: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for label in re.findall(r'aria-labelledby="([^"]+)"', text):
        assert label in ids
    assert text.count("<main") == text.count("<h1") == 1
    assert 'lang="en"' in text


def test_an_analysis_and_a_grid_give_it_as_text_or_write_it(root: Path, tmp_path: Path) -> None:
    analysis = ExperimentAnalysis(root)
    written = ResultGrid(analysis).to_html(tmp_path / "page.html")
    assert written == str(tmp_path / "page.html")
    assert payload(Path(written).read_text())["experiments"] == payload(analysis.to_html())["experiments"]
    assert os.stat(written).st_mode & 0o777 == 0o666 & ~_umask()


def test_several_are_compared_whether_analyses_or_directories(root: Path, tmp_path: Path) -> None:
    other = shown_experiment(tmp_path, "other").root
    compared = ExperimentAnalysis(root).to_html(compare=[str(other)])
    assert re.findall(r'data-article="e\d">([^<]*)<', compared) == ["compared", "shown", "other"]
    assert [one["index"] for one in payload(compared)["experiments"]] == [0, 1, 2]
    alone = ExperimentAnalysis(root).to_html(compare=ExperimentAnalysis(other))
    assert alone.count("data-article=") == compared.count("data-article=")
    with pytest.raises(ConfigError, match="is there twice; a page has each experiment once"):
        ExperimentAnalysis(root).to_html(compare=[root])


def test_an_experiment_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    text = rendered([subject(MadeExperiment(tmp_path, num_trials=5).commit())])
    assert "0 of 5 trials ended: no trials yet" in re.sub(r"<[^>]+>", "", text)
    assert payload(text)["experiments"][0]["figures"] == {}


def test_a_page_of_a_sweep_that_runs_says_as_of_when_it_is(root, text, monkeypatch):
    monkeypatch.setattr(ExperimentReader, "state", lambda reader: "running")
    assert re.search(r'role="status">as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d', rendered([subject(root)]))
    assert 'role="status"' not in text


@pytest.mark.parametrize(
    ("target", "said"), [("", "is a directory; expected a file"), ("no/such/page.html", "No such file or directory")]
)
def test_where_it_cannot_be_written_nothing_is_left(root: Path, tmp_path: Path, target: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write_page([subject(root)], tmp_path / target)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_is_written_to_and_never_replaced(root: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = tmp_path / "read"
    with read.open("w") as file, subprocess.Popen(["cat", pipe], stdout=file):
        done = CliRunner().invoke(command_line, ["html", str(root), "-o", str(pipe)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert read.read_text().startswith("<!doctype html>")
    assert pipe.is_fifo()


def test_a_link_stays_a_link_and_a_private_file_private(root: Path, tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.touch(0o600)
    link.symlink_to(page)
    assert write_page([subject(root)], link) == link
    assert link.is_symlink()
    assert page.read_text().startswith("<!doctype html>")
    assert page.stat().st_mode & 0o777 == 0o600


def test_the_command_writes_beside_where_it_is_called(root, tmp_path, monkeypatch):
    other = shown_experiment(tmp_path / "store", "other").root
    monkeypatch.chdir(tmp_path)
    for arguments, name in (
        ([str(root)], "shown.html"),
        ([str(root), "-o", "mine.html"], "mine.html"),
        ([str(root), str(other)], "compared.html"),
    ):
        done = CliRunner().invoke(command_line, ["html", *arguments])
        assert done.exit_code == 0, done.output
        assert done.output.startswith(f"{name}  2.")
        assert (tmp_path / name).is_file()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_sweep_without_a_metric_is_given_one_by_who_looks(tmp_path: Path) -> None:
    root = shown_experiment(tmp_path, metric=None, mode=None).root
    assert "history" not in payload(ExperimentAnalysis(root).to_html())["experiments"][0]["figures"]
    analysis = ExperimentAnalysis(root, default_metric="loss", default_mode="min")
    found = payload(analysis.to_html())["experiments"][0]
    assert "history" in found["figures"]
    assert found["columns"][3] == ["loss", "metric"]
    target = tmp_path / "page.html"
    arguments = ["html", str(root), "-o", str(target), "--metric", "loss", "--goal", "minimize"]
    assert CliRunner().invoke(command_line, arguments).exit_code == 0
    assert payload(target.read_text())["experiments"][0]["figures"].keys() == found["figures"].keys()
