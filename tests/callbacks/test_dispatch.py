"""How callbacks are called: both forms of their hooks, their order, what they see, what they remember."""

from __future__ import annotations

import errno
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.callbacks.base import Callback
from sweep.callbacks.dispatch import Dispatcher
from sweep.callbacks.observed import ExperimentInfo, ObservedTrial, plain_result
from sweep.callbacks.watch import MissingKeys
from sweep.core.messages import Hook, Notify
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef, Status, Trial
from sweep.errors import ConfigError
from sweep.launch.observers import callbacks_from

ABOUT = ExperimentInfo("/x", "train", ("lr",), None, 2)
SETUP = {"experiment_dir": "", "plan": None, "num_trials": None}


def trial(number: int = 0, **more: Any) -> Trial:
    return Trial(f"abcde_{number:05d}", {"lr": 0.5, "fixed": 1}, Resources(), **more)


def told(hook: Hook, one: Trial, result: dict[str, Any] | None = None) -> Notify:
    return Notify(hook, one, TrialResult(result) if result is not None else None)


def run_through(callbacks: list[Callback], batches: list[list[Notify]]) -> list[str]:
    notices: list[str] = []
    dispatcher = Dispatcher(callbacks, notices.append, about=ABOUT)
    dispatcher.start()
    for batch in batches:
        dispatcher.notify(batch)
    dispatcher.close([batch[-1].trial for batch in batches[-1:]])
    return notices


class Ours(Callback):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_trial_result(self, trial: Any, result: Any) -> None:
        self.heard.append(("result", str(trial), dict(result)))

    def on_checkpoint(self, trial: Any, checkpoint: Any) -> None:
        self.heard.append(("checkpoint", checkpoint.path))

    def on_trial_save(self, trial: Any) -> None:
        self.heard.append(("save", trial.checkpoint.path))


class Tunes(Callback):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
        self.heard.append(("begin", iteration, len(trials)))

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        self.heard.append(("end", iteration, [str(one) for one in trials]))

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.heard.append(("start", iteration, trial.trial_id, info))

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        self.heard.append(("result", type(result), result["config"], result["experiment_tag"], result["loss"]))

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **info: Any) -> None:
        self.heard.append(("checkpoint", checkpoint.path))

    def on_trial_complete(self, **info: Any) -> None:
        self.heard.append(("complete", sorted(info)))


def test_our_form_gets_the_trial_and_a_read_only_result() -> None:
    ours = Ours()
    saved = trial(checkpoint=CheckpointRef("abcde_00000/checkpoint_000001"))
    assert run_through([ours], [[told(Hook.RESULT, trial(), {"loss": 1})], [told(Hook.SAVE, saved)]]) == []
    assert ours.heard == [
        ("result", "train_abcde_00000", {"loss": 1}),
        ("checkpoint", "/x/abcde_00000/checkpoint_000001"),
        ("save", "/x/abcde_00000/checkpoint_000001"),
    ]


def test_tunes_form_gets_keywords_and_a_plain_dict_with_the_config() -> None:
    tunes = Tunes()
    saved = trial(checkpoint=CheckpointRef("abcde_00000/checkpoint_000002"))
    batches = [
        [told(Hook.START, trial()), told(Hook.RESULT, trial(), {"loss": 1})],
        [told(Hook.SAVE, saved), told(Hook.COMPLETE, saved)],
    ]
    assert run_through([tunes], batches) == []
    assert tunes.heard == [
        ("begin", 1, 0),
        ("start", 1, "abcde_00000", {}),
        ("result", dict, {"lr": 0.5, "fixed": 1}, "0_lr=0.5000", 1),
        ("end", 1, ["train_abcde_00000"]),
        ("begin", 2, 1),
        ("checkpoint", "/x/abcde_00000/checkpoint_000002"),
        ("complete", ["iteration", "trial", "trials"]),
        ("end", 2, ["train_abcde_00000"]),
    ]


