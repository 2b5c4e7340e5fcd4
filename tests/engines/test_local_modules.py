"""Which files of the user's own are copied for nodes that do not see them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import ModuleType

from sweep.engines.cluster import modules
from sweep.engines.cluster.modules import ship_local_modules


def make_project(root):
    (root / "package" / "deep").mkdir(parents=True)
    (root / "package" / "__init__.py").write_text("")
    (root / "package" / "deep" / "__init__.py").write_text("value = 7\n")
    (root / "package" / "never_loaded.py").write_text("")
    (root / "package" / "data.bin").write_bytes(b"x")
    (root / "beside.py").write_text("value = 8\n")
    (root / "other").mkdir()
    (root / "other" / "__init__.py").write_text("")


def shipped(tmp_path, *, most=None):
    """Return what a script in a project ships, and what it was told."""
    project, store = tmp_path / "project", tmp_path / "store"
    make_project(project)
    script = project / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from pathlib import Path
            import numpy
            import package.deep
            from sweep.engines.cluster import modules
            modules.MOST_BYTES = {most or modules.MOST_BYTES}
            print(modules.ship_local_modules(Path({str(store)!r}), print))
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    files = {str(path.relative_to(next(store.iterdir()))) for path in store.rglob("*.py")} if store.exists() else set()
    return files, done.stdout.splitlines()


def test_packages_that_are_loaded_go_whole_and_so_do_the_files_beside_the_script(tmp_path):
    files, said = shipped(tmp_path)
    assert files == {
        "script.py",
        "beside.py",
        "package/__init__.py",
        "package/never_loaded.py",
        "package/deep/__init__.py",
    }
    assert said[-1].startswith(str(tmp_path / "store" / "modules-"))


def test_an_environment_in_the_directory_of_the_script_is_not_copied(tmp_path, monkeypatch):
    project = tmp_path / "project"
    make_project(project)
    installed = project / ".venv" / "lib" / "site-packages" / "installed"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    for name, file in (("installed", installed / "__init__.py"), ("beside", project / "beside.py")):
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    sysconfig.get_paths()  # remembers what it looks up on the path
    monkeypatch.setattr(sys, "prefix", str(project / ".venv"))
    monkeypatch.setattr(sys, "path", [str(project)])
    home = Path(ship_local_modules(tmp_path / "store", print))
    assert [path.name for path in home.rglob("*.py")] == ["beside.py"]


def test_too_many_are_not_copied_and_it_is_said_what_to_do(tmp_path):
    files, said = shipped(tmp_path, most=10)
    assert files == set()
    assert "runtime_env={'working_dir': '.'} ships them" in said[0]
    assert said[1:] == [""]


def test_nothing_is_copied_where_there_is_nothing_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(modules, "_roots", list)
    assert ship_local_modules(tmp_path, print) == ""
    assert not list(tmp_path.iterdir())
