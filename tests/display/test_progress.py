"""The display: a block in place on a terminal and in a notebook, lines elsewhere, nothing at verbose=0."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from virtual_terminal import VirtualTerminal

from sweep.core.plan import Plan
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Cause, Status, Trial, evolve
from sweep.display.ending import Ending
from sweep.display.progress import Progress
from sweep.display.renderer import About, draw_block, draw_end, draw_trials, status_line
from sweep.display.reporters import CLIReporter
from sweep.display.screens import Notebook, style_of
from sweep.display.state import ViewState
from sweep.errors import MetricError

PLAN = Plan(metric="loss", mode="min", stop={"training_iteration": 27}, num_trials=100)
NODES = (Node(cpus=8, memory=24 << 30, devices=(Device("gpu0"), Device("gpu1"))),)
ONE = Resources((Bundle(cpu=2, gpu=1),))
SEVERAL = (("loss", "min"), ("size", "max"), ("seen", "obs"))


class Terminal(io.StringIO):
    """A terminal of which one sees the screen."""

    encoding = "utf-8"

    def __init__(self, columns: int = 110, rows: int = 30) -> None:
        super().__init__()
        self.window = VirtualTerminal(columns, rows)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.window.feed(text)
        return super().write(text)

    def screen(self) -> list[str]:
        return self.window.shown()

    def headers(self) -> list[str]:
        return [line for line in self.screen() if line.startswith("sweep ")]


class Broken(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


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

    @property
    def view(self) -> ViewState:
        assert self.progress._view is not None
        return self.progress._view

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

    def report(self, number: int, loss: float, step: int, **more: Any) -> None:
        result = TrialResult({"loss": loss, "training_iteration": step, **more})
        before = self.trials[f"abcde_{number:05d}"].best_result
        best = result if before is None or loss < before["loss"] else before
        self.put(number, last_result=result, best_result=best)

    def end(self, number: int, status: Status = Status.TERMINATED, reason: str = "") -> None:
        cause = Cause.EARLY if reason.startswith("stopped early") else Cause.NONE
        failures = int(status is Status.ERROR)
        self.put(number, status=status, reason=reason, cause=cause, placement=None, failures=failures)

    def trial(self, number: int, *losses: float) -> None:
        """Let a trial run, report and end."""
        self.run(number)
        for step, loss in enumerate(losses, 1):
            self.report(number, loss, step)
        self.end(number)

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


def ran(number: int, status: Status = Status.RUNNING, /, config: Any = None, **last: Any) -> Trial:
    """Return a trial whose last report is given."""
    result = TrialResult(last) if last else None
    return Trial(f"abcde_{number:05d}", config or {}, ONE, status, attempt=1, last_result=result, best_result=result)


def rows_of(lines: Sequence[Text], width: int) -> list[str]:
    """Return lines as they are on a terminal."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    return captured.get().splitlines()


def block(view: ViewState, now: float = 0.0, width: int = 110, about: About | None = None) -> str:
    return "\n".join(rows_of(draw_block(view, about or About("mnist"), width, 40, now), width))


