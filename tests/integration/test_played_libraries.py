"""Each callback within its library's protocol, played: what it reports when, and with which files."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from sweep.checkpoints.store import Checkpoint
from sweep.errors import ConfigError, UserCodeError


class Model:
    """A model of any library: stores and loads a text."""

    def __init__(self, model_file: str | None = None) -> None:
        self.text = Path(model_file).read_text() if model_file else "fresh"

    def save_model(self, path: str) -> None:
        Path(path).write_text(self.text)

    def load_model(self, path: str) -> None:
        self.text = Path(path).read_text()

    save = save_model


@pytest.fixture
def xgboost(imported: Any, made: Any) -> Any:
    callback = types.SimpleNamespace(TrainingCallback=object)
    return imported("xgboost", xgboost=made("xgboost", callback=callback, Booster=Model))


def boost(callback: Any, rounds: int) -> None:
    history: dict[str, dict[str, list[float]]] = {"eval": {"logloss": []}}
    model = Model()
    for epoch in range(rounds):
        history["eval"]["logloss"].append(1 / (epoch + 1))
        model.text = f"round {epoch + 1}"
        assert callback.after_iteration(model, epoch, history) is False
    assert callback.after_training(model) is model


def numbers(trial: Any) -> list[tuple[float, dict[str, str] | None]]:
    return [(next(iter(metrics.values())), files) for metrics, files in trial.reports]


@pytest.mark.parametrize(
    ("given", "rank", "expected"),
    [
        ({}, 0, [(1, None), (0.5, None), (1 / 3, None), (1 / 3, {"model.json": "round 3"})]),
        ({}, 1, [(1, None), (0.5, None), (1 / 3, None), (1 / 3, None)]),  # of a group only rank 0 stores
        ({"checkpoint_at_end": False}, 0, [(1, None), (0.5, None), (1 / 3, None)]),
        ({"frequency": 1}, 0, [(1 / epoch, {"model.json": f"round {epoch}"}) for epoch in (1, 2, 3)]),
        (
            {"frequency": 2, "filename": "m.ubj"},
            0,
            [(1, None), (0.5, {"m.ubj": "round 2"}), (1 / 3, None), (1 / 3, {"m.ubj": "round 3"})],
        ),
    ],
)
def test_xgboost_reports_each_round_and_stores_when_it_is_told(
    xgboost: Any, trial: Any, given: Any, rank: int, expected: Any
) -> None:
    trial.rank, trial.size = rank, rank + 1
    boost(xgboost.TuneReportCheckpointCallback(**given), 3)
    assert numbers(trial) == expected


def test_cross_validation_is_reported_with_its_deviation_and_nothing_is_stored(
    xgboost: Any, lightgbm: Any, trial: Any
) -> None:
    callback = xgboost.TuneReportCheckpointCallback(frequency=1)
    packed = object()
    callback.after_iteration(packed, 0, {"test": {"rmse": [(2.0, 0.1)]}})
    callback.after_training(packed)
    light_round(lightgbm.TuneReportCheckpointCallback(), 0, end=1, model=packed, deviation=(0.02,))
    assert trial.reports == [
        ({"test-rmse-mean": 2.0, "test-rmse-std": 0.1}, None),
        ({"valid-auc-mean": 0.1, "valid-auc-stdv": 0.02}, None),
    ]


def test_xgboost_postprocesses_what_was_chosen(xgboost: Any, trial: Any) -> None:
    callback = xgboost.TuneReportCallback(
        {"loss": "eval-logloss"}, results_postprocessing_fn=lambda metrics: {"double": 2 * metrics["loss"]}
    )
    boost(callback, 1)
    assert trial.reports == [({"double": 2}, None)]


def test_a_booster_is_loaded_from_a_checkpoint(xgboost: Any, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("stored")
    assert xgboost.TuneReportCheckpointCallback.get_model(Checkpoint(tmp_path)).text == "stored"


def test_what_boosting_cannot_use_is_refused(xgboost: Any, trial: Any) -> None:
    with pytest.raises(ConfigError, match="frequency is -1"):
        xgboost.TuneReportCheckpointCallback(frequency=-1)
    with pytest.raises(ConfigError, match="results_postprocessing_fn is 3"):
        xgboost.TuneReportCallback(results_postprocessing_fn=3)
    with pytest.raises(UserCodeError, match="Did you mean 'eval-logloss'"):
        boost(xgboost.TuneReportCallback("eval-loglos"), 1)


@pytest.fixture
def lightgbm(imported: Any, made: Any) -> Any:
    return imported("lightgbm", lightgbm=made("lightgbm", Booster=Model))


def light_round(callback: Any, iteration: int, *, end: int, begin: int = 0, model: Any = None, **entry: Any) -> None:
    found = [("valid", "auc", 0.1 * (iteration + 1), True, *entry.get("deviation", ()))]
    callback(
        types.SimpleNamespace(
            model=model or Model(),
            iteration=iteration,
            begin_iteration=begin,
            end_iteration=end,
            evaluation_result_list=found,
        )
    )


STORED = {"model.txt": "fresh"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [None, None, STORED]),
        ({"checkpoint_at_end": False}, [None, None, None]),
        ({"frequency": 2}, [None, STORED, STORED]),
        ({"frequency": 2, "checkpoint_at_end": False}, [None, STORED, None]),
    ],
)
def test_lightgbm_stores_with_the_rounds_that_it_is_told(lightgbm: Any, trial: Any, given: Any, expected: Any) -> None:
    callback = lightgbm.TuneReportCheckpointCallback(**given)
    for iteration in range(5, 8):  # a training that goes on after five rounds
        light_round(callback, iteration, begin=5, end=8)
    assert [files for _, files in trial.reports] == expected
    assert [list(metrics) for metrics, _ in trial.reports] == [["valid-auc"]] * 3
    assert [round(metrics["valid-auc"], 1) for metrics, _ in trial.reports] == [0.6, 0.7, 0.8]


def test_lightgbm_is_called_before_early_stopping_and_can_be_stored_in_a_set(lightgbm: Any) -> None:
    callback = lightgbm.TuneReportCallback("valid-auc")
    assert callback.order < 30
    assert callback.before_iteration is False
    assert {callback}


class KerasCallback:
    model: Any = Model()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None: ...
    def on_train_end(self, logs: Any = None) -> None: ...
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...
    def on_batch_end(self, batch: int, logs: Any = None) -> None: ...


@pytest.fixture
def keras(imported: Any, made: Any) -> Any:
    return imported("keras", keras=made("keras", callbacks=types.SimpleNamespace(Callback=KerasCallback)))


def fit(callback: Any, epochs: int = 2) -> None:
    for epoch in range(epochs):
        callback.on_train_batch_end(0, logs={"loss": 9.0})
        callback.on_epoch_end(epoch, {"loss": 1.0 - epoch / 2, "acc": 0.5})
    callback.on_train_end({"loss": 0.25})


def test_keras_reports_every_epoch_with_the_model(keras: Any, trial: Any) -> None:
    callback = keras.ReportCheckpointCallback()
    fit(callback)
    callback.on_epoch_end(3)  # without logs
    stored = {"model.keras": "fresh"}
    assert trial.reports == [
        ({"loss": 1.0, "acc": 0.5}, stored),
        ({"loss": 0.5, "acc": 0.5}, stored),
        ({}, stored),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "rank", "reports"),
    [
        (
            "ReportCheckpointCallback",
            ("train_end", ["epoch_end", "train_batch_end"], "loss"),
            0,
            [(9.0, None), (1.0, None), (9.0, None), (0.5, None), (0.25, "model.keras")],
        ),
        ("ReportCheckpointCallback", ("epoch_end", "epoch_end", "loss"), 1, [(1.0, None), (0.5, None)]),
        ("TuneReportCallback", ("loss", "train_end"), 0, [(0.25, None)]),
        # With every second report, under a name that Keras takes.
        *(
            ("TuneReportCheckpointCallback", ("loss", filename, 2), 0, [(1.0, None), (0.5, stored)])
            for filename, stored in (
                ("model.keras", "model.keras"),
                ("checkpoint", "checkpoint.keras"),
                ("m.h5", "m.h5"),
            )
        ),
    ],
)
def test_keras_reports_and_stores_where_it_is_told(
    keras: Any, trial: Any, name: str, arguments: Any, rank: int, reports: Any
) -> None:
    trial.rank, trial.size = rank, rank + 1
    fit(getattr(keras, name)(*arguments))
    assert trial.reports == [({"loss": loss}, stored and {stored: "fresh"}) for loss, stored in reports]


def test_what_keras_does_not_know_is_refused(keras: Any) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint_on='epoch_ends'.*'epoch_end'"):
        keras.ReportCheckpointCallback(checkpoint_on="epoch_ends")
    with pytest.raises(ConfigError, match="frequency is 0"):
        keras.TuneReportCheckpointCallback(frequency=0)


class LightningCallback:
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None: ...
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None: ...
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None: ...
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None: ...
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None: ...


class Trainer:
    """Lightning's, as far as callbacks look."""

    sanity_checking = False
    current_epoch, global_step = 3, 40

    def __init__(self, world_size: int = 1, is_writer: bool = True) -> None:
        self.world_size = world_size
        self.is_writer = is_writer
        self.callback_metrics = {"val_loss": 0.5, "acc": 0.9}

    def save_checkpoint(self, path: str) -> None:
        if self.is_writer:
            Path(path).write_text("state")


