"""What a program logs with libraries is given to one function, wherever it runs."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pytest

from sweep.programs import hooks
from sweep.programs.wandb_variables import prepare_wandb

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "sweep" / "programs"
# A library of one file, as the hooks know it.
WRITER = """
class SummaryWriter:
    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        if tag == "wrong":
            raise ValueError(tag)
        self.last = tag
"""
QUIET = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}


def made_library(directory: Path) -> None:
    package = directory / "tensorboardX"
    package.mkdir()
    (package / "__init__.py").write_text("from .writer import SummaryWriter\n")
    (package / "writer.py").write_text(WRITER)


def run_python(code: str, directory: Path, **environ: str) -> list[str]:
    """Run code in an interpreter that has `hooks` and what stands in the directory; return what it printed."""
    script = directory / "script.py"
    begin = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); import hooks; sys.path.pop(0); out = []\n"
    script.write_text(begin + textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=directory,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Listener:
    """The other end of `connect`: keeps what comes, and answers."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "socket")
        self.messages: list[dict[str, object]] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as lines:
            for line in lines:
                self.messages.append(json.loads(line))
                lines.write(b"{}\n")
                lines.flush()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def counts(self) -> Counter[tuple[object, str]]:
        """How often each metric came from which source."""
        return Counter((message["source"], name) for message in self.messages for name in message["values"])  # type: ignore[attr-defined]


@pytest.fixture
def listener(tmp_path):
    listener = Listener(tmp_path)
    yield listener
    listener.close()


