"""`sweep migrate`: imports of Ray become imports of sweep, and nothing else changes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from sweep.cli.main import sweep
from sweep.cli.migrate import migrated

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "how-to" / "migrate-from-ray-tune.md"
PROGRAMS = sorted((ROOT / "tests" / "compatibility" / "programs").glob("*.py"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import ray, os\n", "import sweep as ray, os\n"),
        ("import os, ray.tune as tune, ray.train  # ray\n", "import os, sweep.tune as tune, sweep as ray  # ray\n"),
        ("import ray; x = 1\n", "import sweep as ray; x = 1\n"),
        ("if True:\n\tfrom ray import tune\n", "if True:\n\tfrom sweep import tune\n"),
        ("try: from ray import tune\nexcept ImportError: tune = None\n",) * 2,
        ("é = 'ü'; from ray.air import session\n", "é = 'ü'; from sweep.air import session\n"),
        (
            "from ray \\\n  .tune import (\n  run,  # ray\n)\r\n",
            "from sweep \\\n  .tune import (\n  run,  # ray\n)\r\n",
        ),
        ("import ray as r\nr.tune.uniform(0, 1)\n", "import sweep as r\nr.tune.uniform(0, 1)\n"),
        ("'''\nimport ray\n'''\ntext = 'from ray import tune'\n",) * 2,
        ("from . import ray\nfrom .ray import tune\nimport ray_lightning, rayon\n",) * 2,
        ("%matplotlib inline\n!pip install 'ray[tune]'\nfiles = !ls\nimport ray\n",) * 2,
        ("print 'Python 2'\nimport ray\nif x:\n    print x\n",) * 2,
    ],
)
def test_an_import_is_rewritten_wherever_it_stands(before: str, after: str) -> None:
    if before == after and not before.startswith(("'", "from .")):  # these are written once: one import in them
        after = re.sub(r"import ray$", "import sweep as ray", before, flags=re.M).replace("from ray", "from sweep")
    assert migrated(before, {}) == (after, {})
    assert migrated(after, {}) == (after, {})


def test_what_has_no_counterpart_is_named_with_its_line_and_what_to_do() -> None:
    source = """
import ray, importlib
from ray import tune
try:
    from ray.tune.search.ax import AxSearch
except (ImportError, OSError):
    from ray.tune.search.hebo import HEBOSearch
from ray.air import session
@ray.remote
def f():
    session.report({"x": ray.get(ray.put(1))}); session.nothing()
tune.run_sklearn(f); ray.data.read_csv("x"); ray.tune.schedulers.pb2.PB2; tune.integration.keras.TuneReportCallback
if ray.__version__ > "2": importlib.import_module("ray.tune")
print "ray", ray.get(1)
os.remote("ray.tune")
{"scheduler": "ray.tune.schedulers.HyperBandScheduler", "log": "ray.tune.search", "text": "of ray.tune.Tuner"}
"""
    _, left = migrated(source, {})
    assert [(line, what.partition(":")[0]) for line, what in left] == [
        (7, "ray.tune.search.hebo has no counterpart"),
        (9, "ray.remote has no counterpart"),
        (11, "ray.air.session.nothing has no counterpart"),
        (11, "ray.get has no counterpart"),
        (11, "ray.put has no counterpart"),
        (12, "ray.data has no counterpart"),
        (12, "ray.tune.run_sklearn has no counterpart"),
        (13, "ray.__version__"),
        (13, "the text 'ray.tune' stays as it is"),
        (14, "this line cannot be read as Python"),
        (16, "the text 'ray.tune.schedulers.HyperBandScheduler' stays as it is"),
    ]
    assert all(len(what.rpartition(": ")[2]) > 15 for _, what in left)


def test_it_does_what_the_guides_sed_line_does() -> None:
    (command,) = re.findall(r"^sed -E -i '(.+)' script\.py$", GUIDE.read_text(encoding="utf-8"), flags=re.M)
    texts = [path.read_text(encoding="utf-8") for path in PROGRAMS]
    replaced = subprocess.run(
        ["sed", "-E", command], input="\0".join(texts), capture_output=True, text=True, check=True
    ).stdout.split("\0")
    assert [migrated(text, {})[0] for text in texts] == replaced


def test_a_notebook_keeps_all_but_its_imports_and_names_last_from_cell_to_cell(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["import ray\n", "ü"]},
        {"cell_type": "code", "source": ["%%time\n", "!pip install ray[tune]\n", "import ray"], "outputs": [1e-05]},
        {"cell_type": "code", "source": "%%bash\npip install ray"},
        {"cell_type": "code", "source": "from ray import tune\nray.get(1)"},
    ]
    path = tmp_path / "search.ipynb"
    path.write_text(json.dumps({"cells": cells}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.chmod(0o640)
    before = path.read_text(encoding="utf-8")
    shown = CliRunner().invoke(sweep, ["migrate", str(path)])
    assert path.read_text(encoding="utf-8") == before
    assert [line[:1] for line in shown.stdout.splitlines() if re.match(r"[-+] ", line)] == ["-", "+", "-", "+"]
    assert f"{path}: cell 4, line 2: ray.get has no counterpart" in shown.stderr
    CliRunner().invoke(sweep, ["migrate", "--write", str(path)])
    assert path.stat().st_mode & 0o777 == 0o640
    after = before.replace('"import ray"\n   ],\n   "outputs', '"import sweep as ray"\n   ],\n   "outputs')
    assert path.read_text(encoding="utf-8") == after.replace("from ray import tune", "from sweep import tune")


def test_a_directory_stands_for_all_scripts_and_notebooks_below_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sweep.cli.main import main

    for name in ("a.py", "src/b.py", "src/c.txt", ".venv/d.py", "src/.ipynb_checkpoints/e.ipynb"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import ray\n")
    with pytest.raises(SystemExit) as ended:
        main(["migrate", str(tmp_path), "--write"])
    assert ended.value.code == 0
    assert "2 of 2 files changed" in capsys.readouterr().err
    changed = {
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*.*")
        if path.is_file() and "sweep" in path.read_text()
    }
    assert changed == {"a.py", "src/b.py"}


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("train.py", b"\xef\xbb\xbfimport ray\r\n", 0, "1 of 1 files changed; 0 lines left to you"),
        ("train.py", b"# coding: latin-1\nimport ray\nx = '\xfc'\n", 0, "1 of 1 files changed"),
        ("train.py", b"import os\n", 0, "0 of 1 files changed"),
        ("train.py", b"import ray\nx = '\xfc'\n", 1, "cannot be read as what its name says: "),
        ("search.ipynb", b"{", 1, "cannot be read as what its name says: "),
        ("search.ipynb", b"{}", 1, "open it in Jupyter and save it"),
        ("sweep.py", b"import ray\n", 1, "sweep.py hides the package 'sweep'"),
        ("train.py", None, 2, "train.py cannot be read or written: No such file or directory."),
    ],
)
def test_the_code_says_whether_something_is_left(
    name: str, content: bytes | None, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sweep.cli.main import main

    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["migrate", str(path), "--write"])
    assert ended.value.code == code
    assert said in capsys.readouterr().err
    if content is not None and code == 0:
        assert path.read_bytes() == content.replace(b"import ray", b"import sweep as ray")
