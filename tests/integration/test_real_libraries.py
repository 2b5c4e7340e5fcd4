"""Each callback with its real library: the code of the how-to page runs, and its checkpoints predict the same."""

from __future__ import annotations

import importlib.util
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import sweep

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-with-training-libraries.md"


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path / "sweep_results"))
    sweep.init(num_cpus=4, num_gpus=0)
    yield
    sweep.shutdown()


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}, which is not installed")


def page_of(heading: str, tmp_path: Path, *, num_blocks: int = 1) -> dict[str, Any]:
    """Run the first blocks below a heading of the page as one script, quietly; return its names."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)
    (text,) = (part for part in section if part.startswith(f"{heading}\n"))
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    assert len(blocks) >= num_blocks
    script = tmp_path / "page.py"
    code = "\n".join(blocks[:num_blocks])
    script.write_text(re.sub(r'mode="min"\)', 'mode="min", verbose=0)', code), encoding="utf-8")
    return runpy.run_path(str(script))


def assert_trials(analysis: Any, metric: str, *, num_reports: int) -> None:
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "TERMINATED"]
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [num_reports, num_reports]
    losses = [trial.last_result[metric] for trial in analysis.trials]
    assert all(0 < loss < 30 for loss in losses)
    assert losses[0] != losses[1]
    assert analysis.best_checkpoint is not None


def test_lightning_trials_report_and_store(tmp_path: Path) -> None:
    needs("lightning")
    found = page_of("Lightning", tmp_path)
    import torch
    from sklearn.datasets import load_iris

    assert_trials(found["analysis"], "loss", num_reports=2)
    inputs, labels = load_iris(return_X_y=True)
    with torch.no_grad():
        for trial in found["analysis"].trials:
            model = found["Classifier"].load_from_checkpoint(f"{trial.checkpoint.path}/checkpoint")
            predicted = model.layer.cpu()(torch.tensor(inputs, dtype=torch.float32))
            loss = torch.nn.functional.cross_entropy(predicted, torch.tensor(labels)).item()
            assert loss == pytest.approx(trial.last_result["loss"], rel=1e-4)
    assert found["best"].hparams.lr in (0.001, 0.1)


def test_lightning_trains_in_a_group(tmp_path: Path) -> None:
    needs("lightning")
    found = page_of("Lightning", tmp_path, num_blocks=2)
    (trial,) = found["analysis"].trials
    assert (trial.status, trial.last_result["training_iteration"]) == ("TERMINATED", 2)
    model = found["Classifier"].load_from_checkpoint(f"{trial.checkpoint.path}/checkpoint")
    assert model.hparams.lr == 0.1


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_trials_report_and_store(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("keras")
    import subprocess
    import sys

    # A process has one backend of Keras, so each has a process of its own.
    code = f"""
from pathlib import Path
import sweep
from tests.integration import test_real_libraries as tests
sweep.init(num_cpus=2, num_gpus=0)
found = tests.page_of("Keras", Path({str(tmp_path)!r}))
tests.assert_trials(found["analysis"], "loss", num_reports=2)
from sklearn.datasets import load_iris
inputs, labels = load_iris(return_X_y=True)
for trial in found["analysis"].trials:
    model = found["ReportCheckpointCallback"].get_model(trial.checkpoint)
    now, then = model.evaluate(inputs, labels, verbose=0, return_dict=True), trial.last_result
    assert abs(now["loss"] - then["loss"]) < 1e-4 * then["loss"], (now, then)
    assert abs(now["accuracy"] - then["accuracy"]) < 1e-6, (now, then)