@pytest.fixture
def lightning(imported: Any, made: Any) -> Any:
    class Base:
        pass

    played = {
        "lightning__pytorch": made("lightning.pytorch", Callback=LightningCallback),
        "lightning__pytorch__strategies": made("lightning.pytorch.strategies", DDPStrategy=Base),
        "lightning__pytorch__plugins__environments": made("environments", LightningEnvironment=Base),
        "pytorch_lightning": None,
    }
    return imported("pytorch_lightning", **played)


@pytest.mark.parametrize(
    ("metrics", "reported"),
    [(None, {"val_loss": 0.5, "acc": 0.9}), ("acc", {"acc": 0.9}), ({"loss": "val_loss"}, {"loss": 0.5})],
)
def test_lightning_reports_with_a_checkpoint_at_the_end_of_the_validation(
    lightning: Any, trial: Any, metrics: Any, reported: Any
) -> None:
    callback = lightning.TuneReportCheckpointCallback(metrics)
    trainer = Trainer()
    callback.setup(trainer, None, "fit")
    trainer.sanity_checking = True
    callback.on_validation_end(trainer, None)
    trainer.sanity_checking = False
    callback.on_train_epoch_end(trainer, None)
    callback.on_validation_end(trainer, None)
    assert trial.reports == [(reported, {"checkpoint": "state"})]