def test_a_hook_that_is_given_all_trials_sees_how_the_others_are_though_it_was_not_called_for_that(tmp_path):
    seen = []

    class Counts(Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            seen.append((trial.trial_id[-1], [str(one.status) for one in trials]))

    def train(config: dict[str, Any]) -> None:
        sweep.report(loss=1)

    space, several = (
        {"x": sweep.grid_search([1, 2, 3])},
        {"callbacks": [Counts()], "verbose": 0, "storage_path": tmp_path},
    )
    sweep.run(train, config=space, max_concurrent_trials=1, **several)
    assert seen == [
        ("0", ["RUNNING"]),
        ("1", ["TERMINATED", "RUNNING"]),
        ("2", ["TERMINATED", "TERMINATED", "RUNNING"]),
    ]
    seen.clear()
    sweep.run(train, config=space, resources_per_trial={"cpu": sweep.cluster_resources()["CPU"]}, **several)
    assert seen[0] == ("0", ["RUNNING", "PENDING", "PENDING"])


def test_a_callback_can_ask_for_what_a_metric_has_been(tmp_path: Path) -> None:
    seen = []

    class Asks(Callback):
        def on_trial_complete(self, trial: Any) -> None:
            seen.append(trial.metric_analysis["inner/loss"])

    def train(config: dict[str, Any]) -> None:
        for loss in (3, 1, 2):
            sweep.report(inner={"loss": loss})

    analysis = sweep.run(train, callbacks=[Asks()], engine="inline", storage_path=tmp_path, verbose=0)
    assert seen == [{"max": 3, "min": 1, "last": 2, "avg": 2, "last-5-avg": 2, "last-10-avg": 2}]
    assert analysis.trials[0].metric_analysis["inner/loss"] == seen[0]


@pytest.mark.parametrize("is_ours", [False, True])
def test_log_files_are_brought_up_to_date_before_a_callback_of_the_user_hears_of_an_end(is_ours):
    class Mine(Callback):
        def on_trial_result(self, trial: Any, result: Any) -> None:
            told_of.append("result")

        def on_trial_complete(self, trial: Any) -> None:
            told_of.append("complete")

        def on_experiment_end(self, trials: Any) -> None:
            told_of.append("end")

    class Files:
        is_asleep = False

        def catch_up(self) -> None:
            told_of.append("files")

        def finish(self) -> bool:
            told_of.append("all files")
            return False

    told_of: list[str] = []
    ours = MissingKeys({"x": "which nobody reports"}, lambda text: None, lambda text: None)
    dispatcher = Dispatcher([ours if is_ours else Mine()], pytest.fail, files=Files())
    ends = [told(Hook.COMPLETE, trial())]
    dispatcher._thread = threading.current_thread()  # not started yet: what is handed over waits
    dispatcher.notify([told(Hook.RESULT, trial(), {"loss": 1}), *ends])
    dispatcher.notify(ends)
    dispatcher.start()
    assert dispatcher.close([]) is False
    assert told_of == (["all files"] if is_ours else ["result", "files", "complete", "complete", "all files", "end"])


def test_setup_passes_only_what_it_takes() -> None:
    class Bare(Callback):
        got: Any = None

        def setup(self, stop: Any = None, num_samples: Any = None, total_num_samples: Any = None) -> None:
            self.got = (stop, num_samples, total_num_samples)

    class Everything(Callback):
        got: Any = None

        def setup(self, **info: Any) -> None:
            self.got = sorted(info)

    bare, everything = Bare(), Everything()
    dispatcher = Dispatcher([bare, everything], lambda text: None)
    dispatcher.setup(stop={"loss": 1}, num_samples=3, total_num_samples=6, experiment_dir="d", trials=())
    assert bare.got == ({"loss": 1}, 3, 6)
    assert everything.got == ["experiment_dir", "num_samples", "stop", "total_num_samples", "trials"]


@pytest.mark.parametrize("kind", [KeyError, SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("form", ["ours", "tunes"])
def test_a_hook_that_raises_whatever_is_named_once_and_switched_off_after_three(form, kind):
    calls = []

    class OursRaises(Callback):
        def on_trial_result(self, trial: Any, result: Any) -> None:
            calls.append(1)
            raise kind("oh")

    class TunesRaises(Callback):
        def on_trial_result(self, iteration: Any, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            calls.append(1)
            raise kind("oh")

    other = Ours()
    raising = OursRaises() if form == "ours" else TunesRaises()
    notices = run_through([raising, other], [[told(Hook.RESULT, trial(), {"loss": i})] for i in range(6)])
    name = type(raising).__name__
    line = type(raising).on_trial_result.__code__.co_firstlineno + 2
    assert notices == [
        f"the callback {name}.on_trial_result raised {kind.__name__}: {kind('oh')} ({__file__}:{line})",
        f"the callback {name} raised 3 times and is switched off",
    ]
    assert (len(calls), len(other.heard)) == (3, 6)


def test_a_callback_that_blocks_holds_up_nobody_but_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.callbacks.dispatch._FLUSH_S", 0.05)
    monkeypatch.setattr("sweep.callbacks.dispatch._SLOW_S", 0.02)
    gate = threading.Event()

    class Blocks(Callback):
        def on_trial_result(self, trial: Any, result: Any) -> None:
            gate.wait()

    notices = run_through([Blocks()], [[told(Hook.RESULT, trial(), {"loss": 1})]])
    gate.set()
    assert notices == [
        "the end of the sweep waits for Blocks.on_trial_result, at most 0.03 s more; Ctrl-C twice leaves it",
        "Blocks.on_trial_result did not finish within 0.05 s; what it had not written is in sweep.db",
    ]


def test_states_are_stored_at_the_end_and_given_back_to_the_next_run(tmp_path):
    class Counts(Callback):
        def __init__(self, n: int = 0) -> None:
            self.n = n

        def on_trial_result(self, trial: Any, result: Any) -> None:
            self.n += 1

        def get_state(self) -> Any:
            return {"n": self.n}

        def set_state(self, state: Any) -> None:
            self.n = state["n"]

    about, notices = ExperimentInfo(str(tmp_path), "train"), []
    dispatcher = Dispatcher([Counts(), Counts(10)], notices.append, about=about)
    dispatcher.start()
    dispatcher.notify([told(Hook.RESULT, trial(), {"a": 1})])
    dispatcher.close([])
    for is_resumed, found in ((True, [1, 11, 0]), (False, [0, 0, 0])):
        callbacks = [Counts(), Counts(), Counts()]
        Dispatcher(callbacks, notices.append, about=about).setup(**SETUP, is_resumed=is_resumed)
        assert [one.n for one in callbacks] == found
    assert notices == []
    Dispatcher([Counts(threading.Lock())], notices.append, about=about).close([])
    (tmp_path / "callbacks.pkl").write_bytes(b"torn")
    Dispatcher([Counts()], notices.append, about=about).setup(**SETUP, is_resumed=True)
    assert "cannot be stored: TypeError" in notices[0]
    assert "callbacks.pkl cannot be read" in notices[1]


def test_an_observed_trial_and_a_plain_result_have_tunes_names():
    one = ObservedTrial(trial(7, status=Status.STOPPING, failures=1, reason="why"), ABOUT)
    failed = ObservedTrial(trial(status=Status.ERROR, reason="no luck"), ABOUT)
    saved = ObservedTrial(trial(checkpoint=CheckpointRef("abcde_00000/checkpoint_000001", 1, 1, 1.0)), ABOUT)
    assert (one.trial_id, one.id, str(one)) == ("abcde_00007", "abcde_00007", "train_abcde_00007")
    assert (one.trainable_name, one.status, one.is_finished(), one.get_error()) == ("train", "RUNNING", False, None)
    assert (one.evaluated_params, one.experiment_tag) == ({"lr": 0.5}, "7_lr=0.5000")
    assert (one.path, one.local_path, one.logdir) == ("/x/abcde_00007",) * 3
    assert (one.num_failures, one.max_failures, one.error_file) == (1, 2, "/x/abcde_00007/error.txt")
    assert (one.checkpoint, one.custom_trial_name, dict(one.last_result)) == (None, None, {})
    assert (one.number, one.placement_group_factory) == (7, Resources())
    assert {one: 1}[ObservedTrial(trial(7), ABOUT)] == 1
    assert one != failed
    with pytest.raises(AttributeError):
        _ = one.nothing_of_the_kind
    assert (failed.is_finished(), failed.get_error()) == (True, "no luck")
    assert (one.status == one.RUNNING, failed.status == ObservedTrial.ERROR) == (True, True)
    names = ("PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR")
    assert [getattr(ObservedTrial, name) for name in names] == [getattr(one, name) for name in names] == [*names]
    assert (one.has_checkpoint(), saved.has_checkpoint()) == (False, True)
    about = ExperimentInfo("/x", "train", None, lambda one: f"n{one.number}")
    named = pickle.loads(pickle.dumps(ObservedTrial(trial(3), about)))
    assert (str(named), named.custom_trial_name, named.trial_id) == ("n3", "n3", "abcde_00003")
    assert named.evaluated_params == {"lr": 0.5, "fixed": 1}
    plain = plain_result(failed, TrialResult({"loss": 1, "timestamp": 0}))
    assert plain | {"trial_id": "abcde_00000", "done": False, "node_ip": "127.0.0.1"} == plain
    assert (plain["config"], plain["experiment_tag"]) == ({"lr": 0.5, "fixed": 1}, "0_lr=0.5000")
    assert len(plain["date"]) == len("1970-01-01_00-00-00")


def test_the_order_of_hooks_in_a_real_sweep_is_tunes(tmp_path: Path) -> None:
    order = []

    class Order(Callback):
        def setup(self, **info: Any) -> None:
            order.append("setup")

        def __getattribute__(self, name: str) -> Any:
            if name.startswith("on_trial") or name in ("on_checkpoint", "on_experiment_end"):
                return lambda *a, **k: order.append(name)
            return super().__getattribute__(name)

        on_trial_start = on_trial_result = on_checkpoint = on_trial_save = lambda self, *a: None
        on_trial_complete = on_experiment_end = lambda self, *a: None

    def train(config: dict[str, Any]) -> Any:
        (tmp_path / "c").mkdir(exist_ok=True)
        for i in range(2):
            sweep.report({"a": i}, checkpoint=sweep.Checkpoint.from_directory(tmp_path / "c"))
        return {"a": 3}

    sweep.run(train, storage_path=tmp_path / "s", verbose=0, engine="inline", callbacks=[Order()])
    assert order == [
        "setup",
        "on_trial_start",
        *["on_trial_result", "on_checkpoint", "on_trial_save"] * 2,
        "on_trial_result",
        "on_trial_complete",
        "on_experiment_end",
    ]


def test_callbacks_can_be_named_in_the_environment() -> None:
    assert callbacks_from({}) == []
    found = callbacks_from({"RAY_TUNE_CALLBACKS": "sweep.callbacks.loggers.JsonLoggerCallback, sweep.Callback"})
    assert [type(one).__name__ for one in found] == ["JsonLoggerCallback", "Callback"]
    for bad in ("nothing.Here", "sweep.run", "sweep", "sweep.NoSuch"):
        with pytest.raises(ConfigError, match="SWEEP_CALLBACKS names"):
            callbacks_from({"SWEEP_CALLBACKS": bad})


# --- reporters ---


def shown_by(reporter_of: Any, tmp_path: Path, **more: Any) -> str:
    out = io.StringIO()

    def train(config: dict[str, Any]) -> None:
        if config["x"] == 3:
            raise ValueError("three")
        for i in range(2):
            sweep.report(loss=config["x"] * i, mean_accuracy=0.5, other=7)

    sweep.run(
        train,
        config={"x": sweep.grid_search([2, 1, 3]), "fixed": 4},
        metric="loss",
        mode="min",
        storage_path=tmp_path,
        name="e",
        engine="inline",
        raise_on_failed_trial=False,
        progress_reporter=reporter_of(out),
        **more,
    )
    return out.getvalue()


def last_table(shown: str) -> list[list[str]]:
    lines = shown.splitlines()
    start = max(i for i, line in enumerate(lines) if line.startswith("trial name") and "status" in line)
    rows = [lines[start]]
    for line in lines[start + 2 :]:
        if not line.startswith("train_"):
            break
        rows.append(line)
    return [row.replace("trial name", "name").replace("total time (s)", "time").split() for row in rows]


def test_a_cli_reporter_shows_tunes_columns_and_the_errors(tmp_path: Path) -> None:
    shown = shown_by(lambda out: sweep.CLIReporter(file=out), tmp_path)
    table = last_table(shown)
    assert table[0] == ["name", "status", "x", "acc", "iter", "time", "loss", "other"]
    assert [row[1:5] for row in table[1:3]] == [["TERMINATED", "2", "0.5", "2"], ["TERMINATED", "1", "0.5", "2"]]
    assert table[3][1:] == ["ERROR", "3"]
    assert "Number of errored trials: 1" in shown
    assert f"{tmp_path}/e/" in shown
    assert "/error.txt" in shown


def test_columns_and_rows_can_be_chosen_named_and_sorted(tmp_path):
    def make(out: Any) -> sweep.CLIReporter:
        options: dict[str, Any] = {"parameter_columns": ["fixed"], "sort_by_metric": True, "max_progress_rows": 2}
        reporter = sweep.JupyterNotebookReporter(metric_columns={"loss": "the_loss"}, file=out, **options)
        reporter.add_metric_column("other")
        reporter.add_parameter_column("x", "EX")
        return reporter

    shown = shown_by(make, tmp_path)  # outside of a notebook too
    table = last_table(shown)
    assert table[0] == ["name", "status", "fixed", "EX", "the_loss", "other"]
    assert [row[2:] for row in table[1:]] == [["4", "1", "1", "7"], ["4", "2", "2", "7"]]
    assert "... 1 more trials not shown (1 ERROR)" in shown


def test_tables_come_at_most_every_so_many_seconds_or_when_a_subclass_says(tmp_path):
    class AtTheEnd(sweep.CLIReporter):
        def should_report(self, trials: Any, done: bool = False) -> bool:
            return done

    now = iter(range(0, 1000, 3))  # seconds: every question comes three later
    reporters = (
        lambda out: sweep.CLIReporter(max_report_frequency=0, file=out),
        lambda out: sweep.CLIReporter(max_report_frequency=9, file=out, clock=lambda: next(now)),
        lambda out: sweep.CLIReporter(print_intermediate_tables=False, file=out),
        lambda out: AtTheEnd(file=out),
    )
    shown = [shown_by(make, tmp_path / str(number)) for number, make in enumerate(reporters)]
    often, seldom, never, at_the_end = (text.count("trial name         status") for text in shown)
    assert often > seldom > never == at_the_end == 1


def test_a_reporter_of_ones_own_is_called_with_the_trials(tmp_path: Path) -> None:
    calls: list[Any] = []

    class Mine(sweep.ProgressReporter):
        def should_report(self, trials: Any, done: bool = False) -> bool:
            return done or any(trial.last_result for trial in trials)

        def report(self, trials: Any, done: bool, *sys_info: Any) -> None:
            calls.append((done, [trial.status for trial in trials]))

    shown_by(lambda out: Mine(), tmp_path)
    assert calls[0] == (False, ["RUNNING", "PENDING", "PENDING"])
    assert calls[-1] == (True, ["TERMINATED", "TERMINATED", "ERROR"])


def test_verbose_0_is_silent_and_from_2_on_each_result_has_a_line(tmp_path, capfd):
    assert shown_by(lambda out: sweep.CLIReporter(file=out), tmp_path / "a", verbose=0) == ""
    counts = []
    for verbose in range(4):
        shown_by(lambda out: None, tmp_path / str(verbose), verbose=verbose)
        shown = capfd.readouterr()
        counts.append("".join(shown).count("other=7"))
        assert verbose or shown.out == ""
    assert counts == [0, 0, 4, 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda: sweep.CLIReporter(metric_columns="loss"),
        lambda: sweep.CLIReporter(metric_columns={"loss": 3}),
        lambda: sweep.CLIReporter(parameter_columns=3),
        lambda: sweep.CLIReporter(max_progress_rows=0),
        lambda: sweep.CLIReporter(max_report_frequency=-1),
        lambda: sweep.CLIReporter(mode="up"),
        lambda: sweep.CLIReporter().add_metric_column("mean_loss"),
    ],
)
def test_a_reporter_refuses_what_makes_no_sense(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_a_full_disk_switches_no_callback_off_and_is_said_once() -> None:
    class Writes(Callback):
        def __init__(self) -> None:
            self.heard = 0

        def on_trial_result(self, trial: Any, result: Any) -> None:
            self.heard += 1
            if self.heard < 6:
                raise OSError(errno.ENOSPC, "No space left on device")

    writes = Writes()
    notices = run_through([writes], [[told(Hook.RESULT, trial(), {"loss": 1.0})] for _ in range(8)])
    assert writes.heard == 8
    (notice,) = notices
    assert notice.startswith("the callback Writes.on_trial_result raised OSError: [Errno 28] No space left on device (")
