"""Builds a Python environment with Horovod in it, once, and keeps it: `make test-horovod` runs this.

Horovod comes as source only, and its last release is older than the torch we test with: it takes a compiler, minutes,
and two changed lines of CMake. So it lives in an environment of its own, outside of `.venv`, and the tests that need it
skip where nobody has built it. `SWEEP_HOROVOD_ENVIRONMENT` names another directory than the one in the user's cache.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

HOROVOD = "0.28.1"
_ROOT = Path(__file__).resolve().parent.parent
_READY = ".ready"  # written last: without it a build was interrupted, and is done again

# pkg_resources is what Horovod's set-up reads the versions with; CMake 4 refuses the minimum that its files declare.
_TOOLS = ("setuptools==75.8.0", "wheel", "packaging", "cmake<4", "numpy")
_STANDARD_14 = ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")  # today's torch wants C++20 of its extensions
_SETTINGS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
}


def directory() -> Path:
    """Where the environment is, or would be built."""
    if named := os.environ.get("SWEEP_HOROVOD_ENVIRONMENT"):
        return Path(named).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return cache / "sweep-engine" / f"horovod-{HOROVOD}-{python}"


def interpreter() -> Path | None:
    """The Python of the finished environment; None where there is none."""
    where = directory()
    return where / "bin" / "python" if (where / _READY).is_file() else None


def build(where: Path) -> None:
    """Makes the environment at `where`, which must not hold anything else; takes some ten minutes of one core."""
    if where.exists() and any(where.iterdir()) and not (where / "pyvenv.cfg").is_file():
        raise SystemExit(f"{where} holds something else than a Python environment; name an empty or a new directory")
    if shutil.which("g++") is None:
        raise SystemExit("building Horovod takes a C++ compiler, and there is no g++ here: apt-get install g++ make")
    venv.create(where, clear=True, with_pip=True)
    python = str(where / "bin" / "python")
    constraints = ["-c", str(_ROOT / "constraints.txt")]

    def pip(*arguments: str, **settings: str) -> None:
        command = [python, "-m", "pip", *arguments]
        print("+", *command, flush=True)
        subprocess.run(command, check=True, env={**os.environ, **settings})

    pip("install", "-q", *_TOOLS)
    ours = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pip("install", "-q", *constraints, "torch", *ours)
    sources = where / "src"
    only = ("--no-deps", "--no-build-isolation", "--no-binary", "horovod")
    pip("download", "-q", *only, "-d", str(sources), f"horovod=={HOROVOD}")
    shutil.unpack_archive(sources / f"horovod-{HOROVOD}.tar.gz", sources)
    source = sources / f"horovod-{HOROVOD}"
    for name in _STANDARD_14:
        text = (source / name).read_text()
        if "set(CMAKE_CXX_STANDARD 14)" not in text:
            raise SystemExit(f"{name} of Horovod {HOROVOD} sets another C++ standard than the 14 that is to become 20")
        (source / name).write_text(text.replace("set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"))
    tools = {"PATH": f"{where / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    parallel = {"MAKEFLAGS": os.environ.get("MAKEFLAGS") or "-j1"}
    pip("install", "-v", "--no-build-isolation", "--no-deps", str(source), **_SETTINGS, **tools, **parallel)
    pip("install", "-q", "psutil", "pyyaml")
    shutil.rmtree(sources)
    subprocess.run([python, "-c", "import horovod.torch as hvd; assert hvd.gloo_built()"], check=True)
    (where / _READY).touch()


def main() -> None:
    where = directory()
    where.parent.mkdir(parents=True, exist_ok=True)
    with open(where.parent / f"{where.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two `make` at once build one
        if interpreter() is None:
            build(where)
    print(f"Horovod {HOROVOD} is in {where}")


if __name__ == "__main__":
    main()