def test_lightning_reports_at_other_hooks_without_checkpoints(lightning: Any, trial: Any) -> None:
    callback = lightning.TuneReportCallback("acc", on=["train_batch_end", "train_epoch_end"])
    trainer = Trainer()
    callback.on_train_batch_end(trainer, None, None, None, batch_idx=0)
    callback.on_validation_end(trainer, None)
    trainer.callback_metrics = {"acc": 1.0}
    callback.on_train_epoch_end(trainer, None)
    trainer.callback_metrics = {}  # nothing is measured yet
    lightning.TuneReportCallback(on="train_epoch_end").on_train_epoch_end(trainer, None)
    assert trial.reports == [({"acc": 0.9}, None), ({"acc": 1.0}, None)]


def test_every_rank_saves_and_reports_and_those_without_a_file_attach_none(lightning: Any, trial: Any) -> None:
    trial.rank, trial.size = 1, 2
    callback = lightning.TuneReportCheckpointCallback("acc")
    callback.setup(Trainer(world_size=2), None, "fit")
    callback.on_validation_end(Trainer(world_size=2, is_writer=False), None)
    assert trial.reports == [({"acc": 0.9}, None)]


@pytest.mark.parametrize(
    ("trains", "has", "advice"),
    [(2, 1, "num_workers=2"), (1, 2, "RayLightningEnvironment"), (4, 2, "RayDDPStrategy")],
)
def test_lightning_with_processes_that_are_not_the_trials_is_refused(
    lightning: Any, trial: Any, trains: int, has: int, advice: str
) -> None:
    trial.size = has
    with pytest.raises(ConfigError, match=rf"trains with {trains} processes, and the trial has {has}.*{advice}"):
        lightning.TuneReportCallback().setup(Trainer(world_size=trains), None, "fit")
    with pytest.raises(ConfigError, match=advice):
        lightning.prepare_trainer(Trainer(world_size=trains))


