"""The display: a block in place on a terminal and in a notebook, lines elsewhere, nothing at verbose=0."""

from __future__ import annotations

import io
import os
import re
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_terminal import VirtualTerminal

from sweep.core.plan import Plan
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Cause, Status, Trial, evolve
from sweep.display.ending import Ending
from sweep.display.formats import width_of
from sweep.display.progress import Progress
from sweep.display.renderer import About, draw_block, draw_end, draw_trials, status_line
from sweep.display.reporters import CLIReporter
from sweep.display.screens import Notebook, style_of
from sweep.display.state import ViewState
from sweep.errors import ConfigError, MetricError

PLAN = Plan(metric="loss", mode="min", stop={"training_iteration": 27}, num_trials=100)
NODES = (Node(cpus=8, memory=24 << 30, devices=(Device("gpu0"), Device("gpu1"))),)
ONE = Resources((Bundle(cpu=2, gpu=1),))


class Terminal(io.StringIO):
    """A terminal of which one sees the screen."""

    encoding = "utf-8"

    def __init__(self, columns: int = 110, rows: int = 30, *, does_reflow: bool = True) -> None:
        super().__init__()
        self.window = VirtualTerminal(columns, rows, does_reflow=does_reflow)

        self._master, self._slave = os.openpty()
        self.resize(columns, rows)

    def __del__(self) -> None:
        os.close(self._master)
        os.close(self._slave)

    def fileno(self) -> int:
        return self._slave

    def isatty(self) -> bool:
        return True

    def resize(self, columns: int, rows: int) -> None:
        self.window.resize(columns, rows)
        termios.tcsetwinsize(self._slave, (rows, columns))

    def write(self, text: str) -> int:
        self.window.feed(text)
        return super().write(text)

    def screen(self) -> list[str]:
        return self.window.shown()


class Feed:
    """Trials that change, and a display that is told so."""

    def __init__(self, progress: Progress, **info: Any) -> None:
        self.trials: dict[str, Trial] = {}
        self.progress = progress
        self.now = 0.0
        given: dict[str, Any] = {
            "experiment_dir": "/results/mnist",
            "plan": PLAN,
            "num_trials": 100,
            "name": "mnist",
            "searcher": "tpe (limit 4)",
            "scheduler": "asha",
            "seed": 7,
            "nodes": NODES,
            "resume_command": "sweep resume mnist",
        }
        progress.setup(**(given | info))

    def put(self, number: int, **changes: Any) -> None:
        trial_id = f"abcde_{number:05d}"
        config = {"lr": 10.0 ** -(number + 1), "act": "gelu", "width": 64 * (number + 1)}
        trial = self.trials.get(trial_id) or Trial(trial_id, config, ONE)
        self.now += 1.0
        if changes.get("status") is Status.RUNNING:
            changes["running_since"] = self.now
        elif "status" in changes:
            changes |= {"ran_s": trial.running_s(self.now), "running_since": None}
        self.trials[trial_id] = evolve(trial, **changes)
        self.progress.on_step(self.trials, self.now, [trial_id])

    def run(self, number: int, device: str = "gpu0") -> None:
        placement = Placement((BundlePlacement("local", ((device, 1.0),)),))
        self.put(number, status=Status.RUNNING, attempt=1, placement=placement)

    def report(self, number: int, loss: float, step: int) -> None:
        result = TrialResult({"loss": loss, "training_iteration": step})
        before = self.trials[f"abcde_{number:05d}"].best_result
        best = result if before is None or loss < before["loss"] else before
        self.put(number, last_result=result, best_result=best)

    def end(self, number: int, status: Status = Status.TERMINATED, reason: str = "") -> None:
        cause = Cause.EARLY if reason.startswith("stopped early") else Cause.NONE
        failures = int(status is Status.ERROR)
        self.put(number, status=status, reason=reason, cause=cause, placement=None, failures=failures)

    def some(self) -> Feed:
        """Let two trials run, one of which reports three times, and one wait."""
        self.run(0)
        self.run(1, "gpu1")
        self.put(2, reason="needs 1 GPU; 2 of 2 held by 00000, 00001")
        for step, loss in enumerate((0.5, 0.25, 0.041234567), 1):
            self.report(0, loss, step)
            self.progress.refresh()
        return self

    def finish(self) -> None:
        self.progress.on_experiment_end(list(self.trials.values()))


