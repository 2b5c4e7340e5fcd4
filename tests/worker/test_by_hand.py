"""Class trainables used by hand, without a sweep, as their users' own tests do."""

from __future__ import annotations

import os
import pickle
import socket
import time

import numpy as np
import pytest

from sweep.checkpoints.store import Checkpoint, persist
from sweep.errors import CheckpointError, TrainableError
from sweep.worker import trainable as module
from sweep.worker.saved import DICT_FILE, PROGRESS_FILE
from sweep.worker.trainable import Trainable


class Counter(Trainable):
    """Counts from the config's start and says what it was asked."""

    def setup(self, config, offset=0):
        self.value = config["start"] + offset
        self.logged = []
        self.is_clean = False
        config["start"] = "changed"  # a copy: the object's own config stays

    def step(self):
        self.value += 1
        return {"value": self.value, "time_this_iter_s": 2.0, "timesteps_this_iter": 10}

    def save_checkpoint(self, checkpoint_dir):
        return {"value": self.value}

    def load_checkpoint(self, checkpoint):
        self.value = checkpoint["value"]

    def reset_config(self, new_config):
        self.value = new_config["start"]
        return new_config["start"] < 100

    def log_result(self, result):
        self.logged.append(result["training_iteration"])

    def cleanup(self):
        self.is_clean = True


class Filer(Counter):
    """Writes its state into a file."""

    def save_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "value"), "w") as file:
            file.write(str(self.value))

    def load_checkpoint(self, checkpoint):
        with open(os.path.join(checkpoint, "value")) as file:
            self.value = int(file.read())


def test_an_object_made_by_hand_is_set_up_once_with_a_copy_of_its_config():
    given = {"start": 3}
    counter = Counter(given)
    assert counter.value == 3
    assert counter.config == counter.get_config() == given == {"start": 3}


def test_outside_a_sweep_a_trial_has_no_id_and_the_working_directory():
    counter = Counter({"start": 0})
    assert (counter.trial_id, counter.trial_name, counter.trial_resources) == ("", "Counter", None)
    assert counter.logdir == counter.trial_dir == os.getcwd()
    assert (counter.iteration, counter.training_iteration) == (0, 0)


def test_a_step_by_hand_is_filled_in_as_in_a_sweep(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    counter = Counter({"start": 3})
    counter.train()
    result = counter.train()
    stamp, date = result.pop("timestamp"), result.pop("date")
    assert result == {
        "value": 5,
        "training_iteration": 2,
        "time_this_iter_s": 2.0,
        "time_total_s": 4.0,
        "time_since_restore": 4.0,
        "iterations_since_restore": 2,
        "timesteps_this_iter": 10,
        "timesteps_total": 20,
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "node_ip": "127.0.0.1",
        "config": {"start": 3},
        "trial_id": "",
        "done": False,
    }
    assert date == time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(stamp))
    assert counter.logged == [1, 2]
    assert counter.training_iteration == 2


def test_what_a_step_reports_itself_is_kept():
    class Own(Counter):
        def step(self):
            return {"training_iteration": 70, "timestamp": 5, "done": True, "episodes_this_iter": np.int64(3)}

    result = Own({"start": 0}).train()
    assert (result["training_iteration"], result["timestamp"], result["done"]) == (70, 5, True)
    assert result["episodes_total"] == 3
    assert "timesteps_total" not in result


def test_the_time_of_a_step_is_measured(monkeypatch):
    moments = iter([10.0, 13.5])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(moments))

    class Plain(Trainable):
        def step(self):
            return {}

    assert Plain().train()["time_this_iter_s"] == 3.5


def test_a_step_that_returns_no_dict_is_refused_by_name():
    class Wrong(Trainable):
        def step(self):
            return 3

    with pytest.raises(TrainableError, match=r"Wrong\.step returned int; expected a dict"):
        Wrong().train()


@pytest.mark.parametrize("cls", [Counter, Filer])
def test_what_is_saved_is_restored_with_its_iterations_and_times(cls, tmp_path):
    first = cls({"start": 0})
    for _ in range(3):
        first.train()
    checkpoint = first.save(tmp_path / "made" / "here")
    assert checkpoint == Checkpoint(tmp_path / "made" / "here")
    for given in (checkpoint, checkpoint.path, tmp_path / "made" / "here"):
        second = cls({"start": 50})
        second.restore(given)
        assert second.training_iteration == 3
        result = second.train()
        assert result["value"] == 4
        assert (result["training_iteration"], result["iterations_since_restore"]) == (4, 1)
        assert (result["time_total_s"], result["time_since_restore"]) == (8.0, 2.0)
        assert result["timesteps_total"] == 40


def test_without_a_directory_a_new_one_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    counter = Counter({"start": 4})
    first, second = counter.save(), counter.save()
    assert first != second
    assert {os.path.dirname(one.path) for one in (first, second)} == {str(tmp_path)}
    assert sorted(os.listdir(first.path)) == sorted([PROGRESS_FILE, DICT_FILE])


