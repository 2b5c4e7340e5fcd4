"""Trainables whose module has no file: of a notebook's cells, of `python -c`, of standard input, of a prompt."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sweep

PREPARE = """
import sweep

nodes = sweep.init(num_cpus=2, num_gpus=0)
"""

BASE = """
class Base(sweep.Trainable):
    def setup(self, config):
        self.x = config["x"]
    def step(self):
        return {"loss": self.x, "done": self.iteration >= 1}
    def save_checkpoint(self, checkpoint_dir):
        return {"x": self.x}
    def load_checkpoint(self, checkpoint):
        self.x = checkpoint["x"]
"""

RUN = """
arguments = {"metric": "loss", "mode": "min", "verbose": 0}
space = {"x": sweep.grid_search([2.0, 1.0])}
print("best", sweep.run(Base, config=space, **arguments).best_config)
"""

TUNER = """
configs = {"tune_config": sweep.TuneConfig(metric="loss", mode="min"), "run_config": sweep.RunConfig(verbose=0)}
print("tuned", sweep.Tuner(Base, param_space=space, **configs).fit().get_best_result().config)
"""

SCRIPT = PREPARE + BASE + RUN + TUNER


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        pytest.param(["-c", SCRIPT], "", marks=pytest.mark.slow, id="command"),
        pytest.param([], SCRIPT, id="stdin"),
        pytest.param(["-"], SCRIPT, marks=pytest.mark.slow, id="dash"),
        pytest.param(["-i"], SCRIPT, marks=pytest.mark.slow, id="prompt"),
        pytest.param(["-c", f"exec({SCRIPT!r})"], "", marks=pytest.mark.slow, id="exec"),
        pytest.param(["-c", f"exec({SCRIPT!r}, {{}})"], "", id="exec in an empty namespace"),
        pytest.param(
            ["-c", f"exec({SCRIPT!r}, {{'__name__': 'of_nobody'}})"],
            "",
            marks=pytest.mark.slow,
            id="exec under another name",
        ),
    ],
)
def test_a_class_trainable_runs_although_its_code_is_in_no_file(tmp_path, options, typed):
    ended = subprocess.run(
        [sys.executable, *options], input=typed, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.stdout.splitlines() == ["best {'x': 1.0}", "tuned {'x': 1.0}"]


CELLS = {
    "imports": PREPARE + "added = 0",
    "a class": BASE,
    "its run": RUN,
    "its tuner": TUNER,
    "a subclass in another cell, that uses a variable of a third": """
        class Sub(Base):
            def step(self):
                return super().step() | {"added": added}

        print(sweep.run(Sub, config=space, **arguments).best_result["added"])
    """,
    "the variable and the class are changed": """
        added = 7

        class Base(sweep.Trainable):
            def step(self):
                return {"loss": 100 + self.config["x"], "done": True}

        print(sweep.run(Base, config=space, **arguments).best_result["loss"])
    """,
    "a subclass of what the class was": """
        r = sweep.run(Sub, config=space, **arguments)
        print(r.best_result["loss"], r.best_result["added"])
    """,
    "objects of the cell's classes": """
        import dataclasses
        import enum

        @dataclasses.dataclass
        class Optimizer:
            lr: float

        class Color(enum.Enum):
            RED = 1
            BLUE = 2

        def train(config, shared):
            assert type(config["optimizer"]) is Optimizer
            assert type(shared) is Optimizer
            assert config["color"] is Color.RED or config["color"] is Color.BLUE
            sweep.report(loss=config["optimizer"].lr + shared.lr)

        objects = {"optimizer": Optimizer(1.0), "color": sweep.grid_search(list(Color))}
        trainable = sweep.with_parameters(train, shared=Optimizer(2.0))
        print(sweep.run(trainable, config=objects, **arguments).best_result["loss"])
    """,
    "they come back from a checkpoint": """
        class Keeps(sweep.Trainable):
            def setup(self, config):
                self.optimizer = Optimizer(4.0)
            def step(self):
                if self.iteration == 1 and self.optimizer.lr == 3.0:
                    raise RuntimeError("once")
                self.optimizer.lr -= 1.0
                return {"loss": self.optimizer.lr, "done": self.iteration >= 2}
            def save_checkpoint(self, checkpoint_dir):
                return {"optimizer": self.optimizer}
            def load_checkpoint(self, checkpoint):
                assert type(checkpoint["optimizer"]) is Optimizer
                self.optimizer = Optimizer(checkpoint["optimizer"].lr + 10)

        saving = sweep.CheckpointConfig(checkpoint_frequency=1)
        print(sweep.run(Keeps, max_failures=1, checkpoint_config=saving, **arguments).trials[0].last_result["loss"])
    """,
    "a failed trial is a warning, and the cell has its analysis": """
        import warnings

        def fails(config):
            sweep.report(loss=1 / config["x"])

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            r = sweep.run(fails, config={"x": sweep.grid_search([0, 1])}, **arguments)
        said = str(caught[-1].message).splitlines()[0]
        print(r.best_result["loss"], caught[-1].lineno == 8, said, r is sweep.last_analysis())
    """,
    "what is displayed": """
        r = sweep.run(Sub, config=space, metric="loss", mode="min")
        r
    """,
}


@pytest.mark.slow
def test_class_trainables_of_notebook_cells_run(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    sources = [textwrap.dedent(source) for source in CELLS.values()]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbclient.NotebookClient(
        book, timeout=60, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = dict(zip(CELLS, (cell.outputs for cell in book.cells), strict=True))
    printed = {
        what: "".join(one.text for one in found if one.output_type == "stream").split("\n")[0]
        for what, found in outputs.items()
        if what != "what is displayed"
    }
    assert list(printed.values()) == [
        "",
        "",
        "best {'x': 1.0}",
        "tuned {'x': 1.0}",
        "0",
        "101.0",
        "1.0 7",
        "3.0",
        "11.0",
        "1.0 True 1 of 2 trials failed: True",
    ]
    live, shown = outputs["what is displayed"]
    assert "ended after" in live.data["text/html"]
    assert "best" in shown.data["text/html"]


EXAMPLE = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


@pytest.mark.docs
def test_the_notebook_of_the_examples_runs_and_is_kept_without_outputs(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("SWEEP_QUICK_EXAMPLE", "1")
    book = nbformat.read(EXAMPLE, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)
    if not hasattr(sweep.ExperimentAnalysis, "plot"):
        assert "analysis.plot" in book.cells.pop().source
    nbclient.NotebookClient(
        book, timeout=60, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    parabola, torch = (cell.outputs for cell in book.cells if "sweep.run" in cell.get("source", ""))
    for outputs, figures in ((parabola, 1), (torch, 2)):  # trials of one report have no curves
        live, shown = outputs[-2:]  # Optuna may warn that no widgets are installed
        assert "ended after" in live.data["text/html"]
        assert live.data["text/html"].count("<svg") == 1
        assert shown.data["text/html"].count("<svg") == figures
    frames = [cell.outputs[0].data["text/plain"] for cell in book.cells if "dataframe()" in cell.get("source", "")]
    assert "config/lr" in frames[0]
    assert "pid" not in frames[0]


INTERRUPTED = (
    BASE.replace("self.iteration >= 1", "False")
    + """