def shown_lines(lines: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
    return ["".join(part for part, _ in line) for line in lines]


def block(view: ViewState, *, now: float = 0.0, idle_s: float = 0.0, width: int = 110) -> str:
    return "\n".join(shown_lines(draw_block(view, About("mnist"), width, 40, now=now, idle_s=idle_s)))


def lines_display(verbose: int = 1, **more: Any) -> tuple[Progress, io.StringIO]:
    file = io.StringIO()
    return Progress(verbose, file=file, style="lines", has_thread=False, **more), file


def test_the_lines_of_a_pipe_are_in_the_order_of_time() -> None:
    progress, file = lines_display(verbose=2)
    feed = Feed(progress)
    feed.run(0)
    feed.report(0, 0.5, 1)
    feed.run(1)
    progress.notice("something is odd")
    feed.report(1, 0.25, 1)
    feed.report(0, 0.125, 2)
    feed.end(0)
    feed.report(1, 0.0625, 2)
    progress.refresh()
    said = [" ".join(line.split()[1:4]) for line in file.getvalue().splitlines()[1:]]
    assert said == [
        "00000 step 1",
        "00001 running lr=0.01",
        "something is odd",
        "00001 step 1",
        "00000 step 2",
        "00000 finished loss=0.125",
        "00001 step 2",
    ]


def test_a_pipe_gets_one_line_per_change_of_state() -> None:
    progress, file = lines_display()
    feed = Feed(progress).some()
    feed.end(0)
    feed.end(1, reason="stopped early: loss=2 at 1, cutoff 1")
    progress.refresh()
    feed.run(2)
    feed.end(2, Status.ERROR, "ValueError: lr\nmore")
    progress.refresh()
    assert file.getvalue().splitlines() == [
        "sweep mnist: 100 trials, searcher tpe (limit 4), scheduler asha, seed 7 -> /results/mnist",
        "0:01 00000 running lr=0.1 width=64",
        "0:02 00001 running lr=0.01 width=128",
        "0:07 00000 finished loss=0.04123 at step 3 in 0:06",
        "0:08 00001 stopped early in 0:06   stopped early: loss=2 at 1, cutoff 1",
        "0:10 00002 failed ValueError: lr more   sweep logs mnist 00002",
    ]


def test_a_pipe_gets_a_status_line_each_thirty_seconds() -> None:
    time = [0.0]
    progress, file = lines_display(clock=lambda: time[0])
    Feed(progress).some()
    for time[0] in (29.0, 31.0, 45.0, 62.0):
        progress.refresh()
    beats = [line for line in file.getvalue().splitlines() if "best=" in line]
    assert beats == [
        "0:37 0/100 best=0.04123@00000 run=2 eta=9h",
        "1:08 0/100 best=0.04123@00000 run=2 eta=17h",
    ]


def test_verbose_0_prints_nothing_and_starts_no_thread(capfd: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    feed = Feed(Progress(0)).some()
    feed.finish()
    assert threading.active_count() == before
    assert capfd.readouterr() == ("", "")


def test_verbose_2_adds_a_line_per_result() -> None:
    progress, file = lines_display(2)
    Feed(progress).some()
    assert "0:06 00000 step 3 loss=0.04123" in [line.replace("0:05", "0:06") for line in file.getvalue().splitlines()]


def test_a_notice_is_shown_among_the_lines_and_on_standard_error_when_there_is_no_display(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress, file = lines_display()
    Feed(progress)
    progress.notice("killing\x1b[2J what still runs")
    progress.refresh()
    assert file.getvalue().splitlines()[-1] == "sweep: killing what still runs"
    progress.on_experiment_end([])
    progress.notice("late")
    assert capsys.readouterr().err == "sweep: late\n"
    Progress(0).notice("nothing")
    assert capsys.readouterr() == ("", "")


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 110, lines: int = 30) -> tuple[Progress, Terminal]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal(columns, lines)
    return Progress(1, file=file, has_thread=False), file


def test_a_terminal_shows_one_block_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, file = terminal(monkeypatch)
    Feed(progress).some()
    screen = file.screen()
    assert sum("sweep mnist" in line and "running" in line for line in screen) == 1
    text = "\n".join(screen)
    assert "0/100 trials" in text
    assert "queue 1" in text
    assert "running 2 · paused 0 · finished 0 · stopped early 0 · failed 0" in text
    assert "CPU 4/8 ████░░░░" in text
    assert "GPU 2/2 ████████" in text
    assert "best so far  loss 0.04123  trial 00000 at step 3" in text
    heading = next(line for line in screen if line.startswith("trial"))
    assert heading.split() == ["trial", "state", "step", "loss", "trend", "lr", "width", "time", "where"]
    row = next(line for line in screen if line.startswith("00000"))
    assert row.split() == ["00000", "running", "3/27", "0.04123", "█▄▁", "0.1", "64", "0:05", "gpu0"]
    waiting = next(line for line in screen if line.startswith("00002"))
    assert waiting.endswith("needs 1 GPU; 2 of 2 held by 00000, 00001")
    assert "^C once: stop, to be resumed   twice: kill" in text
    assert "sweep resume" not in text  # that is said at the end


def test_the_last_frame_stays_with_the_best_config_and_the_failures_by_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress, file = terminal(monkeypatch)
    feed = Feed(progress).some()
    feed.end(0)
    for number in (3, 4, 5):
        feed.run(number)
        feed.end(number, Status.ERROR, f"CUDA out of memory: {number}.5 GiB asked for")  # alike but for a number
    feed.finish()
    screen = [line for line in file.screen() if line]
    assert screen[0].startswith("sweep mnist   interrupted after 0:13")
    assert screen[3:] == [
        "best config:",
        "  lr: 0.1",
        "  act: gelu",
        "  width: 64",
        "failed 3 x CUDA out of memory: 3.5 GiB asked for   trials 00003 00004 00005",
        "what they printed: sweep logs mnist 00003",
        "2 trials had not ended",
        "resume: sweep resume mnist",
    ]
    assert file.getvalue().count("\x1b[?25h") >= 1  # the cursor is back


def test_the_best_so_far_gets_worse_again_with_the_last_report_of_its_trial() -> None:
    progress, file = lines_display(table=lambda view: [])
    feed = Feed(progress)
    feed.run(0)
    feed.run(1)
    for number, loss, step in ((0, 0.5, 1), (1, 0.2, 1), (1, 0.9, 2), (0, float("nan"), 2), (0, 0.7, 3)):
        feed.report(number, loss, step)
        progress.refresh()
    beats = [re.search(r"best=\S+", line) for line in file.getvalue().splitlines() if " run=2" in line]
    assert [beat and beat[0] for beat in beats] == [
        "best=0.5@00000",
        "best=0.2@00001",
        "best=0.5@00000",
        "best=0.9@00001",
        "best=0.7@00000",
    ]


def end_of(feed: Feed, file: io.StringIO) -> list[str]:
    """Return what is written at the end, after the line of counts."""
    written = len(file.getvalue())
    feed.finish()
    lines = file.getvalue()[written:].splitlines()
    return lines[1 + next(i for i, line in enumerate(lines) if line.startswith("running ")) :]


def test_the_last_frame_names_what_had_been_better_at_an_earlier_step() -> None:
    progress, file = lines_display()
    feed = Feed(progress)
    for number, losses in enumerate(([0.5, 0.4], [0.1, 0.9])):
        feed.run(number)
        for step, loss in enumerate(losses, 1):
            feed.report(number, loss, step)
        feed.end(number)
    progress.refresh()
    assert progress._view is not None
    assert "best so far  loss 0.4  trial 00000 at step 2   lr=0.1 width=64\n" in block(progress._view)
    assert "earlier" not in block(progress._view)
    ended = end_of(feed, file)
    assert ended[:3] == [
        "best  loss 0.4  trial 00000 at step 2",
        'better earlier  loss 0.1  trial 00001 at step 1   (scope="all", --scope all)',
        "best config:",
    ]
    assert ended[3] == "  lr: 0.1"
    assert max(map(len, ended[:2])) <= 80


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        ((0.5, 0.4, 0.4), ["best  loss 0.4  trial 00000 at step 3", "best config:"]),
        ((0.5, float("nan")), ['earlier  loss 0.5  trial 00000 at step 1   (scope="all", --scope all)']),
    ],
    ids=["none was better", "no last report has a number"],
)
def test_the_last_frame_of_one_trial_has_its_last_report_or_names_an_earlier_one(
    losses: Sequence[float], wanted: list[str]
) -> None:
    progress, file = lines_display()
    feed = Feed(progress)
    feed.run(0)
    for step, loss in enumerate(losses, 1):
        feed.report(0, loss, step)
    feed.end(0)
    assert end_of(feed, file)[:2] == wanted


