"""Sweeps where the kernel allows few descriptors or few processes: they go on with as many trials as it allows."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import textwrap
from pathlib import Path

import pytest
from census import Census, census

# Runs `run(train, ...)` under the limits, and counts what the driver's loop does.
HEAD = """
import collections, json, os, resource, sys, time
import sweep
from sweep.engines.loop import Loop

def files(soft, hard=None):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard or soft))

def soft():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

counts = collections.Counter()
reasons = set()

def counted(name):
    function = getattr(Loop, name)
    def call(self, *arguments):
        counts[name] += 1
        return function(self, *arguments)
    setattr(Loop, name, call)

class Watch(sweep.Callback):
    def on_step(self, trials, now, changed):
        reasons.update(trials[one].reason for one in changed if one in trials)
        running = sum(trial.status == "RUNNING" for trial in trials.values())
        counts["most"] = max(counts["most"], running)

counted("run_once")
counted("alarm")

def train(config):
    time.sleep(0.2)  # longer than until it is said how many run
    sweep.report(soft=soft(), fds=len(os.listdir("/proc/self/fd")))

def run(train, cpus, number, **options):
    sweep.init(num_cpus=cpus)
    before = soft()
    found = sweep.run(train, num_samples=number, name="one", storage_path=".", callbacks=[Watch()],
                      raise_on_failed_trial=False, on_interrupt="return", **options)
    assert soft() == before, "the limit is not given back"
    print(json.dumps({
        "statuses": dict(collections.Counter(trial.status for trial in found.trials)),
        "softs": sorted({trial.last_result["soft"] for trial in found.trials if trial.last_result}),
        "reasons": sorted(filter(None, reasons)), "errors": sorted({trial.reason for trial in found.trials}),
        **counts,
    }))
