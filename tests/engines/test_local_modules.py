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


def test_what_is_too_large_is_named_and_left_while_the_files_beside_the_script_go(tmp_path):
    files, said = shipped(tmp_path, most=10)
    assert files == {"script.py", "beside.py"}
    assert said[0].startswith("package (0 MB) would make more than")
    assert "runtime_env={'working_dir': '.'} ships it" in said[0]


def load(monkeypatch, root, *names):
    """Make packages of an empty file each in a directory of `sys.path`, and have them loaded."""
    for name in names:
        file = root / name / "__init__.py"
        file.parent.mkdir(parents=True)
        file.write_text("")
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "path", [*sys.path, str(root)])


def went(tmp_path):
    home = Path(ship_local_modules(tmp_path / "store", print))
    return sorted(str(path.relative_to(home)) for path in home.rglob("*.py"))


def test_what_is_installed_for_a_user_or_by_a_site_is_not_copied(tmp_path, monkeypatch):
    project = tmp_path / "project"
    make_project(project)
    monkeypatch.setattr(sys, "path", [str(project)])
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    monkeypatch.setenv("EBROOTBUNDLE", str(tmp_path / "apps" / "Bundle"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    load(monkeypatch, tmp_path / "user" / "lib" / version / "site-packages", "of_the_user")
    load(monkeypatch, tmp_path / "spack" / "lib" / version / "site-packages", "of_the_path")
    load(monkeypatch, tmp_path / "apps" / "Bundle" / "python", "of_easybuild")
    load(monkeypatch, tmp_path / "mine", "mine")
    assert went(tmp_path) == ["beside.py", "mine/__init__.py"]


def test_of_a_directory_that_pip_was_told_to_fill_only_the_users_own_modules_are_copied(tmp_path, monkeypatch):
    (tmp_path / "bundle" / "installed-1.0.dist-info").mkdir(parents=True)
    record = "installed/__init__.py,sha256=x,0\nsingle.py,sha256=x,0\ninstalled-1.0.dist-info/RECORD,,\n"
    (tmp_path / "bundle" / "installed-1.0.dist-info" / "RECORD").write_text(record)
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "project")])
    load(monkeypatch, tmp_path / "bundle", "installed", "mine")
    assert went(tmp_path) == ["mine/__init__.py"]


def test_an_editable_install_and_an_environment_around_the_project_leave_it_the_users(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "mine.egg-info").mkdir(parents=True)
    (project / "script.py").write_text("")
    monkeypatch.setattr(sys, "prefix", str(project))  # python -m venv .
    monkeypatch.setattr(sys, "path", [str(project)])
    load(monkeypatch, project, "mine")
    assert went(tmp_path) == ["mine/__init__.py", "script.py"]


def test_a_module_keeps_the_name_that_it_was_imported_by(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "project")])
    load(monkeypatch, tmp_path / "project" / "src", "below")
    assert went(tmp_path) == ["below/__init__.py"]


def test_an_environment_in_a_directory_that_is_imported_from_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(sys, "path", [])
    load(monkeypatch, tmp_path / "project", "code")
    installed = tmp_path / "project" / "code" / ".venv" / "lib" / "site-packages" / "other.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    assert went(tmp_path) == ["code/__init__.py"]


def test_nothing_is_copied_where_there_is_nothing_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(modules, "_roots", list)
    assert ship_local_modules(tmp_path, print) == ""
    assert not list(tmp_path.iterdir())