def run_child(command: list[str], directory: Path, listener: Listener, **environ: str) -> str:
    """Run a command as a trial's program; return what it printed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PROGRAMS / "injected"), str(directory)]),
            "SWEEP_SOCKET": listener.path,
            "SWEEP_TRIAL_DIR": str(directory),
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_both_files_stand_alone_and_are_of_python_3_8():
    for path in (PROGRAMS / "hooks.py", PROGRAMS / "injected" / "sitecustomize.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        imported = {
            name.name if isinstance(node, ast.Import) else node.module
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in node.names
        }
        assert not {name for name in imported if name.split(".")[0] in ("sweep", "searchers")}
        top = {
            node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }
        assert top <= {"__future__", "_thread", "os", "sys"}


def test_a_library_is_hooked_before_and_after_its_import_and_its_errors_and_ours_pass(tmp_path):
    made_library(tmp_path)
    code = """
    def emit(*given):
        if given[0] == {"stop": 1}:
            raise KeyboardInterrupt("stopped")
        out.append(given)
    {}
    writer = SummaryWriter()
    writer.add_scalar("loss", 0.5, 3)
    writer.add_scalar(tag="acc", scalar_value=1, global_step=None)
    for tag, kind in (("wrong", ValueError), ("stop", KeyboardInterrupt)):
        try:
            writer.add_scalar(tag, 1)
            print("nothing")
        except kind as error:
            print(repr(error), writer.last)
    writer.add_scalar("text", "not a number")
    hooks.install(lambda *given: print("again", *given))
    writer.add_scalar("last", 2, 4)
    print(out, hooks.installed())
    import pickle
    assert pickle.loads(pickle.dumps(SummaryWriter.add_scalar)) is SummaryWriter.add_scalar
    import os
    child = os.fork()
    if not child:
        writer.add_scalar("of a fork", 1)
        os._exit(0)
    os.waitpid(child, 0)
    """
    early = "hooks.install(emit); from tensorboardX import SummaryWriter"
    late = "from tensorboardX import SummaryWriter; hooks.install(emit)"
    printed = [run_python(code.replace("{}", line), tmp_path) for line in (early, late)]
    assert printed[0] == printed[1]
    assert printed[0] == [
        "ValueError('wrong') acc",
        "KeyboardInterrupt('stopped') stop",
        "again {'last': 2} 4 tensorboardX False",
        "[({'loss': 0.5}, 3, 'tensorboardX', False), ({'acc': 1}, None, 'tensorboardX', False)] {'tensorboardX'}",
    ]


def test_only_scalars_are_numbers():
    import numpy as np

    given = {"a": np.float32(0.5), "b": np.arange(1), "c": np.arange(2), "d": "1", "e": None, "f": {"g": 1, "h": "x"}}
    assert hooks._numbers(given, "wandb") == {"a": 0.5, "b": 0, "f.g": 1}
    assert hooks._numbers({"f": {"g": np.True_}}, "sweep") == {"f/g": True}


def test_a_rank_is_read_from_what_the_program_set(monkeypatch):
    for name in hooks.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert hooks.rank() == 0
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert hooks.rank() == 3
    monkeypatch.setitem(hooks._inherited, "SLURM_PROCID", "3")
    assert hooks.rank() == 0
    monkeypatch.setenv("RANK", "1")
    assert hooks.rank() == 1


def test_an_interpreter_sends_what_it_logs_and_runs_the_users_sitecustomize(tmp_path, listener):
    made_library(tmp_path)
    (tmp_path / "sitecustomize.py").write_text("import sys; print('mine'); sys.path.append('/mine')\n")
    code = (
        "from tensorboardX import SummaryWriter; SummaryWriter().add_scalar('loss', float('inf'), 1);"
        "import sitecustomize, sys; print(sitecustomize.__file__); assert '/mine' in sys.path"
    )
    printed = run_child([sys.executable, "-c", code], tmp_path, listener)
    assert printed.splitlines() == ["mine", str(tmp_path / "sitecustomize.py")]
    assert listener.messages == [
        {"values": {"loss": float("inf")}, "step": 1, "source": "tensorboardX", "whole": False}
    ]
    # The other ranks of a launcher give nothing, and print elsewhere.
    assert run_child([sys.executable, "-c", code], tmp_path, listener, RANK="1") == "mine\n"
    assert len(listener.messages) == 1
    assert (tmp_path / "rank1.log").read_text() == f"{tmp_path / 'sitecustomize.py'}\n"
    # A socket that is gone is silence.
    printed = run_child([sys.executable, "-c", code], tmp_path, listener, SWEEP_SOCKET=str(tmp_path / "nothing"))
    assert printed.splitlines() == ["mine", str(tmp_path / "sitecustomize.py")]


def test_wandb_is_offline_unless_the_user_has_said_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    config = {"lr": 1e-05, "net": {"depth": 3}, "names": ["a: b", 1e300], "odd\n": None}

    def prepared(**environ: str) -> dict[str, str]:
        given = {"HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc"), "WANDB_CONFIG_DIR": str(tmp_path), **environ}
        prepare_wandb(given, config, str(tmp_path), "trial_1", "my_sweep", str(tmp_path / "a" / "b"))
        return given

    environ = prepared()
    assert environ["WANDB_MODE"] == "offline"
    assert (environ["WANDB_NAME"], environ["WANDB_RUN_GROUP"], environ["WANDB_DIR"]) == (
        "trial_1",
        "my_sweep",
        str(tmp_path),
    )
    from ruamel.yaml import YAML

    with open(environ["WANDB_SWEEP_PARAM_PATH"]) as file:
        assert YAML(typ="safe").load(file) == {key: {"value": value} for key, value in config.items()}
    given = {"WANDB_MODE": "disabled", "WANDB_DIR": "/elsewhere"}
    assert prepared(**given).items() >= given.items()
    assert "WANDB_MODE" not in prepared(WANDB_API_KEY="x")
    with monkeypatch.context() as patch:
        patch.setenv("WANDB_MODE", "online")
        assert "WANDB_MODE" not in prepared()
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password x\n")
    assert "WANDB_MODE" not in prepared()
    assert prepared(WANDB_BASE_URL="https://wandb.example:8080")["WANDB_MODE"] == "offline"
    (tmp_path / "settings").write_text("[default]\nmode = online\n")
    assert "WANDB_MODE" not in prepared(WANDB_BASE_URL="https://wandb.example:8080")
    (tmp_path / ".git").mkdir()
    assert prepared()["WANDB_PROJECT"] == f"{tmp_path.name}-a_b"
    (tmp_path / "settings").write_text("[default]\nproject = mine\n")
    assert "WANDB_PROJECT" not in prepared()


WANDB = """
import wandb
hooks.install(lambda *given: out.append(given))
run = wandb.init(project="x")
wandb.log({"loss": 1, "net": {"norm": 2.0}, "table": wandb.Table(columns=["a"], data=[[1]]), "text": "x"})
wandb.log({"a": 1}, commit=False)
wandb.log({"b": 2})
run.log({"a": 1}, step=10)
run.log({"a": 1}, step=11, commit=False)
run.log({"b": 2}, step=12)
run.log({"last": 1}, commit=False)
run.summary["best"] = 3
wandb.finish()
print(out)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_wandb_gives_its_rows(tmp_path, mode):
    pytest.importorskip("wandb")
    (printed,) = run_python(WANDB, tmp_path, **{**QUIET, "WANDB_MODE": mode})
    assert ast.literal_eval(printed) == [
        ({"loss": 1, "net.norm": 2.0}, None, "wandb", True),
        ({"a": 1}, None, "wandb", False),
        ({"b": 2}, None, "wandb", True),
        ({"a": 1}, 10, "wandb", False),
        ({"a": 1}, 11, "wandb", False),
        ({"b": 2}, 12, "wandb", False),
        ({"last": 1}, None, "wandb", False),
        ({"best": 3}, None, "wandb", False),
    ]


