"""Who may import whom, what the pure parts must not touch, what `import sweep` must not load: read from the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for package in ("sweep", "searchers") for path in (ROOT / package).rglob("*.py"))
OWN = ("sweep", "searchers")

# Which of our own modules each part may import, besides its own package. The longest matching prefix counts.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "searchers": (),
    "sweep.errors": ("searchers.errors", "searchers.keywords"),
    "sweep.checks": ("searchers.checks", "sweep.errors"),
    "sweep.core": ("searchers.base", "searchers.errors"),
    "sweep.schedulers": ("sweep.core", "searchers.space", "searchers.variants"),
    "sweep.accelerators": ("sweep.core",),
    "sweep.worker": (
        "sweep.core",
        "sweep.record.importing",
        "sweep.accelerators",
        "sweep.record.files",
        "sweep.record.layout",
        "sweep.checkpoints",
        "sweep.record.proc",
        "sweep.record.space",
    ),
    "sweep.engines": (
        "sweep.core",
        "sweep.record.importing",
        "sweep.worker",
        "sweep.accelerators",
        "sweep.record.layout",
        "sweep.record.proc",
    ),
    "sweep.engines.local": (
        "sweep.core",
        "sweep.engines.base",
        "sweep.engines.exits",
        "sweep.engines.jobs",
        "sweep.engines.link",
        "sweep.engines.loop",
        "sweep.record.importing",
        "sweep.worker",
        "sweep.accelerators",
        "sweep.record.layout",
        "sweep.record.proc",
    ),
    # Between machines that do not see each other's directories files go through remote storage.
    "sweep.engines.cluster": (
        "sweep.core",
        "sweep.engines",
        "sweep.record.importing",
        "sweep.record.files",
        "sweep.record.layout",
        "sweep.storage.disks",
        "sweep.storage.local_copy",
        "sweep.storage.nodes",
        "sweep.storage.transfers",
        "sweep.worker",
    ),
    # What the user writes is a trainable; the process of many is a worker.
    "sweep.lanes": ("sweep.core", "sweep.record.importing", "sweep.worker", "searchers.space", "searchers.variants"),
    "sweep.engines.lanes": ("sweep.core", "sweep.engines", "sweep.lanes", "sweep.record.layout", "sweep.worker"),
    # What Ray calls accelerators becomes ours.
    "sweep.engines.cluster.ray": ("sweep.accelerators", "sweep.core", "sweep.engines"),
    # An agent says what its job has of the node.
    "sweep.engines.cluster.slurm": ("sweep.accelerators", "sweep.core", "sweep.engines"),
    "sweep.engines.cluster.slurm_jobs": ("sweep.accelerators", "sweep.core"),
    "sweep.train": (
        "sweep.core",
        "sweep.worker",
        "sweep.accelerators",
        "sweep.checkpoints",
        "sweep.record.importing",
        "sweep.record.layout",
        "searchers.space",
        "searchers.variants",
    ),
    # The record holds what searchers answered, signals included.
    "sweep.record": ("sweep.core", "searchers.base", "searchers.errors"),
    # A checkpoint and a reader know of storage elsewhere, from which they are fetched.
    "sweep.checkpoints": ("sweep.record.files", "sweep.record.layout", "sweep.storage.filesystems"),
    "sweep.record.reader": ("searchers.errors", "sweep.core", "sweep.record", "sweep.storage"),
    "sweep.storage": ("sweep.checkpoints", "sweep.core", "sweep.record"),
    "sweep.storage.send": ("sweep.callbacks.base", "sweep.core", "sweep.storage"),
    # Whoever unpickles or imports what is the user's does it by this.
    "sweep.record.importing": (),
    "sweep.record.files": (),
    "sweep.record.saved_spec": (
        "sweep.record.encoding",
        "sweep.record.importing",
        "sweep.record.files",
        "searchers.variants",
    ),
    # Resuming re-tells the record, so it knows what a searcher and a scheduler are, and nothing of any particular one.
    "sweep.record.resume": ("sweep.record", "sweep.core", "searchers.base", "sweep.schedulers.base"),
    "sweep.results": (
        "sweep.checkpoints",
        "sweep.record",
        "sweep.core",
        "sweep.storage.fetch",
        "sweep.storage.filesystems",
    ),
    "sweep.results.notebook": (
        "sweep.core",
        "sweep.display.formats",
        "sweep.display.svg",
        "sweep.figures.curves",
        "sweep.record",
        "sweep.results.winners",
    ),
    "sweep.results.winners": ("sweep.record", "sweep.core", "searchers.pareto"),
    "sweep.results.analysis": (
        "sweep.core",
        "sweep.record",
        "sweep.results",
        "sweep.storage.fetch",
        "sweep.storage.filesystems",
        "sweep.figures.plots",
        "sweep.page.build",
        "sweep.page.subject",
    ),
    "sweep.results.optuna_study": ("sweep.core", "sweep.record", "sweep.results.optuna_trials", "searchers"),
    "sweep.results.optuna_points": ("sweep.core", "sweep.record", "sweep.results.optuna_trials", "searchers"),
    "sweep.results.optuna_trials": ("sweep.core", "sweep.record", "sweep.results.frames", "searchers"),
    # What there is to look at: figures of a record, and the page that holds them.
    "sweep.figures": (
        "sweep.core",
        "sweep.record",
        "sweep.results.winners",
        "searchers.optuna_space",
        "searchers.pareto",
        "searchers.space",
    ),
    "sweep.page": (
        "sweep.confirmation.outcome",
        "sweep.core",
        "sweep.display.formats",
        "sweep.figures",
        "sweep.record",
        "sweep.results",
        "searchers.space",
    ),
    "sweep.callbacks": (
        "sweep.core",
        "sweep.record.importing",
        "sweep.record.files",
        "sweep.record.layout",
        "sweep.record.space",
        "sweep.record.encoding",
        "sweep.checkpoints",
        "sweep.results.trials",
    ),
    "sweep.callbacks.observed": (
        "sweep.core",
        "sweep.record.layout",
        "sweep.record.reader",
        "sweep.results.winners",
        "sweep.results.trials",
    ),
    "sweep.callbacks.wandb": ("sweep.callbacks", "sweep.core", "sweep.worker.session"),
    "sweep.callbacks.mlflow": ("sweep.callbacks", "sweep.core", "sweep.worker.session"),
    # Reads the record and writes text.
    "sweep.logs": ("sweep.core", "sweep.record", "sweep.logs"),
    "sweep.logs.writer": ("sweep.logs.follower", "sweep.worker.limits"),
    "sweep.logs.policies": ("sweep.core", "sweep.schedulers.pbt_policy"),
    "sweep.display": ("sweep.core", "sweep.callbacks.base", "sweep.callbacks.observed"),
    "sweep.display.state": ("sweep.core", "sweep.display", "searchers.pareto"),
    # What training libraries call inside a trial.
    "sweep.integration": (
        "sweep.callbacks.mlflow",
        "sweep.callbacks.wandb",
        "sweep.checkpoints",
        "sweep.train.creator",
        "sweep.train.horovod",
        "sweep.train.torch",
        "sweep.worker.session",
    ),
    # Programs that import nothing of ours: what a worker does for one, and what a driver must know of it. `ask` runs in
    # the interpreter of the program.
    "sweep.programs": (
        "sweep.checkpoints",
        "sweep.core",
        "sweep.record.files",
        "sweep.record.layout",
        "sweep.worker",
        "sweep.callbacks.base",
    ),
    "sweep.programs.ask": (),
    # Run in interpreters of other environments, too.
    "sweep.programs.hooks": (),
    "sweep.programs.injected": (),
    # An estimator of scikit-learn's that runs a sweep, and what runs in its trials.
    "sweep.sklearn": OWN,
    "sweep.sklearn.trial": ("sweep.worker.session",),
    # What is said to a sweep by others.
    "sweep.requests": (),
    "sweep.requests.files": ("sweep.record.files",),
    "sweep.requests.attached": ("sweep.record.layout", "sweep.record.reader", "sweep.requests.files"),
    # A searcher that races configs, what came of it, and the call that runs it.
    "sweep.confirmation": (),
    "sweep.confirmation.race": ("searchers",),
    "sweep.confirmation.outcome": (
        "sweep.confirmation.race",
        "sweep.core",
        "sweep.figures.confirmation",
        "sweep.record.reader",
        "sweep.results",
    ),
    "sweep.confirmation.run": OWN,
    # The composition: what was asked becomes a value, the value what decides, and that is opened, driven and closed.
    "sweep.api": ("searchers.keywords", "sweep.launch.execute", "sweep.launch.spec"),
    "sweep.launch": (),
    "sweep.launch.spec": (
        "searchers.base",
        "sweep.callbacks.base",
        "sweep.core",
        "sweep.engines.base",
        "sweep.schedulers",
    ),
    "sweep.launch.build": (
        "sweep.launch.spec",
        "searchers",
        "sweep.core",
        "sweep.record",
        "sweep.results.optuna_points",
        "sweep.schedulers",
        "sweep.storage.fetch",
        "sweep.worker.trainable",
    ),
    "sweep.launch.requests": (
        "searchers.base",
        "searchers.wrapper",
        "searchers.errors",
        "searchers.variants",
        "sweep.core",
        "sweep.engines.base",
        "sweep.launch.build",
        "sweep.launch.drive",
        "sweep.record",
        "sweep.requests.files",
    ),
    "sweep.launch.drive": (
        "sweep.core",
        "searchers.base",
        "searchers.wrapper",
        "sweep.engines.base",
        "sweep.callbacks.base",
    ),
    "sweep.launch.registry": (),
    "sweep.launch.on_end": ("sweep.core", "sweep.record.reader", "sweep.results.winners"),
    "sweep.launch.interrupt": ("sweep.launch.spec", "sweep.core.messages", "sweep.engines.base"),
    "sweep.launch.place": ("sweep.launch.spec", "sweep.record", "sweep.storage", "sweep.worker.trainable"),
    "sweep.launch.observers": (
        "sweep.launch.build",
        "sweep.launch.description",
        "sweep.launch.place",
        "sweep.launch.spec",
        "sweep.callbacks",
        "sweep.core",
        "sweep.display",
        "sweep.record.importing",
        "sweep.results.trials",
        "sweep.storage",
    ),
    "sweep.launch.description": (
        "sweep.launch.build",
        "sweep.launch.place",
        "searchers",
        "sweep.accelerators.inventory",
        "sweep.callbacks.base",
        "sweep.core",
        "sweep.display.ending",
        "sweep.record.encoding",
        "sweep.record.resume",
        "sweep.record.saved_spec",
        "sweep.schedulers",
        "sweep.worker.trainable",
    ),
    "sweep.launch.target": ("sweep", "sweep.record"),
    "sweep.launch.launcher": OWN,
    "sweep.launch.execute": (
        "sweep.launch.interrupt",
        "sweep.launch.launcher",
        "sweep.launch.build",
        "sweep.launch.on_end",
        "sweep.launch.registry",
        "sweep.launch.spec",
        "sweep.accelerators.inventory",
        "sweep.core.config",
        "sweep.display.button",
        "sweep.engines.local.fork_server_client",
        "sweep.record.importing",
        "sweep.record.saved_spec",
        "sweep.results.analysis",
        "sweep.worker.nested",
        "sweep.worker.trainable",
    ),
    "sweep.launch.tuner": OWN,
    "sweep.simulation": (
        "searchers.base",
        "searchers.wrapper",
        "sweep.core",
        "sweep.engines.base",
        "sweep.engines.simulator",
        "sweep.launch.build",
        "sweep.launch.drive",
        "sweep.launch.spec",
        "sweep.record",
        "sweep.worker.trainable",
    ),
    # Experiments of other tools, read and then driven in virtual time.
    "sweep.foreign": OWN,
    # The paths of Ray's modules, and what only scripts written for Tune need; nobody else imports it.
    "sweep.paths": ("sweep.refusals",),
    "sweep.refusals": (),
    "sweep.air": ("sweep.integration", "sweep.train"),
    "sweep.air.session": ("sweep.worker.context", "sweep.worker.session"),
    "sweep.train.huggingface": ("sweep.integration.transformers",),
    "sweep.train.lightgbm": ("sweep.integration.lightgbm",),
    "sweep.train.lightning": ("sweep.integration.pytorch_lightning",),
    "sweep.train.xgboost": ("sweep.integration.xgboost",),
    "sweep.tune": OWN,
    "sweep.util": (),
    "sweep.tune.utils": ("sweep.display.formats", "sweep.core.results", "sweep.worker.gpu_memory"),
    "sweep.tune.experiment": OWN,
    "sweep.tune.running": OWN,
    "sweep.__main__": ("sweep.cli.main",),
    "sweep.cli": OWN,
    "sweep": OWN,
}

# What every part of `sweep` stands on.
FLOOR = ("sweep.checks", "sweep.errors", "searchers.errors", "searchers.keywords")
PURE = (
    "searchers",
    "sweep.core",
    "sweep.schedulers",
    "sweep.confirmation.race",
    "sweep.worker.environment",
    "sweep.worker.group_environment",
    "sweep.accelerators.tpu",
)
# Of the pure packages: the state that a searcher is asked to save, the policy that a scheduler is to repeat.
READS_FILES = {"searchers.state_file", "sweep.schedulers.pbt_replay"}
READS_A_CLOCK = {"sweep.core.stoppers"}  # a TimeoutStopper that another stopper asks; the core asks none
FORBIDDEN_IN_PURE = {
    "asyncio",
    "concurrent",
    "io",
    "logging",
    "multiprocess",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
FORBIDDEN_NAMES_IN_PURE = {"open", "print", "input", "exec", "eval"}
# `numpy.random` may build generators from given seeds, and nothing else: everything else draws from the global one.
SEEDED = {"SeedSequence", "default_rng", "Generator", "PCG64", "RandomState"}

# Imported inside functions, so that `import sweep` stays fast or works without them.
LAZY = {
    "IPython",
    "anyio",
    "ast",
    "bayes_opt",
    "cloudpickle",
    "cryptography",
    "fsspec",
    "http",
    "hyperopt",
    "jax",
    "jsonschema",
    "mcp",
    "mcp_types",
    "multiprocess",
    "numpy",
    "optuna",
    "pandas",
    "pkgutil",
    "plotly",
    "psutil",
    "pynvml",
    "ray",
    "rich",
    "ruamel",
    "sklearn",
    "starlette",
    "tensorboardX",
    "threadpoolctl",
    "torch",
    "urllib",
    "uvicorn",
}
# Own modules that import one of those at their top, or that only one branch of a run needs: reason in each line.
LAZY_OWN = {
    "sweep.results.analysis": "pandas frames are made only when asked for",
    "sweep.results.frames": "pandas",
    "sweep.figures.plots": "only where something is drawn",
    "sweep.figures.confirmation": "likewise",
    "sweep.confirmation.outcome": "numpy",
    "sweep.page.build": "only where a page is written",
    "sweep.page.subject": "likewise",
    "searchers.optuna_search": "optuna",
    "searchers.optuna_space": "optuna",
    "sweep.engines.cluster.ray": "ray",
    "sweep.engines.cluster.slurm": "only one of the engines is used",
    "sweep.engines.local.group": "only groups need it; the fork server imports it for them",
    "sweep.worker.rank": "likewise",
    "sweep.engines.inline": "only one of the engines is used",
    "sweep.engines.lanes": "likewise",
    "sweep.engines.local.engine": "only one of the engines is used; multiprocess and psutil",
    "sweep.engines.simulator": "only one of the engines is used",
    "sweep.display.progress": "only where something is shown",
    "sweep.callbacks.loggers": "only what a run asks for",
    "sweep.logs.policies": "only population based training; all schedulers",
    "sweep.callbacks.optuna_export": "optuna",
    "sweep.train.torch": "torch",
    "sweep.train.jax": "jax",
    "sweep.api": "the command line shows its help without it; a trainer is built without it",
    "sweep.train.fit": "a rank needs nothing of it",
}
# Executed at the start of interpreters that are not ours, so that nothing may load that they do not need.
STANDALONE = {"sweep.programs.hooks", "sweep.programs.injected.sitecustomize"}
# Parts of the layout that are not written yet.
TO_COME = {"sweep.engines.cluster.ray", "sweep.callbacks.optuna_export"}
# The composition chooses its parts when it is called, so that `import sweep` costs nothing.
COMPOSITION = ("sweep.api", "sweep.launch", "sweep.cli")
FORBIDDEN_FILE_NAMES = {"utils", "util", "helpers", "helper", "common", "constants", "types"}
MAX_LINES = 700
MOST_FILES = 24  # of a room
MAY_BE_LONGER = {
    # one handler per event, in the order of a trial's life: to be read from top to bottom
    "sweep/core/sweep.py": 910,
}


@dataclass(frozen=True)
class Import:
    """One imported module: by whom, and where in the file."""

    module: str
    target: str
    line: int
    is_inside_a_function: bool
    is_for_types_only: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


# Only where it is asked for: each process of the suite loads every file of it.
@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_of(module: str) -> Iterator[Import]:
    """Every import of a module, `from package import module` resolved to the module where it is one."""

    def walk(node: ast.AST, is_inside: bool, is_typing: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, is_inside, is_typing)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} is a relative import; write the whole name"
            base = node.module or ""
            submodules = [f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in MODULES]
            for target in submodules or [base]:
                yield Import(module, target, node.lineno, is_inside, is_typing)
            if submodules and len(submodules) < len(node.names):
                yield Import(module, base, node.lineno, is_inside, is_typing)
        inside = is_inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if is_type_checking(node):
            assert isinstance(node, ast.If)
            for child in node.body:
                yield from walk(child, inside, True)
            for child in node.orelse:
                yield from walk(child, inside, is_typing)
            return
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside, is_typing)

    return walk(tree_of(module), False, False)


@cache
def all_imports() -> list[Import]:
    return [found for module in MODULES for found in imports_of(module)]


def is_in(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def part_of(module: str) -> str:
    """The entry of the table that governs a module."""
    if module == "sweep":
        return "sweep"
    matches = [prefix for prefix in MAY_IMPORT if prefix != "sweep" and is_in(module, prefix)]
    assert matches, f"{module} has no row in the import table: decide what it may import and add one"
    return max(matches, key=len)


def package_of(part: str) -> str:
    return {"sweep.record.resume": "sweep.record"}.get(part, part)


def test_there_is_something_to_check():
    assert len(MODULES) > 30
    assert len(all_imports()) > 200


def test_a_module_imports_only_what_its_part_may():
    parts = {module: part_of(module) for module in MODULES}
    wrong = []
    for found in all_imports():
        part = parts[found.module]
        allowed = (*MAY_IMPORT[part], package_of(part), *(() if part == "searchers" else FLOOR))
        is_own = found.target.split(".")[0] in OWN and not found.is_for_types_only
        if is_own and not any(is_in(found.target, prefix) for prefix in allowed):
            wrong.append(f"{found}; {part} may import {', '.join(MAY_IMPORT[part]) or 'nothing of ours'}")
    assert not wrong, "\n".join(wrong)


def test_only_other_paths_of_ray_import_what_is_there_for_scripts_of_tune():
    importers = {found.module for found in all_imports() if is_in(found.target, "sweep.tune")}
    assert not {module for module in importers if not is_in(module, "sweep.tune")}


def test_there_are_no_import_rings():
    """Imports inside functions count, too; the tables of names of the packages, which load late, do not."""
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for found in all_imports():
        if found.target in MODULES and found.target != found.module and not found.is_for_types_only:
            graph[found.module].add(found.target)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, "import ring: " + " -> ".join((*path[path.index(module) :], module))
        if module in done:
            return
        for target in graph[module]:
            visit(target, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_imports_inside_functions_are_only_those_of_heavy_or_optional_packages():
    wrong = [
        str(found)
        for found in all_imports()
        if found.is_inside_a_function
        and not found.is_for_types_only
        and found.target.split(".")[0] not in LAZY
        and found.target not in LAZY_OWN
        and found.module != "sweep"  # its names are loaded at first use, all of them
        and found.module not in STANDALONE
        and not (found.target.split(".")[0] in OWN and any(is_in(found.module, prefix) for prefix in COMPOSITION))
    ]
    assert not wrong, wrong


def test_own_modules_that_are_imported_late_are_still_there_or_still_to_come():
    for module, reason in LAZY_OWN.items():
        assert reason
        assert module.split(".")[0] in OWN
        assert module in MODULES or module in TO_COME, f"{module} is gone: take it from the list"


def pure_modules() -> list[str]:
    return sorted(
        module
        for module in MODULES
        if any(is_in(module, prefix) for prefix in PURE) and module not in READS_FILES | READS_A_CLOCK
    )


def test_a_pure_module_reads_no_clock_file_environment_or_global_randomness():
    pure = pure_modules()
    assert len(pure) > 30
    wrong = [
        str(found)
        for found in all_imports()
        if found.module in pure and not found.is_for_types_only and found.target.split(".")[0] in FORBIDDEN_IN_PURE
    ]
    nodes = [(module, node) for module in pure for node in ast.walk(tree_of(module))]
    for module, node in nodes:
        where = f"{module}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_NAMES_IN_PURE:
            wrong.append(f"{where} calls {node.func.id}")
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text.startswith("sys.") and text != "sys.intern":
                wrong.append(f"{where} uses {text}")
            if text.startswith(("np.random.", "numpy.random.")) and text.split(".")[2].partition("(")[0] not in SEEDED:
                wrong.append(f"{where} uses {text}")
            if text in ("datetime.now", "datetime.datetime.now", "datetime.utcnow", "datetime.today", "os.environ"):
                wrong.append(f"{where} uses {text}")
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("package", "home"),
    [
        (
            "optuna",
            (
                "searchers.optuna_samplers",
                "searchers.optuna_search",
                "searchers.optuna_space",
                "sweep.callbacks",
                "sweep.cli.dashboard",
                "sweep.figures.importance",
                "sweep.foreign.sources",
                "sweep.results.optuna_points",
                "sweep.results.optuna_study",
                "sweep.results.optuna_trials",
            ),
        ),
        ("ray", ("sweep.engines.cluster.ray",)),
        ("pandas", ("sweep.results", "sweep.simulation", "sweep.figures.rungs")),
        ("pynvml", ("sweep.accelerators.nvml",)),
        ("sqlite3", ("sweep.record",)),
        ("rich", ("sweep.display", "sweep.cli")),
        ("jax", ("sweep.train", "sweep.worker", "sweep.engines", "sweep.lanes")),
        ("torch", ("sweep.train", "sweep.worker", "sweep.engines", "sweep.lanes")),
    ],
)
def test_a_package_is_imported_only_where_it_is_at_home(package, home):
    wrong = [
        str(found)
        for found in all_imports()
        if found.target.split(".")[0] == package
        and not found.is_for_types_only
        and not any(is_in(found.module, prefix) for prefix in home)
    ]
    assert not wrong, wrong


def test_a_module_says_in_one_sentence_what_it_is_for():
    said = {module: (ast.get_docstring(tree_of(module)) or "").split("\n\n")[0] for module in MODULES}
    assert {module: first for module, first in said.items() if len(first) <= 15} == {}


def test_a_file_has_a_name_that_says_something_and_a_size_one_can_read():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {path for path in FILES if path.stem in FORBIDDEN_FILE_NAMES} == set()
    too_long = {name: lines for name, lines in lengths.items() if lines > MAY_BE_LONGER.get(name, MAX_LINES)}
    assert too_long == {}, "split them"


def test_a_room_has_no_more_files_than_one_finds_at_a_glance():
    rooms = Counter(str(path.parent.relative_to(ROOT)) for path in FILES)
    assert {room: number for room, number in rooms.items() if number > MOST_FILES} == {}


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, sweep; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "sweep" in loaded
    heavy = {"torch", "jax", "optuna", "pandas", "ray", "sklearn", "rich", "ruamel", "IPython", "pynvml"}
    assert not loaded & heavy


def test_only_the_record_speaks_sql():
    written = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
    spoken = {name for name, text in written.items() if re.search(r"sqlite3|SELECT ", text)}
    assert not {name for name in spoken if not name.startswith("sweep/record/")}


def test_no_file_of_the_package_names_a_machine():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for word in ("/home/", "/work/", "/root/", "/Users/"):
            assert word not in text, f"{path.relative_to(ROOT)} contains {word}"


def test_the_page_on_the_house_names_what_is_there():
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)` in `([\w/]+\.py)`", page)
    assert len(named) >= 12
    for name, file in named:
        assert re.search(rf"^ *(def|class) {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.M), (name, file)
    rooms = {path.parent.name for path in (ROOT / "sweep").glob("*/__init__.py")}
    assert rooms == {name for name in rooms if f"`sweep/{name}/`" in page}
