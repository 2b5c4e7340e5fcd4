"""A callback that raises TuneError ends the sweep; our own errors, which it may meet while it reads, do not."""

from __future__ import annotations

import threading

import pytest

import sweep
from sweep.errors import ExperimentError
from sweep.record.reader import ExperimentReader


class Enough(sweep.TuneError):
    """Of the user's own."""


def kinds(hook):
    def raising(self, *arguments, **named):
        raise self.error

    return type(
        "Ends", (sweep.Callback,), {hook: raising, "__init__": lambda self, error: setattr(self, "error", error)}
    )


def steps(config):
    for step in range(1000):
        sweep.report(step=step)


def short(config):
    return {"step": config["x"]}


@pytest.mark.parametrize("error", [sweep.TuneError("enough is enough"), Enough("enough is enough")])
@pytest.mark.parametrize(("trainable", "hook"), [(steps, "on_trial_result"), (short, "on_trial_complete")])
@pytest.mark.parametrize("engine", ["inline", "local"])
def test_the_sweep_ends_with_that_error_and_can_go_on(tmp_path, error, trainable, hook, engine):
    arguments = {"config": {"x": 1}, "storage_path": tmp_path, "name": "ends", "verbose": 0, "engine": engine}
    with pytest.raises(type(error), match=r"^enough is enough$") as caught:
        sweep.run(trainable, callbacks=[kinds(hook)(error)], **arguments)
    assert caught.value is error
    assert not [one for one in threading.enumerate() if one.name == "sweep-callbacks"]
    (trial,) = ExperimentReader(tmp_path / "ends").trials()
    assert trial.status != "ERROR"
    if trainable is steps:
        assert trial.status == "RUNNING"
        assert trial.count < 1000


def test_an_error_of_ours_and_any_other_are_said_with_file_and_line(tmp_path, capsys):
    for error in (ExperimentError("no such sweep"), ValueError("oh")):
        kind = kinds("on_trial_complete")
        sweep.run(short, config={"x": 1}, storage_path=tmp_path, engine="inline", callbacks=[kind(error)])
        said = capsys.readouterr()
        text = said.out + said.err
        assert f"raised {type(error).__name__}: {error} ({__file__}:" in text