@pytest.mark.slow
def test_the_values_of_the_sweep_win_in_wandb_config(tmp_path):
    pytest.importorskip("wandb")
    code = """
    import argparse, os, wandb
    from sweep.programs.wandb_variables import prepare_wandb
    prepare_wandb(os.environ, {"lr": 1e-05, "net": {"depth": 3}}, ".", "trial_1", "my_sweep", ".")
    for config in (None, {"lr": 0.5, "net": {"depth": 1, "width": 2}}, argparse.Namespace(lr=0.5, other=1)):
        run = wandb.init(project="x", config=config)
        wandb.config.update({"lr": 0.7, "mine": 1})
        out.append(dict(wandb.config))
        wandb.finish()
    print([*out, run.name, run.group])
    """
    (printed,) = run_python(code, tmp_path, **QUIET)
    assert ast.literal_eval(printed) == [
        {"lr": 1e-05, "net": {"depth": 3}, "mine": 1},
        {"lr": 1e-05, "net": {"depth": 3, "width": 2}, "mine": 1},
        {"lr": 1e-05, "net": {"depth": 3}, "other": 1, "mine": 1},
        "trial_1",
        "my_sweep",
    ]


@pytest.mark.slow
def test_mlflow_gives_each_metric_once(tmp_path):
    pytest.importorskip("mlflow")
    code = """
    import mlflow
    hooks.install(lambda *given: out.append(given))
    mlflow.set_tracking_uri("file:" + sys.path[0] + "/runs")
    with mlflow.start_run() as run:
        mlflow.log_metric("a", 1)
        mlflow.log_metric(key="a", value=2.0, step=0)
        mlflow.log_metrics({"a": 1, "b": 2}, step=3)
        mlflow.pyfunc.log_model(name="model", python_model=lambda model_input: model_input, pip_requirements=[])
        client = mlflow.MlflowClient()
        client.log_metric(run.info.run_id, "c", 1.0, step=5)
        client.log_batch(run.info.run_id, metrics=[mlflow.entities.Metric("d", float(i), 0, i) for i in (1, 2)])
    print(out)
    """
    printed = run_python(code, tmp_path, **QUIET)[-1]
    assert ast.literal_eval(printed) == [
        ({"a": 1}, None, "mlflow", False),
        ({"a": 2.0}, 0, "mlflow", False),
        ({"a": 1, "b": 2}, 3, "mlflow", True),
        ({"c": 1.0}, 5, "mlflow", False),
        ({"d": 1.0}, 1, "mlflow", True),
        ({"d": 2.0}, 2, "mlflow", True),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "module"), [("tensorboard", "torch.utils.tensorboard"), ("tensorboardX", "tensorboardX")]
)
def test_writers_of_tensorboard_give_their_scalars(tmp_path, library, module):
    pytest.importorskip(library)
    code = f"""
    import torch
    from {module} import SummaryWriter
    hooks.install(lambda *given: out.append(given))
    with SummaryWriter("runs") as writer:
        writer.add_scalar("loss/train", torch.tensor(1.0), torch.tensor(3))
        writer.add_scalars("acc", {{"train": 1, "val": 2}}, 4)
    print(out)
    """
    assert ast.literal_eval(run_python(code, tmp_path)[-1]) == [
        ({"loss/train": 1.0}, 3, library, False),
        ({"acc/train": 1, "acc/val": 2}, 4, library, False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["trackio", "aim"])
def test_other_trackers_give_their_metrics(tmp_path, library):
    pytest.importorskip(library)
    code = {
        "trackio": 'trackio.init(project="x"); trackio.log({"a": 1}); trackio.log({"a": 2}, step=5); trackio.finish()',
        "aim": 'r = aim.Run(); r.track(1, name="a", step=3, context={"subset": "val"}); r.track({"a": 2}, epoch=5)',
    }[library]
    code = f"import {library}; hooks.install(lambda *given: out.append(given[:2])); {code}; print(out)"
    expected = {"trackio": [({"a": 1}, None), ({"a": 2}, 5)], "aim": [({"val/a": 1}, 3), ({"a": 2}, 5)]}
    printed = run_python(code, tmp_path, TRACKIO_DIR=str(tmp_path), AIM_ACCESS_TOKEN="")
    assert ast.literal_eval(printed[-1]) == expected[library]


LIGHTNING = """
import sys, torch, lightning
from lightning.pytorch import loggers

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.layer(batch).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=8)
logger = {
    "wandb": lambda: loggers.WandbLogger(project="x"),
    "tensorboard": lambda: loggers.TensorBoardLogger("."),
    "mlflow": lambda: loggers.MLFlowLogger(tracking_uri="file:./runs"),
}[sys.argv[1]]()
options = dict(log_every_n_steps=2, accelerator="cpu", enable_progress_bar=False)
trainer = lightning.Trainer(max_epochs=2, logger=logger, **options)
trainer.fit(Model(), data, data)
"""
HUGGING_FACE = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=1))
data = [{"input_ids": torch.randint(0, 32, (8,)), "labels": torch.randint(0, 32, (8,))} for _ in range(16)]
options = dict(num_train_epochs=2, per_device_train_batch_size=4, logging_steps=2, eval_strategy="epoch", use_cpu=True)
arguments = TrainingArguments("out", report_to=[sys.argv[1]], save_strategy="no", **options)
Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("library", ["wandb", "tensorboard", "mlflow"])
def test_loggers_of_lightning_come_through_once(tmp_path, listener, library):
    pytest.importorskip("lightning", exc_type=Exception)  # a torchvision of another build than torch
    pytest.importorskip(library)
    (tmp_path / "train.py").write_text(LIGHTNING)
    run_child([sys.executable, "train.py", library], tmp_path, listener, **QUIET)
    counts = listener.counts()
    assert (counts[library, "loss"], counts[library, "val_loss"]) == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["wandb", "tensorboard"])