def test_a_trial_that_begins_anew_counts_by_nothing_until_it_reports() -> None:
    view = ViewState(PLAN, 100, NODES)
    feed = Feed(_Into(view))
    for number, loss in ((0, 0.1), (1, 0.5)):
        feed.run(number)
        feed.report(number, loss, 1)
        feed.end(number, Status.ERROR, "boom")
    assert view.best is not None
    assert view.best.trial.number == 0
    feed.put(0, status=Status.PENDING, last_result=None, best_result=None)
    assert view.best.trial.number == 1
    feed.run(0)
    feed.report(0, 0.3, 1)
    assert (view.best.trial.number, view.best.value) == (0, 0.3)


def test_trials_of_earlier_runs_count_by_their_last_reports_whatever_became_of_them() -> None:
    view = ViewState(PLAN, 100, NODES)
    states = (Status.TERMINATED, Status.PAUSED, Status.PENDING, Status.ERROR)
    view.restart(
        Trial(
            f"abcde_{number:05d}",
            {"lr": number},
            ONE,
            status,
            attempt=1,
            last_result=TrialResult({"loss": abs(number - 1.0)}),
        )
        for number, status in enumerate(states)
    )
    assert view.best is not None
    assert (view.best.trial.number, view.best.value) == (1, 0.0)


def test_ten_thousand_ended_trials_are_not_looked_at_when_one_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ViewState(PLAN, None, NODES)
    for number in range(10_000):
        last = TrialResult({"loss": 1.0 + number})
        view.update(0, Trial(f"a_{number:05d}", {}, ONE, Status.TERMINATED, last_result=last, best_result=last))
    looked: list[str] = []
    get = TrialResult.get

    def noted(self: TrialResult, key: str, default: Any = None) -> Any:
        looked.append(key)
        return get(self, key, default)

    monkeypatch.setattr(TrialResult, "get", noted)
    for step in range(100):  # the best, then the worst, in turn
        last = TrialResult({"loss": 0.5 if step % 2 else 1e6, "training_iteration": step})
        view.update(0, Trial("a_10000", {}, ONE, Status.RUNNING, attempt=1, last_result=last, best_result=last))
        assert view.best is not None
        assert view.best.value == (0.5 if step % 2 else 1.0)
    assert len(looked) < 100 * 10