def test_a_checkpoint_of_a_sweep_is_checked_before_it_is_used(tmp_path):
    persist(Counter({"start": 4}).save(tmp_path / "made").path, tmp_path / "stored")
    counter = Counter({"start": 0})
    counter.restore(tmp_path / "stored")
    assert counter.value == 4
    (tmp_path / "stored" / DICT_FILE).write_bytes(pickle.dumps({"value": 5}))
    with pytest.raises(CheckpointError, match="damaged"):
        counter.restore(tmp_path / "stored")


def test_files_that_no_object_has_saved_are_loaded_and_counted_from_0(tmp_path):
    (tmp_path / "value").write_text("12")
    filer = Filer({"start": 0})
    filer.train()
    filer.restore(str(tmp_path))
    assert (filer.value, filer.iteration) == (12, 0)


class Named(Counter):
    """Returns the path of its file, as classes for Tune did."""

    def save_checkpoint(self, checkpoint_dir):
        path = os.path.join(checkpoint_dir, "parts", "model.pth")
        os.makedirs(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(str(self.value))
        return path

    def load_checkpoint(self, checkpoint):
        assert checkpoint.endswith("parts/model.pth")
        with open(checkpoint) as file:
            self.value = int(file.read())


def test_a_path_that_was_returned_is_what_is_loaded(tmp_path):
    first, second = Named({"start": 5}), Named({"start": 0})
    first.train()
    first.save(tmp_path / "saved")
    os.rename(tmp_path / "saved", tmp_path / "moved")
    second.restore(tmp_path / "moved")
    assert (second.value, second.iteration) == (6, 1)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("/elsewhere", r"save_checkpoint returned '/elsewhere'; expected the directory"),
        (3, "save_checkpoint returned int; expected a dict"),
        ({"bad": lambda: 1}, "a dict that cannot be pickled"),
    ],
)
def test_what_save_checkpoint_may_not_return_is_refused(returned, says, tmp_path):
    class Wrong(Counter):
        def save_checkpoint(self, checkpoint_dir):
            return returned

    with pytest.raises(CheckpointError, match=says):
        Wrong({"start": 0}).save(tmp_path)


def test_a_class_that_cannot_save_says_so_and_leaves_no_directory(tmp_path, monkeypatch):
    class Plain(Trainable):
        def step(self):
            return {}

    with pytest.raises(NotImplementedError, match="Plain has no save_checkpoint"):
        Plain().save(tmp_path / "new")
    assert os.listdir(tmp_path) == []
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        Plain().restore(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="made from NoneType"):
        Plain().restore(None)


def test_reset_takes_a_config_when_reset_config_does_and_counts_anew():
    counter = Counter({"start": 1})
    counter.train()
    assert counter.reset({"start": 7})
    assert (counter.config, counter.iteration, counter.value) == ({"start": 7}, 0, 7)
    assert counter.train()["time_total_s"] == 2.0
    assert not counter.reset({"start": 100})
    assert (counter.config, counter.iteration) == ({"start": 7}, 1)


def test_stop_cleans_up():
    counter = Counter({"start": 1})
    counter.stop()
    assert counter.is_clean


def test_a_model_is_exported_in_each_format(tmp_path):
    class Exporter(Counter):
        def _export_model(self, export_formats, export_dir):
            return {name: os.path.join(export_dir, name) for name in export_formats}

    exporter = Exporter({"start": 0})
    assert exporter.export_model("onnx", tmp_path) == {"onnx": str(tmp_path / "onnx")}
    assert exporter.export_model(["a", "b"]) == {name: os.path.join(os.getcwd(), name) for name in "ab"}
    assert Counter({"start": 0}).export_model("onnx") == {}


def test_a_subclass_may_hand_on_an_empty_logger_creator_but_no_real_one():
    class Handing(Counter):
        def __init__(self, config=None, logger_creator=None):
            super().__init__(config, logger_creator)

    assert Handing({"start": 2}).value == 2
    with pytest.raises(TrainableError, match="logged by callbacks"):
        Handing({"start": 2}, logger_creator=print)


class Tunes(Counter):
    """Reads the count under the name that it has in Tune."""

    def step(self):
        return {"value": self._iteration}


class Own(Counter):
    """Has a count of its own under that name."""

    def step(self):
        self._iteration = getattr(self, "_iteration", 0) + 5
        return {"value": self._iteration}


@pytest.mark.parametrize(("kind", "expected"), [(Tunes, [0, 1, 2]), (Own, [5, 10, 15])])
def test_the_iteration_is_read_under_its_name_in_tune_and_a_subclass_may_have_that_name_for_itself(kind, expected):
    made = kind({"start": 0})
    steps = [made.train() for _ in range(3)]
    assert [step["value"] for step in steps] == expected
    assert [step["training_iteration"] for step in steps] == [1, 2, 3]
