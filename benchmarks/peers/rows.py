"""What `make bench` measures: rows, the programs of each, the figures that they print, and what is promised of them."""

from __future__ import annotations

from dataclasses import dataclass

# Tools by the names of their scripts: how people call them, and the package that each needs.
TOOLS = {
    "sweep": ("sweep", ""),
    "ray": ("Ray", "ray"),
    "optuna": ("Optuna", "optuna"),
    "syne_tune": ("Syne Tune", "syne-tune"),
    "torchrun": ("torchrun", "torch"),
}
OURS = "sweep"


@dataclass(frozen=True)
class Program:
    """A script below this directory that prints figures as a JSON object in its last line.

    Attributes:
        full, short: its arguments behind the directory it may write to; `short` is for a run that only looks whether
            everything works.
        repeats: how often it runs in each round, of which the median counts.
        says: what is different from ours; `{0}` is its first argument.
        package: which it needs besides its tool's; empty: none.
        timeout_s: after which it is ended and has failed.
    """

    tool: str
    full: tuple[object, ...] = ()
    short: tuple[object, ...] = ()
    repeats: int = 1
    says: str = ""
    package: str = ""
    timeout_s: float = 180.0


@dataclass(frozen=True)
class Figure:
    """A number that programs of a row print under `key`.

    Attributes:
        unit: behind the number: "/s", " s", " MiB", or "" for a ratio or a count.
        required: what is promised. required_ratio: a tool, and how many times better than it ours is to be.
        is_less_better: whether smaller numbers are better.
        floor: the key of the floor it is compared with.
    """

    key: str
    what: str
    unit: str
    required: float | None = None
    required_ratio: tuple[str, float] | None = None
    is_less_better: bool = False
    floor: str = ""


@dataclass(frozen=True)
class Row:
    """Programs that do the same with different tools, and the figures in which they are compared.

    Attributes:
        place: the directory of its scripts, when that is not the row's name.
        is_long: it runs only when it is asked for.
    """

    name: str
    programs: tuple[Program, ...]
    figures: tuple[Figure, ...]
    place: str = ""
    is_long: bool = False

    def script(self, program: Program) -> str:
        """Return the path of a program's file below this directory."""
        return f"{self.place or self.name}/with_{program.tool}.py"


# Scripts of the floors, which are no tool's, with their arguments and the package they need.
FLOOR_SCRIPTS: dict[str, tuple[tuple[object, ...], tuple[object, ...], str]] = {
    "floors/machine.py": ((1.0,), (0.2,), ""),
    "floors/group.py": ((10,), (3,), "torch"),
}
FLOORS = (
    Figure("python_s", "`python -c pass`", " s"),
    Figure("import_torch_s", "`python -c 'import torch'`", " s"),
    Figure("fork_bare_one_per_s", "fork, exit and wait, one process", "/s"),
    Figure("fork_bare_per_s", "forks, as many processes as CPUs", "/s"),
    Figure("fork_torch_one_per_s", "fork, exit and wait with torch imported, one process", "/s"),
    Figure("fork_torch_per_s", "forks with torch imported, as many processes as CPUs", "/s"),
    Figure("commit_flushed_per_s", "commits of 200 bytes by SQLite, each flushed", "/s"),
    Figure("commit_per_s", "commits of 200 bytes by SQLite, none flushed", "/s"),
    Figure("file_per_s", "files of 1 MB, each flushed", "/s"),
    Figure("joined_s", "a gloo group of two, forked with torch imported", " s"),
)


TEN_TIMES_RAY = ("ray", 10.0)


def _trials(where: str, required: float | None = None, *, floor: str, ray: bool = False) -> Figure:
    ratio = TEN_TIMES_RAY if ray else None
    return Figure("steady_per_s", f"no-op trials, {where}, steady", "/s", required, ratio, floor=floor)