"""


def sweep_in(directory: Path, main: str, *before: str, more: str = "") -> tuple[dict, Census]:
    """Run a script in a PID namespace; return what it printed last, and how it ended.

    Args:
        more: what it defines besides.
        before: words before the command.
    """
    guarded = f'if __name__ == "__main__":\n    {main}\n'
    (directory / "script.py").write_text(f"{HEAD}\n{textwrap.dedent(more)}\n{guarded}")
    found = census(directory, *before, sys.executable, "script.py", OPENBLAS_NUM_THREADS="1")
    assert found.left == (), found
    lines = [line for line in found.out.splitlines() if line.startswith("{")]
    return (json.loads(lines[-1]) if lines else {}), found


KINDS = pytest.mark.parametrize(
    "options",
    [pytest.param("", id="fresh"), pytest.param(", reuse_actors=True", marks=pytest.mark.slow, id="reused")],
)


# --- descriptors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "options", "fewest"),
    [
        pytest.param("files(64)", "", 10, marks=pytest.mark.slow),
        ("files(40)", "", 4),
        pytest.param("files(48)", ", reuse_actors=True", 6, marks=pytest.mark.slow),
        pytest.param("files(64); kept = [open('/dev/null') for _ in range(25)]", "", 2, marks=pytest.mark.slow),
    ],
    ids=["64", "40", "reused_workers", "files_of_the_user"],
)
def test_few_descriptors_make_fewer_trials_run_at_once_and_it_is_said(tmp_path, setup, options, fewest):
    told, found = sweep_in(tmp_path, f"{setup}; run(train, 24, 24{options})")
    limit = int(setup[6:8])
    assert told["statuses"] == {"TERMINATED": 24}, found
    assert told["softs"] == [limit]
    assert fewest <= told["most"] < 24
    texts = [text for text in told["reasons"] if text.startswith("at most")]
    assert texts, told
    assert all(text.endswith(f" at once: descriptors (ulimit -n {limit})") for text in texts)
    notices = [line for line in found.out.splitlines() if "trials run at once" in line]
    assert len(notices) == 1, found.out
    assert told["alarm"] < 40  # as many as there were pauses, whatever waits
    assert told["run_once"] < 600


@pytest.mark.slow
def test_the_driver_takes_what_the_hard_limit_allows_and_trials_get_what_was_set(tmp_path):
    told, found = sweep_in(tmp_path, "files(40, 400); run(train, 24, 24)")
    assert told["statuses"] == {"TERMINATED": 24}, found
    assert told["softs"] == [40]
    assert told["most"] > 10
    assert "at once" not in found.out


@pytest.mark.slow
def test_spawned_trials_and_what_is_imported_for_them_get_the_limit_that_was_set(tmp_path):
    (tmp_path / "looks.py").write_text("import resource\nfound = resource.getrlimit(resource.RLIMIT_NOFILE)[0]\n")
    more = """
        def look(config):
            import looks
            sweep.report(soft=looks.found if soft() == 300 else -1)
        """
    for options in ("start_method='spawn'", "preload=['looks']"):
        told, found = sweep_in(tmp_path, f"files(300, 400); run(look, 2, 2, {options})", more=more)
        assert told.get("softs") == [300], found
        shutil.rmtree(tmp_path / "one")


@pytest.mark.slow
def test_groups_wait_for_descriptors_too(tmp_path):
    more = """
        from sweep.train import DataParallelTrainer, ScalingConfig

        def loop(config):
            time.sleep(0.1)
            sweep.report(soft=soft())

        def trainer():
            return DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2))
        """
    told, found = sweep_in(tmp_path, "files(40); run(trainer(), 24, 12)", more=more)
    assert told.get("statuses") == {"TERMINATED": 12}, found
    assert told["softs"] == [40]
    assert told["most"] < 12


@KINDS
def test_a_trial_that_leaves_no_descriptor_free_fails_alone_and_by_its_own_error(tmp_path, options):
    more = """
        kept = []

        def leak(config):
            while config["x"] % 2 == 0:
                kept.append(open("/dev/null"))
            sweep.report(soft=soft())
        """
    space = "config={'x': sweep.grid_search([0, 1, 2, 3, 4, 5])}"
    told, found = sweep_in(tmp_path, f"files(64); run(leak, 1, 1, {space}{options})", more=more)
    assert told.get("statuses") == {"TERMINATED": 3, "ERROR": 3}, found
    assert told["errors"] == ["", "OSError: [Errno 24] Too many open files: '/dev/null'"]


def test_a_process_without_descriptors_for_one_trial_is_told_so_before_anything_starts(tmp_path):
    told, found = sweep_in(tmp_path, "files(64); kept = [open('/dev/null') for _ in range(50)]; run(train, 2, 2)")
    assert told == {}
    last = found.err.splitlines()[-1]
    assert "ResourceError: this process may have 64 files open (ulimit -n 64), and 5" in last
    assert not (tmp_path / "one").exists()


# --- processes -------------------------------------------------------------------------------------------------------

needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to become another user"
)


def limited(number: int) -> tuple[str, ...]:
    """Return the words before a command that make it somebody else, who may have so many processes and threads in all:
    root has no such limit. Each call is another user, because the kernel counts per user."""
    user = 100_000 + os.getpid() % 100_000 * 10 + number % 10
    capabilities = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return ("setpriv", f"--reuid={user}", "--clear-groups", *capabilities, "prlimit", f"--nproc={number}")


@needs_another_user
@pytest.mark.parametrize("number", [8, *(pytest.param(number, marks=pytest.mark.slow) for number in (9, 12))])
@KINDS
def test_few_processes_make_fewer_trials_run_at_once(tmp_path, number, options):
    """Driver, its threads for callbacks and display, fork server, and two for each trial."""
    told, found = sweep_in(tmp_path, f"run(train, 6, 6{options})", *limited(number))
    assert told.get("statuses") == {"TERMINATED": 6}, found
    assert told["most"] < 6
    assert any(text.endswith(f": processes (ulimit -u {number})") for text in told["reasons"]), told
    assert told["alarm"] < 60
    assert told["run_once"] < 400
    assert "raised" not in found.out


@needs_another_user
def test_with_too_few_processes_for_any_trial_it_waits_and_says_why(tmp_path):
    more = """
        import signal

        class Ask(Watch):
            def on_step(self, trials, now, changed):
                super().on_step(trials, now, changed)
                if "cannot start: processes (ulimit -u 5)" in reasons and not counts["asked"]:
                    counts["asked"] = 1
                    signal.setitimer(signal.ITIMER_REAL, 1.5)

        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
        Watch = Ask
        """
    told, found = sweep_in(tmp_path, "run(train, 6, 6)", *limited(5), more=more)
    assert told.get("statuses") == {"PENDING": 6}, found
    assert "sweep: no trial can be started: the kernel allows no more processes (ulimit -u 5)" in found.out
    assert told["alarm"] < 20
    assert told["run_once"] < 200


@pytest.mark.slow
@needs_another_user
def test_without_a_process_for_the_driver_itself_the_error_names_the_limit(tmp_path):
    told, found = sweep_in(tmp_path, "run(train, 2, 2)", *limited(1))
    assert told == {}
    assert "ResourceError: no process can be started: the kernel allows no more processes (ulimit -u 1)" in found.err


def test_the_limits_of_a_test_are_left_alone():
    from sweep.worker.limits import Raised, users_limit

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    one, two = Raised(), Raised()
    assert users_limit() == before[0]
    one.close()
    one.close()
    two.close()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
