"""Processes that a trial starts with `spawn` find what the driver's script defines, as in a program without a sweep."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sweep.worker.script import script_of_driver

SCRIPT = """
import multiprocessing
import sys
{imports}
import sweep

with open("bodies", "a") as file:
    print(__name__, __file__, sys.argv[0], file=file)


def square(x):
    return x * x


def twice(x):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return 2 * pool.apply(square, (x,))


def train(config):
    how, function = config["how"]
    if function == "twice":
        process = multiprocessing.get_context(how).Process(target=twice, args=(3,))  # a pool's worker may have no child
        process.start()
        process.join()
        return {{"value": process.exitcode}}
    with multiprocessing.get_context(how).Pool(1) as pool:
        return {{"value": pool.apply(square, ({three},))}}

{guard}
    ways = [["spawn", "square"], ["forkserver", "square"], ["spawn", "twice"]]
    analysis = sweep.run(
        train, config={{"how": sweep.grid_search(ways)}}, storage_path="results", name="one", verbose=0, {options}
    )
    print([trial.last_result["value"] for trial in analysis.trials])
"""
GUARDS = {"guarded": 'if __name__ == "__main__":', "unguarded": "if True:"}


def script(path, guard, *, imports="", three="3", options=""):
    path.write_text(SCRIPT.format(guard=GUARDS[guard], imports=imports, three=three, options=options))
    return path


def output(tmp_path, *command):
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100
    )
    logs = "".join(path.read_text() for path in tmp_path.glob("results/one/*/output.log"))
    assert done.stdout == "[9, 9, 0]\n", done.stderr + logs
    return done.stderr


def bodies(tmp_path):
    return [line.split() for line in (tmp_path / "bodies").read_text().splitlines()]


@pytest.mark.parametrize(
    ("guard", "options"),
    [
        ("unguarded", ""),
        *(
            pytest.param(*given, marks=pytest.mark.slow)
            for given in (
                ("guarded", ""),
                ("unguarded", "reuse_actors=True"),
                ("unguarded", 'start_method="spawn"'),
            )
        ),
    ],
)
def test_a_pool_of_a_trial_finds_the_functions_of_the_script(tmp_path, guard, options):
    path = script(tmp_path / "tune_me.py", guard, options=options)
    assert output(tmp_path, path) == ""
    assert bodies(tmp_path)[0] == ["__main__", str(path), str(path)]
    assert bodies(tmp_path)[1:] == [["__mp_main__", str(path), str(path)]] * 4  # `twice` is a process, and starts one
    assert [entry.name for entry in tmp_path.glob("results/*")] == ["one"]


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS)
def test_so_it_does_where_the_script_is_a_module_of_a_package(tmp_path, guard):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "beside.py").write_text("THREE = 3\n")
    script(tmp_path / "package" / "tune_me.py", guard, imports="from .beside import THREE", three="THREE")
    assert output(tmp_path, "-m", "package.tune_me") == ""
    assert [name for name, *_ in bodies(tmp_path)] == ["__main__"] + ["__mp_main__"] * 4


def test_a_trial_of_code_that_is_no_scripts_starts_processes_as_before(tmp_path):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        import multiprocessing, operator, sys
        def train(config):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                value = pool.apply(operator.add, (4, 5))
            return {"value": value, "script": getattr(sys.modules["__main__"], "__file__", None)}
        """)
    )
    (tmp_path / "start.py").write_text(
        "import mine, sweep\nprint(sweep.run(mine.train, storage_path='results', verbose=0).trials[0].last_result)\n"
        "open('bodies', 'a').write('x')\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "start.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100)
    assert "'value': 9, 'script': None" in done.stdout, done.stderr
    assert (tmp_path / "bodies").read_text() == "x"


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ({}, ""),
        ({"__file__": "/a/b.py", "__spec__": None}, ":/a/b.py"),
        ({"__file__": "/a/p/b.py", "__spec__": "p.b"}, "p:/a/p/b.py"),
        ({"__file__": "/a/p/__main__.py", "__spec__": "p.__main__"}, ""),
        ({"__file__": "/a/odd:name.py", "__spec__": None}, ":/a/odd:name.py"),
    ],
)
def test_the_script_is_what_can_be_run_again(monkeypatch, main, expected):
    import types
    from importlib.machinery import ModuleSpec

    module = types.ModuleType("__main__")
    for name, value in main.items():
        setattr(module, name, ModuleSpec(value, None) if name == "__spec__" and value else value)
    monkeypatch.setitem(sys.modules, "__main__", module)
    assert script_of_driver() == expected