ROWS = (
    Row(
        "one_trial",
        (Program("sweep", repeats=5), Program("ray"), Program("optuna", repeats=5)),
        (Figure("process_s", "one trial, from process start to exit", " s", 0.5, TEN_TIMES_RAY, True, "python_s"),),
    ),
    Row(
        "noop_fresh",
        (
            Program("sweep", (300, 1500), (100, 300)),
            Program("ray", (24,), (6,), says="{0} trials"),
            Program("syne_tune", (24,), (6,), says="{0} trials"),
        ),
        (
            _trials("a process each, no log files", 200, floor="fork_bare_per_s", ray=True),
            Figure("whole_per_s", "the same, a whole run of 300", "/s", floor="fork_bare_per_s"),
        ),
    ),
    Row(
        "noop_torch",
        (Program("sweep", (200, 800, "torch"), (20, 100, "torch"), package="torch"),),
        (_trials("a process each with torch imported", 100, floor="fork_torch_per_s"),),
        place="noop_fresh",
    ),
    Row(
        "noop_warm",
        (
            Program("sweep", (1000,), (400,)),
            Program("ray", (1000,), (20,), says="{0} trials"),
            Program("optuna", (1000,), (200,), says="threads"),
        ),
        (
            _trials("kept processes", 900, floor="commit_per_s", ray=True),
            Figure("whole_per_s", "the same, a whole run of 1,000", "/s", floor="commit_per_s"),
        ),
    ),
    Row(
        "noop_warm_many",
        (Program("sweep", (10_000,), (1500,)), Program("optuna", (3000,), (400,), says="threads, {0} trials")),
        (_trials("kept processes, 10,000 of them", floor="commit_per_s"),),
        place="noop_warm",
    ),
    Row(
        "results",
        (
            Program("sweep", (6000,), (1000,)),
            Program("ray", (300,), (30,), says="{0} reports each"),
            Program("optuna", (1000,), (100,), says="threads, {0} reports each"),
        ),
        (Figure("per_s", "results of 8 reporters, all kept", "/s", 5000, TEN_TIMES_RAY, floor="commit_per_s"),),
    ),
    Row(
        "asha",
        (
            Program("sweep", (256, "fresh"), (48, "fresh")),
            Program("ray", (32, "fresh"), (4, "fresh"), says="{0} trials"),
        ),
        (Figure("ratio", "ASHA, 256 x 81 epochs of 5 ms, a process each: wall / ideal", "", 1.8, TEN_TIMES_RAY, True),),
    ),
    Row(
        "asha_warm",
        (
            Program("sweep", (256, "warm"), (48, "warm")),
            Program("ray", (32, "warm"), (4, "warm"), says="{0} trials"),
        ),
        (Figure("ratio", "the same in kept processes", "", 1.4, None, True),),
        place="asha",
    ),
    Row(
        "pbt",
        (
            Program("sweep", (256, 40, 8), (64, 20, 2), package="jax"),
            Program("ray", (64, 40), (2, 6), says="{0} members, a process each"),
        ),
        (
            Figure("per_s", "PBT on the problem of Tune's example, 256 lanes: iterations", "/s", None, ("ray", 20.0)),
            Figure("ratio", "the same, times what 8 members in kept processes make", ""),
        ),
    ),
    Row(
        "gloo_group",
        (
            Program("sweep", package="torch"),
            Program("ray", package="torch"),
            Program("torchrun"),
        ),
        (
            Figure(
                "first_s",
                "a gloo group of 2, first fit() of a driver",
                " s",
                1.6,
                TEN_TIMES_RAY,
                True,
                "import_torch_s",
            ),
            Figure("second_s", "the same, second fit()", " s", 0.3, TEN_TIMES_RAY, True, "joined_s"),
        ),
    ),
    Row(
        "record",
        (Program("sweep", (3000,), (600,)),),
        (Figure("bytes", "record per report of one number", " bytes", 250, None, True),),
    ),
    Row(
        "packing",
        (Program("sweep", (200,), (40,)),),
        tuple(
            Figure(f"{key}_ratio", f"200 sleeping trials on 8 GPUs, {what}: wall / bound", "", is_less_better=True)
            for key, what in (("half", "0.5 each"), ("one", "1 each"), ("two", "2 each"), ("mixed", "0.5, 1 and 2"))
        ),
    ),
    Row(
        "busy",
        (Program("sweep", (20, 200, 500), (20, 200, 500)),),
        (
            Figure(
                "ratio", "nodes away for 30 % of the time: makespan over its lower bound", "", 1.25, is_less_better=True
            ),
            Figure("busy", "500 workers and TPE: share of their time in trials of ten minutes", "", 0.95),
        ),
    ),
    Row(
        "checkpoints",
        (Program("sweep", (100,), (20,)), Program("ray", (50,), (5,), says="{0} of each trial")),
        (Figure("per_s", "reports with a checkpoint of 1 MB, 4 trials", "/s", 300, floor="file_per_s"),),
    ),
    Row(
        "resume",
        (Program("sweep", (60,), (20,)), Program("ray", (60,), (20,))),
        (
            Figure("resumed_s", "driver killed, to the first new report", " s", is_less_better=True, floor="python_s"),
            Figure("lost", "reports lost by that", "", 0, is_less_better=True),
            Figure("repeated", "reports made again", "", is_less_better=True),
        ),
    ),
    Row(
        "memory",
        (Program("sweep", (20_000,), (300,), timeout_s=600.0),),
        (Figure("mib_per_10000", "growth of the driver over 10,000 trials", " MiB", 20, None, True),),
        is_long=True,
    ),
)