import keras
assert keras.backend.backend() == {backend!r}
assert found["best"].count_params() == 15
print("same")
"""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[2]))
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "same" in ended.stdout


@pytest.mark.parametrize("heading", ["XGBoost", "LightGBM"])
def test_boosted_trials_report_and_store(tmp_path: Path, heading: str) -> None:
    needs(heading.lower())
    found = page_of(heading, tmp_path)
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.metrics import log_loss

    assert_trials(found["analysis"], "loss", num_reports=3)
    inputs, labels = load_breast_cancer(return_X_y=True)
    if heading == "XGBoost":
        import xgboost

        inputs = xgboost.DMatrix(inputs)
    predicted = found["best"].predict(inputs).astype(np.float64)
    assert log_loss(labels, predicted) == pytest.approx(found["analysis"].best_result["loss"], rel=1e-4)


def test_xgboost_cross_validation_and_the_estimator_report(tmp_path: Path) -> None:
    needs("xgboost")

    def train(config: Any) -> None:
        import xgboost
        from sklearn.datasets import load_breast_cancer

        from sweep.integration.xgboost import TuneReportCallback, TuneReportCheckpointCallback

        inputs, labels = load_breast_cancer(return_X_y=True)
        if config["how"] == "cv":
            data = xgboost.DMatrix(inputs, labels)
            given = {"objective": "binary:logistic"}
            xgboost.cv(given, data, 2, nfold=2, callbacks=[TuneReportCallback()])
        else:
            model = xgboost.XGBClassifier(n_estimators=2, callbacks=[TuneReportCheckpointCallback()])
            model.fit(inputs, labels, eval_set=[(inputs, labels)], verbose=False)

    analysis = sweep.run(train, config={"how": sweep.grid_search(["cv", "estimator"])}, verbose=0)
    cv, estimator = analysis.trials
    assert cv.last_result["training_iteration"] == 2
    assert {"test-logloss-mean", "test-logloss-std", "train-logloss-mean"} <= set(cv.last_result)
    assert cv.checkpoint is None
    assert estimator.last_result["training_iteration"] == 3  # two rounds, and the checkpoint
    assert (Path(estimator.checkpoint.path) / "model.json").exists()


def test_lightgbm_cross_validation_and_the_estimator_report(tmp_path: Path) -> None:
    needs("lightgbm")

    def train(config: Any) -> None:
        import lightgbm
        from sklearn.datasets import load_breast_cancer

        from sweep.integration.lightgbm import TuneReportCheckpointCallback

        inputs, labels = load_breast_cancer(return_X_y=True)
        callback = TuneReportCheckpointCallback()
        if config["how"] == "cv":
            given = {"objective": "binary", "verbose": -1, "num_threads": 1}
            lightgbm.cv(given, lightgbm.Dataset(inputs, labels), 2, nfold=2, callbacks=[callback])
        else:
            model = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1)
            model.fit(inputs, labels, eval_set=[(inputs, labels)], callbacks=[callback])

    analysis = sweep.run(train, config={"how": sweep.grid_search(["cv", "estimator"])}, verbose=0)
    cv, estimator = analysis.trials
    assert {"valid-binary_logloss-mean", "valid-binary_logloss-stdv"} <= set(cv.last_result)
    assert cv.checkpoint is None
    assert estimator.last_result["training_iteration"] == 2
    assert (Path(estimator.checkpoint.path) / "model.txt").exists()


def test_transformers_trials_report_and_store(tmp_path: Path) -> None:
    needs("transformers")
    needs("accelerate")
    found = page_of("Transformers", tmp_path)
    import torch

    assert_trials(found["analysis"], "eval_loss", num_reports=2)
    inputs = torch.tensor([[i % 30 + 1, 2, 3] for i in range(16)])
    labels = torch.tensor([i % 2 for i in range(16)])
    for trial in found["analysis"].trials:
        model = type(found["best"]).from_pretrained(f"{trial.checkpoint.path}/checkpoint").eval()
        with torch.no_grad():
            loss = model(input_ids=inputs, labels=labels).loss.item()
        assert loss == pytest.approx(trial.last_result["eval_loss"], rel=1e-3)
        assert sorted(path.name for path in Path(trial.path, "out").iterdir()) == ["checkpoint-2", "checkpoint-4"]


def test_transformers_trains_in_a_group(tmp_path: Path) -> None:
    needs("transformers")
    needs("accelerate")

    def train(config: Any) -> None:
        import torch
        from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

        from sweep.integration.transformers import TuneReportCallback, prepare_trainer

        small = BertConfig(
            vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
        data = [{"input_ids": torch.tensor([i % 30 + 1, 2, 3]), "labels": torch.tensor(i % 2)} for i in range(16)]
        arguments = TrainingArguments(
            "out", num_train_epochs=1, save_strategy="epoch", report_to=[], use_cpu=True, disable_tqdm=True
        )
        trainer = Trainer(BertForSequenceClassification(small), arguments, train_dataset=data)
        trainer.add_callback(TuneReportCallback(["step", "epoch"]))
        prepare_trainer(trainer).train()

    from sweep.train import ScalingConfig
    from sweep.train.torch import TorchTrainer

    analysis = sweep.run(TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)), verbose=0)
    (trial,) = analysis.trials
    assert (trial.last_result["step"], trial.last_result["training_iteration"]) == (1, 1)
    stored = {path.name for path in Path(trial.checkpoint.path, "checkpoint").iterdir()}
    assert {"rng_state_0.pth", "rng_state_1.pth", "model.safetensors"} <= stored


def test_a_search_of_hugging_faces_trainer_runs_as_a_sweep(tmp_path: Path) -> None:
    needs("transformers")
    needs("accelerate")
    best = page_of("Hugging Face's Trainer", tmp_path)["best"]
    assert best.hyperparameters.keys() == {"learning_rate", "per_device_train_batch_size"}
    trials = best.run_summary.trials
    assert [trial.status for trial in trials] == ["TERMINATED"] * 4
    assert best.objective == min(trial.last_result["eval_loss"] for trial in trials)