SEVERAL = (("loss", "min"), ("size", "max"), ("seen", "obs"))


def several(**more: Any) -> tuple[Feed, Progress, io.StringIO]:
    progress, file = lines_display(**more)
    feed = Feed(progress, objectives=SEVERAL)
    for number, (loss, size) in enumerate(((0.1, 1.0), (0.2, 3.0), (0.3, 2.0))):
        feed.run(number)
        for values in ((0.01, 9.0), (loss, size)):
            last = TrialResult({"loss": values[0], "size": values[1], "seen": 7, "training_iteration": 1})
            feed.put(number, last_result=last, best_result=last)
        feed.end(number)
    progress.refresh()
    return feed, progress, file


def test_of_several_objectives_the_display_shows_the_pareto_set_and_no_best() -> None:
    feed, progress, file = several(table=lambda view: [])
    assert "pareto=2 run=0" in file.getvalue().splitlines()[-1]
    assert progress._view is not None
    front = [
        "  2 trials  by loss (min), size (max)",
        "  trial  loss  size",
        "  00000   0.1     1",
        "  00001   0.2     3",
    ]
    assert "\n".join([f"Pareto set so far{front[0]}", *front[1:]]) in block(progress._view)
    assert end_of(feed, file) == [
        f"Pareto set{front[0]}",
        *front[1:],
        "all of them: get_pareto_trials(), sweep best mnist",
    ]
    assert "best" not in file.getvalue().replace("sweep best mnist", "")


def test_a_large_pareto_set_is_cut_to_its_first_few() -> None:
    view = ViewState(PLAN, 100, NODES, SEVERAL)
    for number in range(20):
        last = TrialResult({"loss": number, "size": number})
        view.update(0, Trial(f"a_{number:05d}", {}, ONE, Status.TERMINATED, last_result=last))
    ended = shown_lines(draw_end(view, About(name="mnist"), width=80, now=0, unfinished=0))
    assert ended[2:] == [
        "Pareto set  20 trials  by loss (min), size (max)",
        "  trial  loss  size",
        *(f"  {number:05d}  {number:4d}  {number:4d}" for number in range(12)),
        "  and 8 more",
        "all of them: get_pareto_trials(), sweep best mnist",
    ]


@pytest.mark.parametrize("columns", [1, 5, 20, 40, 79, 200])
@pytest.mark.parametrize("lines", [1, 5, 24])
def test_no_line_is_wider_than_the_terminal_and_no_block_higher(columns: int, lines: int) -> None:
    view = ViewState(PLAN, 100, NODES)
    feed = Feed(_Into(view)).some()
    feed.run(3)
    feed.end(3, Status.ERROR, "漢字" * 50)
    about = About("n" * 30, "/d" * 30, "s" * 30, "s" * 30, 7, "sweep resume " + "n" * 30)
    drawn = shown_lines(draw_block(view, about, width=columns, height=lines, now=10.0, idle_s=0.0))
    assert len(drawn) <= lines
    assert all(width_of(line) <= columns for line in drawn)
    assert draw_end(view, about, width=columns, now=10.0, unfinished=0)


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_no_path_or_command_is_cut(columns: int) -> None:
    view = ViewState(PLAN, 100, NODES)
    feed = Feed(_Into(view)).some()
    feed.run(3)
    feed.end(3, Status.ERROR, "ValueError: " + "x" * 90)
    about = About("a-long-name-of-an-experiment", "/home/someone/of/some/long/path/sweep_results/a-long-name")
    drawn = shown_lines(draw_block(view, about, width=columns, height=40, now=10.0, idle_s=0.0))
    assert about.directory in "".join(drawn).replace(" ", "")
    assert "sweep logs a-long-name-of-an-experiment 00003" in "".join(drawn)
    assert any(
        about.directory in line for line in shown_lines(draw_end(view, about, width=columns, now=1, unfinished=0))
    )


def test_many_parameters_of_the_best_trial_take_a_few_rows() -> None:
    view = ViewState(Plan(metric="loss", mode="min"), 2)
    for number in range(2):
        config = {f"model.layers.{k}.dropout": number + k / 7 for k in range(200)}
        last = TrialResult({"loss": number, "training_iteration": 1})
        view.update(0, Trial(f"a_{number:05d}", config, ONE, Status.RUNNING, attempt=1, last_result=last))
    rows = block(view, width=80).splitlines()
    first = next(i for i, row in enumerate(rows) if row.startswith("best so far"))
    assert rows[first + 1].startswith("  model.layers.0.dropout=0 model.layers.1.dropout=0.1429")
    assert re.fullmatch(r"  model.* …", rows[first + 3])