def lines_display(verbose: int = 1, **more: Any) -> tuple[Progress, io.StringIO]:
    file = io.StringIO()
    return Progress(verbose, file=file, style="lines", has_thread=False, **more), file


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a display on a terminal, and that."""

    def show(columns: int = 110, lines: int = 30) -> tuple[Progress, Terminal]:
        for name, value in (("COLUMNS", str(columns)), ("LINES", str(lines)), ("TERM", "xterm")):
            monkeypatch.setenv(name, value)
        file = Terminal(columns, lines)
        return Progress(1, file=file, has_thread=False), file

    return show


# --- lines ---


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
        "sweep mnist   100 trials   searcher tpe (limit 4)   scheduler asha   seed 7   in /results/mnist",
        "0:01 00000 running   lr=0.1 act=gelu width=64",
        "0:02 00001 running   lr=0.01 width=128",
        "0:07 00000 finished   loss=0.04123 at step 3   in 0:06",
        "0:08 00001 stopped early   in 0:06   stopped early: loss=2 at 1, cutoff 1",
        "0:10 00002 failed   ValueError: lr more   sweep logs mnist 00002",
    ]


def test_verbose_2_adds_a_line_per_result_and_notices_go_to_standard_error_once_there_is_no_display(capsys):
    progress, file = lines_display(verbose=2)
    feed = Feed(progress)
    feed.run(0)
    feed.report(0, 0.5, 1)
    feed.run(1)
    progress.notice("something\x1b[2J is odd")
    feed.report(1, 0.25, 1)
    feed.end(0)
    progress.refresh()
    assert [" ".join(line.split()[1:5]) for line in file.getvalue().splitlines()[1:]] == [
        "00000 step 1 loss=0.5",
        "00001 running lr=0.01 width=128",
        "something is odd",
        "00001 step 1 loss=0.25",
        "00000 finished loss=0.5 at",
    ]
    progress.on_experiment_end([])
    progress.notice("late")
    assert capsys.readouterr().err == "sweep: late\n"
    Progress(0).notice("nothing")
    assert capsys.readouterr() == ("", "")


def test_a_pipe_gets_a_status_line_each_thirty_seconds() -> None:
    time = [0.0]
    progress, file = lines_display(clock=lambda: time[0])
    feed = Feed(progress).some()
    for time[0] in (29.0, 31.0, 45.0, 62.0):
        progress.refresh()
    counts = "running 2 · paused 0 · waiting 1 · finished 0 · stopped early 0 · failed 0"
    assert [line for line in file.getvalue().splitlines() if "best" in line] == [
        f"{at} 0/100 trials   {counts}   best  loss 0.04123  trial 00000 at step 3" for at in ("0:37", "1:08")
    ]
    feed.end(0)
    feed.end(1)
    assert status_line(feed.view, 70.0).endswith("   waiting: needs 1 GPU; 2 of 2 held by 00000, 00001")


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


@pytest.mark.parametrize(
    "options",
    [
        {"file": Broken(), "style": "lines", "has_thread": False},
        {"file": Broken(), "style": "terminal", "has_thread": False},
        {"file": None, "has_thread": False},
        {"file": None, "has_thread": True},
    ],
    ids=["closed pipe", "closed terminal", "no standard output", "no standard output, drawn by a thread"],
)
def test_where_nothing_can_be_written_the_display_is_silent_and_harms_nothing(monkeypatch, options):
    monkeypatch.setattr(sys, "stdout", None)  # as in a process that is started with it closed
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    feed = Feed(Progress(2, **options)).some()
    feed.progress.notice("something")
    feed.finish()
    assert not failures


def test_when_ctrl_c_has_ended_the_reader_of_the_pipe_the_rest_goes_to_standard_error(capsys):
    ending = Ending(30.0)
    progress, _ = lines_display()
    feed = Feed(progress, ending=ending).some()
    ending.hear(1)
    progress._screen.file = Broken()
    progress.refresh()
    feed.finish()
    shown = capsys.readouterr().err
    assert shown.count("STOPPING") == 1
    assert shown.count("resume: sweep resume mnist") == 1


@pytest.mark.parametrize("is_given", [False, True], ids=["found at the first step", "given at setup"])
def test_after_a_resume_old_trials_count_but_are_no_news(is_given: bool) -> None:
    progress, file = lines_display()
    old = {f"abcde_{n:05d}": Trial(f"abcde_{n:05d}", {"lr": n}, ONE, Status.TERMINATED) for n in range(40)}
    feed = Feed(progress, **({"trials": [*old.values()]} if is_given else {}))
    feed.trials |= old
    feed.run(40)
    progress.refresh()
    assert file.getvalue().splitlines()[1:] == ["0:01 00040 running   lr=1e-41 act=gelu width=2624"]
    assert feed.view.num_ended == 40


def test_the_thread_draws_by_itself_and_ends_with_the_sweep() -> None:
    drawn = threading.Event()

    class File(io.StringIO):
        def write(self, text: str) -> int:
            if " running " in text:
                drawn.set()
            return super().write(text)

    file = File()
    feed = Feed(Progress(1, file=file))
    feed.run(0)
    assert drawn.wait(20)
    feed.end(0)
    feed.finish()
    assert not [thread for thread in threading.enumerate() if thread.name == "sweep-progress"]
    assert "finished" in file.getvalue()
    feed.finish()  # a second end is harmless


def test_the_style_follows_where_the_output_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert style_of(io.StringIO()) == "lines"
    assert style_of(Terminal()) == "terminal"
    monkeypatch.setenv("TERM", "dumb")
    assert style_of(Terminal()) == "lines"


# --- a terminal ---


def test_a_terminal_shows_one_block_in_place(terminal: Any) -> None:
    progress, file = terminal()
    Feed(progress).some()
    screen = file.screen()
    assert sum("sweep mnist" in line and "running" in line for line in screen) == 1
    text = "\n".join(screen)
    assert "0/100 trials" in text
    assert "running 2 · paused 0 · waiting 1 · finished 0 · stopped early 0 · failed 0" in text
    assert "CPU 4/8   GPU 2/2   last report 0s ago" in text
    assert "best  loss 0.04123  trial 00000 at step 3   lr=0.1 width=64" in text
    heading = next(line for line in screen if line.startswith("trial"))
    assert heading.split() == ["trial", "state", "step", "loss", "lr", "width", "time", "where"]
    row = next(line for line in screen if line.startswith("00000"))
    assert row.split() == ["00000", "running", "3/27", "0.04123", "0.1", "64", "0:05", "gpu0"]
    waiting = next(line for line in screen if line.startswith("00002"))
    assert waiting.endswith("needs 1 GPU; 2 of 2 held by 00000, 00001")
    assert "^C once: stop, to be resumed   twice: kill" in text
    assert "sweep resume" not in text  # that is said at the end


def test_of_lanes_a_terminal_shows_how_many_are_taken(terminal: Any) -> None:
    progress, file = terminal()
    feed = Feed(progress, nodes=(Node(cpus=8, custom={"lane": 4.0}),))
    feed.put(0, resources=Resources((Bundle(custom=(("lane", 1.0),)),)))
    feed.run(0)
    progress.refresh()
    assert "lane 1/4   no report yet" in file.screen()


def test_the_last_frame_stays_with_the_best_config_and_the_failures_by_message(terminal: Any) -> None:
    progress, file = terminal()
    feed = Feed(progress).some()
    feed.end(0)
    for number in (3, 4, 5):
        feed.run(number)
        feed.end(number, Status.ERROR, f"CUDA out of memory: {number}.5 GiB asked for")  # alike but for a number
    feed.finish()
    screen = [line for line in file.screen() if line]
    assert screen[0].startswith("sweep mnist   interrupted after 0:13")
    assert screen[2:] == [
        "best  loss 0.04123  trial 00000 at step 3",
        "best config:",
        "  lr: 0.1",
        "  act: gelu",
        "  width: 64",
        "failed 3 x CUDA out of memory: 3.5 GiB asked for   trials 00003 00004 00005",
        "what they printed: sweep logs mnist 00003",
        "2 trials had not ended",
        "resume: sweep resume mnist",
    ]
    assert file.window.is_cursor_visible


def test_a_sweep_that_is_being_stopped_says_so_in_the_next_frame_also_when_nothing_reports(terminal: Any) -> None:
    time = [0.0]
    ending = Ending(30.0, clock=lambda: time[0])
    progress, file = terminal(80)
    feed = Feed(progress, ending=ending).some()
    assert "STOPPING" not in "\n".join(file.screen())
    ending.hear(1)
    for time[0], left in ((0.0, "30s"), (12.0, "18s")):
        file.window.echo("\x03\x03")
        progress.refresh()
        screen = file.screen()
        assert screen[0].startswith("sweep mnist   stopping ")
        assert f"STOPPING  in {left} what still runs is killed; ^C again kills it now" in screen
        assert "waiting for 00000 00001 to end at the next report" in screen
        assert not any("^C once" in line or "^C^C" in line for line in screen)
    ending.hear(2)
    progress.refresh()
    assert any(line.startswith("KILLING") for line in file.screen())
    feed.finish()
    assert file.screen()[0].startswith("sweep mnist   interrupted after ")
    assert sum("resume" in line for line in file.screen()) == 1


def test_how_to_resume_is_not_said_where_that_cannot_help(terminal):
    progress, file = terminal()
    ending = Ending()
    feed = Feed(progress, ending=ending, num_trials=5)
    ending.error = MetricError("nobody reports it")
    feed.finish()
    assert file.screen()[0].startswith("sweep mnist   failed after ")
    assert "resume" not in "".join(file.screen())


def test_what_else_is_printed_stands_above_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Terminal()
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setattr(sys, "stderr", file)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "110"), ("LINES", "30")):
        monkeypatch.setenv(name, value)
    progress = Progress(1, has_thread=False)
    feed = Feed(progress)
    print("before the first frame")
    feed.some()
    print("from a callback")
    sys.stderr.writelines(["a warning", "\n"])
    assert file.screen()[:3] == ["before the first frame", "from a callback", "a warning"]
    assert len(file.headers()) == 1
    print("half a line", end="")
    progress.leave()  # as when the interpreter ends without the end of the sweep
    assert sys.stdout is file
    assert file.screen()[3] == "half a line"
    print("afterwards")
    assert file.screen()[-2:] == ["afterwards", ""]
    assert len(file.headers()) == 1


def test_escape_sequences_in_names_and_messages_reach_no_terminal(terminal: Any) -> None:
    progress, file = terminal()
    feed = Feed(progress, name="\x1b[2Jevil")
    for number, value in enumerate(["\x1b]0;title\x07a", "\x1b[1;1Hb"]):
        feed.put(number, config={"p\x1b[3J": value}, status=Status.RUNNING, attempt=1)
    feed.end(0, Status.ERROR, "\x1b[2J\x07boom\rover")
    progress.refresh()
    feed.finish()
    shown = file.getvalue()
    assert "boom" in shown
    assert not re.search(r"\x1b\[2J|\x1b\]0|\x07|\x1b\[1;1H|\x1b\[3J", shown)


def test_a_terminal_that_lacks_signs_gets_others() -> None:
    class File(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    raw = io.BytesIO()
    file = File(raw, encoding="ascii")
    Feed(Progress(1, file=file, style="terminal", has_thread=False), name="größe").some()
    file.flush()
    assert "CPU 4/8" in raw.getvalue().decode("ascii")


@pytest.mark.parametrize("columns", [5, 20, 40, 79, 200])
@pytest.mark.parametrize("lines", [1, 5, 24])
def test_no_block_is_larger_than_the_terminal(terminal: Any, columns: int, lines: int) -> None:
    progress, file = terminal(columns, lines)
    feed = Feed(progress, name="n" * 30, searcher="s" * 30, experiment_dir="/d" * 30)
    file.write("$ python train.py\n")
    feed.some()
    feed.run(3)
    feed.end(3, Status.ERROR, "漢字" * 50)
    for _ in range(3):
        progress.refresh()
    screen = file.screen()
    assert len(screen) <= 1 + (columns < 17) * 3 + lines
    assert max(map(len, screen)) <= columns


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_no_path_or_command_is_cut_and_many_parameters_take_a_few_rows(columns):
    feed = Feed(lines_display()[0]).some()
    for number in range(3, 5):
        feed.put(number, config={f"model.layers.{k}.dropout": number + k / 7 for k in range(200)})
        feed.run(number)
    feed.report(4, 0.0, 1)
    feed.end(3, Status.ERROR, "ValueError: " + "x" * 90)
    about = About("a-long-name-of-an-experiment", "/home/someone/of/some/long/path/sweep_results/a-long-name")
    rows = block(feed.view, width=columns, about=about)
    shown = re.sub(r"\s", "", rows)
    assert about.directory in shown
    assert "sweeplogsa-long-name-of-an-experiment00003" in shown
    assert 0 < shown.count("model.layers.") < 16
    assert any(about.directory in line.plain for line in draw_end(feed.view, about, now=1, unfinished=0))


# --- a notebook ---


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
    feed.finish()
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


# --- which is best ---


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        (
            [(0.5, 0.4), (0.1, 0.9)],
            [
                "best  loss 0.4  trial 00000 at step 2",
                'better earlier  loss 0.1  trial 00001 at step 1   (scope="all", --scope all)',
            ],
        ),
        ([(0.5, 0.4, 0.4)], ["best  loss 0.4  trial 00000 at step 3", "best config:"]),
        ([(0.5, float("nan"))], ['earlier  loss 0.5  trial 00000 at step 1   (scope="all", --scope all)']),
    ],
    ids=["another was better", "none was better", "no last report has a number"],
)
def test_the_last_frame_has_the_best_last_report_and_names_what_had_been_better(losses, wanted):
    progress, file = lines_display()
    feed = Feed(progress)
    for number, some in enumerate(losses):
        feed.trial(number, *some)
    progress.refresh()
    assert "earlier" not in block(feed.view)
    feed.finish()
    lines = file.getvalue().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("running "))
    assert lines[first + 1 :][: len(wanted)] == wanted


def test_a_trial_that_begins_anew_counts_by_nothing_until_it_reports():
    feed = Feed(lines_display()[0])
    for number, loss in ((0, 0.1), (1, 0.5)):
        feed.trial(number, loss)
    assert (feed.view.best.trial.number, feed.view.best.value) == (0, 0.1)
    feed.put(0, status=Status.PENDING, last_result=None, best_result=None)
    assert (feed.view.best.trial.number, feed.view.best.value) == (1, 0.5)
    feed.run(0)
    feed.report(0, 0.3, 1)
    assert (feed.view.best.trial.number, feed.view.best.value) == (0, 0.3)


def test_of_several_objectives_the_display_shows_the_pareto_set_and_no_best() -> None:
    progress, file = lines_display()
    feed = Feed(progress, objectives=SEVERAL)
    for number, (loss, size) in enumerate(((0.1, 1.0), (0.2, 3.0), (0.3, 2.0))):
        feed.run(number)
        feed.report(number, 0.01, 1, size=9.0, seen=7)
        feed.report(number, loss, 2, size=size, seen=7)
        feed.end(number)
    front = ["Pareto set  2 trials  by loss (min), size (max)", "  00000  loss=0.1 size=1", "  00001  loss=0.2 size=3"]
    assert "\n".join(front) in block(feed.view)
    heading, *rows = [line.plain for line in draw_trials(feed.view, 110, 20, 9.0)]
    assert heading.split()[2:6] == ["step", "loss", "size", "seen"]
    assert [("★" in row, row[:5]) for row in rows] == [(True, "00000"), (True, "00001"), (False, "00002")]
    for number in range(3, 15):
        feed.run(number)
        feed.report(number, 0.1, 1, size=1.0)
    feed.finish()
    assert file.getvalue().splitlines()[-4:] == [
        "  00008  loss=0.1 size=1",
        "  all of them: sweep best mnist",
        "12 trials had not ended",
        "resume: sweep resume mnist",
    ]


def test_a_sorted_table_has_the_best_last_report_first_and_infinities_and_nan_at_its_end() -> None:
    losses = [1.0, float("inf"), 3.0, float("nan"), 3, None]
    trials = [ran(number, **({} if loss is None else {"loss": loss})) for number, loss in enumerate(losses)]
    for mode, wanted in (("max", [2, 4, 0, 1, 3, 5]), ("min", [0, 2, 4, 1, 3, 5])):
        reporter = CLIReporter(metric="loss", mode=mode, sort_by_metric=True)
        reporter._reported = trials
        lines = reporter._tables(ViewState(PLAN, 6))
        assert [int(line.split()[0][6:]) for line in lines[2:]] == wanted


# --- how far it is ---


@pytest.mark.parametrize(
    ("limit", "num_trials", "ended", "steps", "expected", "bar"),
    [
        (None, 10, 4, (), None, 12),  # too few to tell
        (None, 10, 5, (), 12.0, 15),
        (None, 10, 5, (3,), 12.0, 15),  # nobody knows how long it goes
        (27, 4, 0, (13,), None, 3),
        (27, 4, 0, (13, 14), 36.0, 7),
        (27, 10, 2, (), 48.0, 6),
        (27, 2, 2, (), None, 30),
        (27, None, 6, (), None, 0),
    ],
)
def test_the_work_goes_on_at_its_mean_pace_and_the_bar_moves_while_trials_run(
    limit, num_trials, ended, steps, expected, bar
):
    view = ViewState(Plan(metric="loss", stop={"training_iteration": limit} if limit else {}), num_trials)
    view.update(0.0, ran(99, Status.PENDING))
    for number in range(ended):
        view.update(1.0, ran(number, Status.TERMINATED))
    for number, step in enumerate(steps, ended):
        view.update(1.0, ran(number, training_iteration=step))
    shown = block(view, now=12.0)
    assert view.eta(12.0) == (None if expected is None else pytest.approx(expected))
    assert ("ETA ~" in shown) == (expected is not None)
    assert len(re.findall("[█▓]", shown)) == bar  # of 30
    assert f"{ended}/{num_trials or '?'} trials" in shown


def test_what_went_before_counts_as_it_was_and_each_retry_once():
    view = ViewState(PLAN, 12)
    earlier = [evolve(ran(number, Status.ERROR), reason="ValueError: two") for number in range(2)]
    view.restart([*earlier, *(ran(number, Status.TERMINATED) for number in range(2, 10))])
    view.update(5.0, ran(10))
    assert view.eta(6.0) is None  # work of earlier runs is no sign of speed
    view.update(15.0, ran(10, Status.TERMINATED))
    assert view.eta(15.0) == pytest.approx(10.0)
    for number in range(2):
        assert [trial.number for trial in view.failures["ValueError: two"]] == [0, 1][number:]
        view.update(1.0, evolve(earlier[number], status=Status.PENDING, reason=""))
    assert view.failures == {}
    before, trial = view.retries, ran(11)
    for step in (
        trial,
        evolve(trial, status=Status.PENDING, failures=1, reason="starts again after ValueError"),
        evolve(trial, attempt=2, failures=1),
        evolve(trial, status=Status.PENDING, attempt=2, failures=2),
        evolve(trial, status=Status.ERROR, attempt=3, failures=3),
    ):
        view.update(1, step)
    assert (view.retries - before, len(view.by_state["failed"])) == (2, 1)
    view.update(1, evolve(trial, status=Status.PENDING, attempt=3, failures=3))  # asked for by a person
    assert view.retries - before == 3