for name in ("stopped", "next"):
    sweep.run(Base, config={"x": 1.0}, metric="loss", mode="min", name=name)
"""
)
AFTERWARDS = """
analysis = sweep.last_analysis()
print("ended", analysis.trials[0].status, analysis.trials[0].checkpoint is not None, analysis.interrupted)
"""


@pytest.mark.slow
def test_interrupting_the_kernel_saves_and_stops_and_the_cell_keeps_one_output(tmp_path):
    manager = pytest.importorskip("jupyter_client").MultiKernelManager(connection_dir=str(tmp_path))  # as a server does
    kernel_id = manager.start_kernel(kernel_name="python3", cwd=str(tmp_path))
    kernel = manager.get_kernel(kernel_id)
    client = kernel.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        client.execute(PREPARE + INTERRUPTED)
        kinds, pages, said, is_interrupted, errors = [], [], "", False, []
        while True:
            message = client.get_iopub_msg(timeout=30)
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data"):
                kinds.append(kind)
                pages.append(content["data"]["text/html"])
                if "best  " in pages[-1] and not is_interrupted:
                    is_interrupted = True
                    kernel.interrupt_kernel()
            elif kind == "stream":
                said += content["text"]
            elif kind == "error":
                errors.append(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle" and errors and not said:
                client.execute(AFTERWARDS)  # only now: the kernel drops what comes before
            elif kind == "status" and content["execution_state"] == "idle" and said:
                break
    finally:
        client.stop_channels()
        manager.shutdown_kernel(kernel_id, now=True)
    assert said == "ended PENDING True True\n"
    (shown,) = errors
    assert shown == ["SweepInterrupted: interrupted; everything is kept, and sweep.last_analysis() has what there is"]
    assert not (tmp_path / "sweep_results" / "next").exists()
    assert kinds == ["display_data", *["update_display_data"] * (len(kinds) - 1)]
    assert "Interrupt the kernel once: stop" in pages[0]
    assert f'<button type="button" data-kernel="{kernel_id}"' in pages[0]
    assert "<button" not in pages[-1]
    assert "interrupted after" in pages[-1]
    assert "resume=True" in pages[-1]
    assert "00000  " in pages[-1]
    assert "<svg" in pages[-1]