def test_the_bar_moves_while_trials_run() -> None:
    view = ViewState(PLAN, 4)
    assert view.part_done() == 0.0
    for number, step in enumerate((9, 18)):
        last = TrialResult({"loss": 1.0, "training_iteration": step})
        view.update(0, Trial(f"a_{number:05d}", {}, ONE, Status.RUNNING, attempt=1, last_result=last))
    assert view.part_done() == pytest.approx((9 + 18) / 27 / 4)
    assert block(view).count("▓") == 9  # of 38
    view.update(1, Trial("a_00001", {}, ONE, Status.TERMINATED, attempt=1))
    assert view.part_done() == pytest.approx((9 / 27 + 1) / 4)
    without = ViewState(Plan(), 4)
    without.update(0, Trial("a_00000", {}, ONE, Status.RUNNING, attempt=1, last_result=last))
    assert without.part_done() == 0.0


class _Into(Progress):
    """Feeds a view directly."""

    def __init__(self, view: ViewState) -> None:
        super().__init__(0)
        self.view = view

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        for trial_id in changed:
            self.view.update(now, trials[trial_id])


def test_a_sweep_that_is_being_stopped_says_so_in_the_next_frame_also_when_nothing_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = [0.0]
    ending = Ending(30.0, clock=lambda: time[0])
    progress, file = terminal(monkeypatch, 80)
    feed = Feed(progress, ending=ending).some()
    assert "STOPPING" not in "\n".join(file.screen())
    ending.hear(1)
    for time[0], left in ((0.0, "30s"), (12.0, "18s")):
        progress.refresh()
        screen = file.screen()
        assert screen[0].startswith("sweep mnist   stopping ")
        assert screen[1] == f"STOPPING  in {left} what still runs is killed; ^C again kills it now"
        assert screen[2] == "waiting for 00000 00001 to end at the next report"
        assert not any("^C once" in line for line in screen)
    ending.hear(2)
    progress.refresh()
    assert file.screen()[1].startswith("KILLING")
    feed.finish()
    assert sum("resume" in line for line in file.screen()) == 1


def test_a_pipe_is_told_at_once_that_the_sweep_is_being_stopped_and_then_each_ten_seconds() -> None:
    time = [0.0]
    progress, file = lines_display(clock=lambda: time[0])
    ending = Ending(30.0, clock=lambda: time[0])
    Feed(progress, ending=ending).some()
    ending.hear(1)
    for time[0] in (0.0, 1.0, 9.0, 10.0, 11.0, 20.0):
        progress.refresh()
    said = [line.partition(" ")[2] for line in file.getvalue().splitlines() if "STOPPING" in line]
    again, waiting = (
        "what still runs is killed; ^C again kills it now",
        "waiting for 00000 00001 to end at the next report",
    )
    assert said == [f"STOPPING  in {left} {again}; {waiting}" for left in ("30s", "20s", "10s")]


def test_when_ctrl_c_has_ended_the_reader_of_the_pipe_the_rest_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ending = Ending(30.0)
    progress, _ = lines_display()
    feed = Feed(progress, ending=ending).some()
    ending.hear(1)
    progress._screen.file = _Broken()  # type: ignore[union-attr]
    progress.refresh()
    feed.finish()
    shown = capsys.readouterr().err
    assert shown.count("STOPPING") == 1
    assert shown.count("resume: sweep resume mnist") == 1