def test_callbacks_of_hugging_face_come_through_once(tmp_path, listener, library):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    pytest.importorskip(library)
    (tmp_path / "train.py").write_text(HUGGING_FACE)
    run_child([sys.executable, "train.py", library], tmp_path, listener, **QUIET)
    counts = listener.counts()
    assert (counts[library, "train/loss"], counts[library, "eval/loss"]) == (4, 2)


@pytest.mark.slow
def test_of_the_ranks_of_torchrun_one_reports_and_prints(tmp_path, listener):
    pytest.importorskip("tensorboard")
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import torch.distributed
            from torch.utils.data import DataLoader
            from torch.utils.tensorboard import SummaryWriter

            if __name__ == "__main__":
                torch.distributed.init_process_group("gloo")
                with SummaryWriter("runs") as writer:
                    for step in range(3):
                        list(DataLoader([1, 2], num_workers=1, multiprocessing_context="spawn"))
                        writer.add_scalar("loss", 1 / (step + 1), step)
                        print("loss", step)
                torch.distributed.destroy_process_group()
            """
        )
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    printed = run_child(command, tmp_path, listener)
    assert listener.counts() == {("tensorboard", "loss"): 3}
    assert [line for line in printed.splitlines() if line.startswith("loss")] == ["loss 0", "loss 1", "loss 2"]
    assert "loss 2" in (tmp_path / "rank1.log").read_text()


@pytest.mark.slow
def test_report_of_an_interpreter_without_a_session_is_sent(tmp_path, listener):
    code = "import sweep; sweep.report({'loss': 1, 'net': {'norm': 2}}, acc=3); sweep.report(5)"
    assert run_child([sys.executable, "-c", code], ROOT, listener) == ""
    assert [message["values"] for message in listener.messages] == [
        {"loss": 1, "net/norm": 2, "acc": 3},
        {"_metric": 5},
    ]


@pytest.mark.slow
def test_a_call_of_wandb_costs_little_more(tmp_path):
    pytest.importorskip("wandb")
    code = """
    import time, wandb
    wandb.init(mode="disabled")
    def measure():
        begin = time.process_time()
        for step in range(10_000):
            wandb.log({"loss": 1.0, "acc": 0.5, "epoch": step})
        return (time.process_time() - begin) / 10_000
    before = min(measure() for _ in range(3))
    hooks.install(lambda *given: None)
    print(min(measure() for _ in range(3)) - before)
    """
    assert float(run_python(code, tmp_path)[-1]) < 20e-6