def test_a_process_that_lightning_has_started_is_known_by_its_trials_variable(
    lightning: Any, trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.trial_id = None
    trainer = Trainer(world_size=2)
    alone = Trainer()  # in a program that the trial has started
    monkeypatch.delenv("SWEEP_TRIAL", raising=False)
    assert lightning.prepare_trainer(trainer) is trainer  # a program of its own, outside a sweep
    monkeypatch.setenv("SWEEP_TRIAL", "abcde_00000")
    with pytest.raises(ConfigError, match="trains with 2 processes"):
        lightning.prepare_trainer(trainer)
    assert lightning.prepare_trainer(alone) is alone


def test_the_callback_of_ray_train_reports_epochs(lightning: Any, trial: Any) -> None:
    callback = lightning.RayTrainReportCallback()
    callback.on_validation_end(Trainer(), None)
    callback.on_train_epoch_end(Trainer(), None)
    metrics = {"val_loss": 0.5, "acc": 0.9, "epoch": 3, "step": 40}
    assert trial.reports == [(metrics, {"checkpoint.ckpt": "state"})]


def test_lightning_knows_the_groups_ranks(lightning: Any, trial: Any) -> None:
    trial.rank, trial.size = 1, 3
    environment = lightning.RayLightningEnvironment()
    environment.set_world_size(7)
    environment.set_global_rank(7)
    assert (environment.world_size(), environment.global_rank(), environment.local_rank()) == (3, 1, 1)
    assert environment.creates_processes_externally
    assert lightning.RayDDPStrategy().distributed_sampler_kwargs == {"num_replicas": 3, "rank": 1}


@pytest.mark.parametrize("hook", ["validation_ends", "save_checkpoint", "setup"])
def test_a_hook_in_which_nothing_can_be_reported_is_refused(lightning: Any, hook: str) -> None:
    with pytest.raises(ConfigError, match="is not a hook"):
        lightning.TuneReportCallback(on=hook)


def test_a_program_that_has_imported_both_lightnings_gets_a_callback_of_both(imported: Any, made: Any) -> None:
    class Other:
        pass

    found = imported(
        "pytorch_lightning",
        lightning__pytorch=made("lightning.pytorch", Callback=LightningCallback),
        lightning__pytorch__strategies=made("strategies", DDPStrategy=object),
        lightning__pytorch__plugins__environments=made("environments", LightningEnvironment=object),
        pytorch_lightning=made("pytorch_lightning", Callback=Other),
    )
    assert isinstance(found.TuneReportCallback(), Other)
    assert isinstance(found.TuneReportCallback(), LightningCallback)


class HuggingFace:
    pass


@pytest.fixture
def transformers(imported: Any, made: Any) -> Any:
    trainer_utils = types.SimpleNamespace(get_last_checkpoint=lambda directory: None)
    played = made("transformers", TrainerCallback=object, Trainer=HuggingFace, trainer_utils=trainer_utils)
    return imported("transformers", transformers=played)


class Run:
    """What a Trainer hands to its callbacks."""

    def __init__(self, output_dir: Path, world_size: int = 1) -> None:
        self.waits = 0
        state = types.SimpleNamespace(wait_for_everyone=self._wait)
        self.args = types.SimpleNamespace(output_dir=str(output_dir), world_size=world_size, distributed_state=state)
        self.state = types.SimpleNamespace(global_step=0, epoch=0.0)
        self.control = types.SimpleNamespace(should_save=False)

    def _wait(self) -> None:
        self.waits += 1

    def step(self, callback: Any, step: int, *, evaluates: bool = False, saves: bool = False) -> None:
        self.state.global_step, self.state.epoch = step, step / 10
        self.control.should_save = saves
        callback.on_log(self.args, self.state, self.control, logs={"loss": 1 / step})
        if evaluates:
            callback.on_log(self.args, self.state, self.control, logs={"eval_loss": 2 / step})
            callback.on_evaluate(self.args, self.state, self.control)
        if saves:
            directory = Path(self.args.output_dir, f"checkpoint-{step}")
            directory.mkdir(parents=True)
            (directory / "model").write_text(f"at {step}")
            self.control.should_save = False
            callback.on_save(self.args, self.state, self.control)

    def end(self, callback: Any) -> None:
        callback.on_log(self.args, self.state, self.control, logs={"train_runtime": 1.0})
        callback.on_train_end(self.args, self.state, self.control)


def test_transformers_reports_evaluations_and_saves_and_both_at_once(
    transformers: Any, trial: Any, tmp_path: Path
) -> None:
    callback = transformers.TuneReportCallback(["loss", "eval_loss", "step"])
    run = Run(tmp_path / "out")
    callback.on_train_begin(run.args, run.state, run.control)
    run.step(callback, 1, evaluates=True)
    run.step(callback, 2)
    run.step(callback, 4, evaluates=True, saves=True)
    run.step(callback, 5, saves=True)
    run.end(callback)
    assert [metrics for metrics, _ in trial.reports] == [
        {"loss": 1.0, "eval_loss": 2.0, "step": 1},
        {"loss": 0.25, "eval_loss": 0.5, "step": 4},
        {"loss": 0.2, "eval_loss": 0.5, "step": 5},
    ]
    assert [files for _, files in trial.reports] == [None, {"checkpoint/model": "at 4"}, {"checkpoint/model": "at 5"}]


def test_steps_after_the_last_report_are_reported_at_the_end(transformers: Any, trial: Any, tmp_path: Path) -> None:
    callback = transformers.RayTrainReportCallback("loss")
    run = Run(tmp_path)
    run.step(callback, 1)
    run.step(callback, 2)
    run.end(callback)
    assert trial.reports == [({"loss": 0.5}, None)]


def test_of_a_group_all_wait_for_each_others_files_and_rank_0_attaches_them(
    transformers: Any, trial: Any, tmp_path: Path
) -> None:
    trial.rank, trial.size = 1, 2
    callback = transformers.TuneReportCallback("loss")
    run = Run(tmp_path, world_size=2)
    callback.on_train_begin(run.args, run.state, run.control)
    run.step(callback, 1, saves=True)
    assert trial.reports == [({"loss": 1.0}, None)]
    assert run.waits == 1


def test_a_relative_output_directory_lies_in_the_trials(transformers: Any, trial: Any, tmp_path: Path) -> None:
    callback = transformers.TuneReportCallback()
    run = Run(Path("results"))
    callback.on_train_begin(run.args, run.state, run.control)
    assert run.args.output_dir == str(trial.home / "results")
    run = Run(tmp_path / "elsewhere")
    callback.on_train_begin(run.args, run.state, run.control)
    assert run.args.output_dir == str(tmp_path / "elsewhere")


def test_a_trainer_with_processes_that_are_not_the_trials_is_refused(transformers: Any, trial: Any) -> None:
    trainer = HuggingFace()
    trainer.args = types.SimpleNamespace(world_size=2)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="trains with 2 processes, and the trial has 1"):
        transformers.prepare_trainer(trainer)
    trial.size = 2
    assert transformers.prepare_trainer(trainer) is trainer
    with pytest.raises(ConfigError, match=r"given str; expected a transformers\.Trainer"):
        transformers.prepare_trainer("trainer")