@pytest.mark.parametrize(
    ("error", "word", "can_resume"),
    [
        (None, "ended after", False),
        (MetricError("nobody reports it"), "failed after", False),
        (ConfigError("wrong"), "failed after", False),
        (OSError("no space left"), "failed after", True),
        (KeyboardInterrupt(), "interrupted after", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_how_to_resume_is_said_where_that_can_help(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None, word: str, can_resume: bool
) -> None:
    progress, file = terminal(monkeypatch)
    ending = Ending()
    feed = Feed(progress, ending=ending, num_trials=1)
    feed.run(0)
    if error is None:
        feed.end(0)
    ending.error = error
    feed.finish()
    assert word in file.screen()[0]
    assert sum("resume" in line for line in file.screen()) == can_resume


def test_what_was_interrupted_before_all_trials_were_made_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, file = terminal(monkeypatch)
    ending = Ending()
    feed = Feed(progress, ending=ending, num_trials=5)
    feed.run(0)
    ending.hear(1)
    feed.end(0)
    feed.finish()
    assert sum("resume" in line for line in file.screen()) == 1


def headers(file: Terminal) -> list[str]:
    return [line for line in file.screen() if line.startswith("sweep ")]


@pytest.mark.parametrize("columns", [20, 60, 80, 200])
def test_what_is_typed_leaves_no_stale_header_on_the_screen(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    progress, file = terminal(monkeypatch, columns, 24)
    feed = Feed(
        progress, name="train_2026-11-22_00-25-17", resume_command="sweep resume train_2026-11-22_00-25-17"
    ).some()
    for typed in ("\x03", "\x03\x03", "\n", "what is it doing?\n", "x" * 90):
        file.window.echo(typed)
        progress.notice("stopping")
        progress.refresh()
        assert len(headers(file)) == 1
        assert not any(trace in line for line in file.screen() for trace in ("^Ceep", "doing?", "xxx"))
    file.window.echo("\x03")
    feed.finish()
    assert headers(file) == [file.screen()[5]]


@pytest.mark.parametrize("does_reflow", [True, False], ids=["reflowing", "cutting"])
def test_a_window_that_is_resized_shows_the_block_once(monkeypatch: pytest.MonkeyPatch, does_reflow: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")  # of another window
    file = Terminal(120, 30, does_reflow=does_reflow)
    file.write("$ python train.py\n")
    progress = Progress(1, file=file, has_thread=False)
    feed = Feed(progress).some()
    for columns, rows in ((80, 30), (60, 30), (60, 10), (30, 10), (200, 40), (79, 24), (80, 5), (80, 24)):
        file.resize(columns, rows)
        progress.refresh()
        assert file.screen()[0] == "$ python train.py"
        assert len(headers(file)) == 1
        assert max(map(len, file.screen())) < columns
    feed.finish()
    assert len(headers(file)) == 1
    assert file.screen()[1].startswith("sweep mnist")


@pytest.mark.parametrize("has_thread", [False, True])
def test_without_a_standard_output_nothing_is_shown_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, has_thread: bool
) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as in a process that is started with it closed
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    feed = Feed(Progress(2, has_thread=has_thread)).some()
    feed.progress.notice("something")
    feed.finish()
    assert not failures


def test_what_else_is_printed_stands_above_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Terminal()
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("TERM", "xterm")
    progress = Progress(1, has_thread=False)
    feed = Feed(progress)
    print("before the first frame")
    feed.some()
    print("from a callback")
    sys.stderr.writelines(["a warning", "\n"])
    assert file.screen()[:3] == ["before the first frame", "from a callback", "a warning"]
    assert len(headers(file)) == 1
    progress.leave()  # as when the interpreter ends without the end of the sweep
    assert sys.stdout is file
    print("afterwards")
    assert file.screen()[-2:] == ["afterwards", ""]
    assert len(headers(file)) == 1


def test_escape_sequences_in_names_and_messages_reach_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, file = terminal(monkeypatch)
    feed = Feed(progress, name="\x1b[2Jevil")
    for number, value in enumerate(["\x1b]0;title\x07a", "\x1b[1;1Hb"]):
        feed.put(number, config={"p\x1b[3J": value}, status=Status.RUNNING, attempt=1)
    feed.end(0, Status.ERROR, "\x1b[2J\x07boom\rover")
    progress.refresh()
    feed.finish()
    shown = file.getvalue()
    assert "boom" in shown
    assert not re.search(r"\x1b\[2J|\x1b\]0|\x07|\x1b\[1;1H|\x1b\[3J", shown)


class _Broken(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("style", ["lines", "terminal"])
def test_a_closed_pipe_silences_the_display_and_harms_nothing(style: str) -> None:
    progress = Progress(2, file=_Broken(), style=style, has_thread=False)
    feed = Feed(progress).some()
    feed.finish()


def test_an_ascii_terminal_gets_plain_signs() -> None:
    class File(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    raw = io.BytesIO()
    file = File(raw, encoding="ascii")
    progress = Progress(1, file=file, style="terminal", has_thread=False)
    Feed(progress, name="größe").some()
    file.flush()
    shown = raw.getvalue().decode("ascii")
    assert "CPU 4/8" in shown
    assert "####" in shown


def test_the_thread_draws_by_itself_and_ends_with_the_sweep() -> None:
    drawn = threading.Event()

    class File(io.StringIO):
        def write(self, text: str) -> int:
            if " running " in text:
                drawn.set()
            return super().write(text)

    file = File()
    progress = Progress(1, file=file)
    feed = Feed(progress)
    feed.run(0)
    assert drawn.wait(20)
    feed.end(0)
    feed.finish()
    assert not [thread for thread in threading.enumerate() if thread.name == "sweep-progress"]
    assert "finished" in file.getvalue()
    feed.finish()  # a second end is harmless


def test_where_the_kernel_allows_no_thread_it_is_drawn_when_something_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    time = [0.0]
    file = io.StringIO()
    progress = Progress(1, file=file, style="lines", clock=lambda: time[0])
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    feed = Feed(progress)
    time[0] = 2.0
    feed.run(0)
    assert "00000 running" in file.getvalue()
    feed.end(0)
    feed.finish()
    assert "finished" in file.getvalue()


@pytest.mark.parametrize("is_given", [False, True], ids=["found at the first step", "given at setup"])
def test_after_a_resume_old_trials_count_but_are_no_news(is_given: bool) -> None:
    progress, file = lines_display()
    old = {f"abcde_{n:05d}": Trial(f"abcde_{n:05d}", {"lr": n}, ONE, Status.TERMINATED) for n in range(40)}
    feed = Feed(progress, **({"trials": [*old.values()]} if is_given else {}))
    feed.trials |= old
    feed.run(40)
    progress.refresh()
    assert file.getvalue().splitlines()[1:] == ["0:01 00040 running lr=1e-41 act=gelu width=2624"]
    assert progress._view is not None
    assert progress._view.num_ended == 40


def test_the_style_follows_where_the_output_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert style_of(io.StringIO()) == "lines"
    assert style_of(Terminal()) == "terminal"
    monkeypatch.setenv("TERM", "dumb")
    assert style_of(Terminal()) == "lines"


def test_a_notebook_cell_keeps_one_output_that_is_updated() -> None:
    import nbclient
    import nbformat

    code = (
        "import sys\n"
        f"sys.path[:0] = {[path for path in sys.path if path]!r}\n"
        "from sweep.display.progress import Progress\n"
        "from sweep.core.plan import Plan\n"
        "from sweep.core.trial import Trial, Status, evolve\n"
        "from sweep.core.resources import Resources\n"
        "progress = Progress()\n"
        "progress.setup(experiment_dir='/r/<b>', plan=Plan(metric='loss'), num_trials=2, name='<b>')\n"
        "trial = Trial('abcde_00000', {'lr': 1}, Resources(), Status.RUNNING, attempt=1)\n"
        "for now in range(5):\n"
        "    progress.on_step({trial.id: trial}, now, [trial.id])\n"
        "    progress.refresh()\n"
        "progress.on_experiment_end([evolve(trial, status=Status.TERMINATED)])\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    (output,) = notebook.cells[0].outputs
    assert output["output_type"] == "display_data"
    page = output["data"]["text/html"]
    assert "&lt;b&gt;" in page
    assert "ended after" in page
    assert "running" in page


def test_a_page_has_the_table_and_the_curves_below_the_block_and_keeps_them_at_the_end() -> None:
    progress = Progress(style="notebook", has_thread=False, file=io.StringIO())
    pages: list[str] = []
    feed = Feed(progress, searcher="<i>")
    assert isinstance(progress._screen, Notebook)
    progress._screen._handle = SimpleNamespace(update=lambda page: pages.append(page.data))
    for number in range(3):
        feed.run(number)
        for step in (1, 2):
            feed.report(number, number + 1 / step, step)
    feed.end(0)
    feed.end(1, Status.ERROR, "ValueError: <script>")
    progress.refresh()
    feed.end(2, reason="stopped early: loss=3")
    progress.notice("said at last")
    progress.on_experiment_end([*feed.trials.values()])
    running, last = pages
    assert "said at last" in last
    for page in pages:
        assert page.count("<svg") == 1
        assert "<script>" not in page
        assert len(re.findall(r"\b0000[012]  ", page)) >= 3
    assert "Interrupt the kernel once: stop" in running
    assert ("00002  running" in running, "00002  running" in last) == (True, False)
    assert all(word in last for word in ("finished ★", "00002  stopped early", "00001  failed", "best config:"))
    assert last.count("<polyline") == 3


def test_of_several_objectives_a_page_has_all_and_marks_the_pareto_set() -> None:
    feed, progress, _ = several(table=None)
    view = progress._view
    assert view is not None
    heading, *rows = shown_lines(draw_trials(view, 110, 20, 9.0, num_ended=20))
    assert heading.split()[2:6] == ["step", "loss", "size", "seen"]
    assert [("★" in row, row[:5]) for row in rows] == [(True, "00000"), (True, "00001"), (False, "00002")]
    feed.run(7)
    progress.refresh()
    assert re.search("trial +state +step +loss +size +seen", block(view))


# --- the view ---


def ended(view: ViewState, number: int, start: float, end: float, reason: str = "") -> None:
    trial = Trial(f"abcde_{number:05d}", {"x": number}, ONE, Status.RUNNING, attempt=1)
    view.update(start, trial)
    view.update(end, evolve(trial, status=Status.TERMINATED, reason=reason))


def test_there_is_no_eta_before_five_ends_of_trials_whose_length_is_not_known() -> None:
    view = ViewState(Plan(metric="loss"), 10)
    for number in range(4):
        ended(view, number, number, number + 1)
    assert view.eta(4.0) is None
    assert "ETA" not in block(view, now=4.0)
    ended(view, 4, 4.0, 5.0)
    assert view.eta(5.0) is not None


def test_where_trials_may_be_stopped_early_they_go_on_to_end_as_often_as_now() -> None:
    view = ViewState(PLAN, 15, can_stop_early=True)
    for number in range(5):
        ended(view, number, 0.0, 2.0 * (number + 1))
    assert view.eta(10.0) == pytest.approx(20.0)


def reporting(view: ViewState, number: int, now: float, step: int, taken_s: float) -> None:
    last = TrialResult({"loss": 1.0, "training_iteration": step, "time_total_s": taken_s})
    view.update(now, Trial(f"abcde_{number:05d}", {}, ONE, Status.RUNNING, attempt=1, last_result=last))


def test_where_all_trials_end_at_one_iteration_the_work_goes_on_at_its_pace() -> None:
    view = ViewState(PLAN, 4)  # of 27 iterations each
    view.update(0.0, Trial("abcde_00000", {}, ONE, Status.RUNNING, attempt=1))
    reporting(view, 0, 1.0, 1, 1.0)
    assert view.eta(1.0) is None  # hardly begun
    reporting(view, 0, 13.5, 13, 13.5)
    reporting(view, 1, 13.5, 14, 13.5)
    assert view.eta(13.5) == pytest.approx(13.5 * 3)


def test_work_of_earlier_runs_is_no_sign_of_speed() -> None:
    view = ViewState(PLAN, 12)
    view.restart(Trial(f"abcde_{number:05d}", {}, ONE, Status.TERMINATED) for number in range(10))
    view.update(5.0, Trial("abcde_00010", {}, ONE, Status.RUNNING, attempt=1))
    assert view.eta(6.0) is None
    view.update(15.0, Trial("abcde_00010", {}, ONE, Status.TERMINATED, attempt=1))
    assert view.eta(15.0) == pytest.approx(10.0)


def test_two_trials_that_ended_in_three_seconds_are_no_rate() -> None:
    view = ViewState(PLAN, 100)
    ended(view, 0, 0.0, 2.96)
    ended(view, 1, 0.0, 3.0)
    assert not re.search(r"trials/\w", block(view, now=3.0))
    assert "rate=" not in status_line(view, 3.0)


def test_the_rate_is_that_of_the_last_fifty_in_the_block_and_on_the_line() -> None:
    view = ViewState(PLAN, 1000)
    for number in range(300):
        ended(view, number, 0.0, number / 10)
    for number in range(300, 480):
        ended(view, number, 0.0, number - 269.0, "stopped early: worse")
    assert "60 trials/min" in block(view, now=210.0)
    assert "rate=60/min" in status_line(view, 210.0)
    assert "30 trials/min" in block(view, now=210.0, idle_s=50.0)  # none has ended since


@pytest.mark.parametrize(
    ("every_s", "expected"), [(0.05, "20 trials/s"), (4.0, "15 trials/min"), (600.0, "6 trials/h")], ids=str
)
def test_a_rate_is_said_in_the_unit_that_suits_it(every_s: float, expected: str) -> None:
    view = ViewState(PLAN, 1000)
    for number in range(100):
        ended(view, number, every_s * number, every_s * (number + 1))
    assert expected in block(view, now=every_s * 100)


def test_an_unlimited_sweep_says_so() -> None:
    view = ViewState(PLAN, None)
    for number in range(6):
        ended(view, number, number, number + 1)
    assert view.eta(6.0) is None
    assert "ETA unbounded" in block(view, now=1.0)
    assert status_line(view, 1.0).startswith("0:01 6/? ")


def test_retries_are_counted_once_each() -> None:
    view = ViewState(PLAN, 3)
    trial = Trial("abcde_00000", {}, ONE, Status.RUNNING, attempt=1)
    for step in (
        trial,
        evolve(trial, status=Status.PENDING, failures=1, reason="starts again after ValueError"),
        evolve(trial, attempt=2, failures=1),
        evolve(trial, status=Status.PENDING, attempt=2, failures=2),
        evolve(trial, status=Status.ERROR, attempt=3, failures=3),
    ):
        view.update(1, step)
    assert view.retries == 2
    assert len(view.by_state["failed"]) == 1
    assert view.used() == {}
    view.update(1, evolve(trial, status=Status.PENDING, attempt=3, failures=3))  # asked for by a person
    assert view.retries == 3


def test_only_parameters_that_differ_are_shown() -> None:
    view = ViewState(PLAN, 3)
    for number, config in enumerate([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "c": 5}]):
        view.update(1, Trial(f"abcde_{number:05d}", config, ONE))
    assert [*view.varying] == ["b", "c"]


def test_memory_of_the_board_is_one_word_per_ended_trial() -> None:
    view = ViewState(PLAN, 1000, NODES)
    for number in range(300):
        ended(view, number, number, number + 1)
    assert not view.trends
    assert {used for used, _ in view.used().values()} == {0}
    assert view.num_ended == 300


def test_a_failed_trial_that_is_started_again_is_no_longer_among_the_failures() -> None:
    view = ViewState(PLAN, 2)
    failed = [
        Trial(f"abcde_{n:05d}", {"lr": n}, Resources(), status=Status.ERROR, attempt=1, reason="ValueError: two")
        for n in range(2)
    ]
    view.restart(failed)
    assert [trial.number for trial in view.failures["ValueError: two"]] == [0, 1]
    view.update(1.0, evolve(failed[0], status=Status.PENDING, reason=""))
    assert [trial.number for trial in view.failures["ValueError: two"]] == [1]
    view.update(2.0, evolve(failed[1], status=Status.PENDING, reason=""))
    assert view.failures == {}


def test_a_sorted_table_has_the_best_last_report_first_and_infinities_and_nan_at_its_end() -> None:
    losses = [1.0, float("inf"), 3.0, float("nan"), 3, None]
    trials = [
        Trial(f"a_{number:05d}", {}, ONE, last_result=None if loss is None else TrialResult({"loss": loss}))
        for number, loss in enumerate(losses)
    ]
    for mode, wanted in (("max", [2, 4, 0, 1, 3, 5]), ("min", [0, 2, 4, 1, 3, 5])):
        reporter = CLIReporter(metric="loss", mode=mode, sort_by_metric=True)
        reporter._reported = trials
        lines = reporter._tables(ViewState(PLAN, 6))
        assert [int(line.split()[0][2:]) for line in lines[2:]] == wanted
