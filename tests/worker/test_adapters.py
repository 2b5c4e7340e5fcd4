"""Functions in the forms of today and of before, and classes, run in a session whose driver lets everything go on."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from sweep.checkpoints.store import Checkpoint, persist
from sweep.core.messages import Continue, Reported, Saved, Stop
from sweep.core.resources import Resources
from sweep.errors import TrainableError, UserCodeError
from sweep.worker import session as session_module
from sweep.worker import wire
from sweep.worker.adapters import ReusedInstance, run_class, run_function
from sweep.worker.main import run_job
from sweep.worker.saved import PROGRESS_FILE
from sweep.worker.session import Session, StopRequested, checkpoint_dir, install, report
from sweep.worker.trainable import Trainable, prepare

KEY = ("abcde_00003", 1)


class Driver:
    """Lets each report go on, up to the one that it stops; keeps what came."""

    def __init__(self, stop_at=0):
        self.reports, self.saved = [], []
        self.frames = wire.Frames()
        self.stop_at = stop_at

    def send(self, data):
        messages = list(self.frames.feed(data))
        self.reports += [message for message in messages if isinstance(message, Reported)]
        self.saved += [message for message in messages if isinstance(message, Saved)]

    def receive(self):
        seq = self.reports[-1].seq
        return Stop(*KEY, seq) if seq == self.stop_at else Continue(*KEY, seq)

    def values(self, *names):
        return [tuple(message.metrics.get(name) for name in names) for message in self.reports]


@pytest.fixture
def opened(tmp_path):
    """Return `open(driver, checkpoint)`: a session that is installed for the test."""

    def make(driver, checkpoint="", base_count=0):
        fields = dict.fromkeys(wire.Job._fields, "")
        fields |= {"trial_id": KEY[0], "attempt": KEY[1], "directory": str(tmp_path), "rank": None}
        fields |= {"name": "train", "checkpoint": checkpoint, "base_count": base_count, "trial_name": "mine"}
        fields |= {"resources": Resources()}
        session = Session(wire.Job(**fields), driver)
        install(session)
        return session

    yield make
    install(None)


def of_before(config, reporter):
    """Report by the second argument."""
    for step in range(2):
        reporter(loss=config["x"] + step)


def with_checkpoint_dir(config, checkpoint_dir=None, data_dir="d"):
    """Say which checkpoint it was given."""
    report({"given": checkpoint_dir, "data": data_dir})


def keeps_its_own(config, checkpoint_dir="/data", *, reporter=3):
    """Have arguments of these names for purposes of its own."""
    return {"given": checkpoint_dir, "reporter": reporter}


class Caller:
    """An object with a method that takes what functions once took."""

    def method(self, config, reporter):
        reporter({"loss": config["x"]})


def test_a_second_argument_named_reporter_is_a_way_to_report(opened):
    for function, expected in ((of_before, [(1,), (2,)]), (Caller().method, [(1,)])):
        prepare(function)
        driver = Driver()
        run_function(opened(driver), function, {"x": 1}, {})
        assert driver.values("loss") == expected


def test_checkpoint_dir_is_the_checkpoint_to_continue_from(opened, tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "state").write_text("1")
    persist(tmp_path / "c", tmp_path / "abcde_00003" / "checkpoint_000001")
    stored = str(tmp_path / "abcde_00003" / "checkpoint_000001")
    partial = functools.partial(with_checkpoint_dir, data_dir="e")
    for function, start, expected in (
        (with_checkpoint_dir, "", (None, "d")),
        (with_checkpoint_dir, stored, (stored, "d")),
        (partial, stored, (stored, "e")),
    ):
        prepare(function)
        driver = Driver()
        run_function(opened(driver, start), function, {}, {})
        assert driver.values("given", "data") == [expected]


@pytest.mark.parametrize(
    ("function", "objects", "expected"),
    [
        (keeps_its_own, {}, ("/data", 3)),
        (keeps_its_own, {"checkpoint_dir": None, "reporter": 4}, (None, 4)),
        (functools.partial(keeps_its_own, checkpoint_dir="/bound"), {}, ("/bound", 3)),
        (lambda config, **more: {"given": sorted(more), "reporter": None}, {}, ([], None)),
    ],
)
def test_arguments_of_the_same_names_that_have_values_keep_them(opened, function, objects, expected):
    driver = Driver()
    run_function(opened(driver, "/nowhere"), function, {}, objects)
    assert driver.values("given", "reporter") == [expected]


def test_any_other_argument_is_refused_in_the_words_that_people_search_for():
    with pytest.raises(TrainableError, match=r"Unknown argument found in the trainable .*argument: 'callback'"):
        prepare(lambda config, callback: 1)
    with pytest.raises(TrainableError, match=r"argument: 'other'"):
        prepare(lambda config, reporter, other: 1)


@pytest.mark.parametrize("number", [0.5, 3, np.float32(0.5), np.array(0.5), np.int64(3)])
def test_a_number_by_position_is_the_metric_without_a_name(opened, number):
    driver = Driver()
    run_function(opened(driver), lambda config: (report(number), report(number, step=2), None)[-1], {}, {})
    assert driver.values("_metric", "step") == [(number, None), (number, 2)]
    assert {type(value) for value, _ in driver.values("_metric", "step")} <= {int, float}


def with_a_reporter(config, reporter):
    """Use everything that the second argument once had."""
    reporter(0.25)
    reporter(0.5, step=2)
    reporter({"step": 3})
    reporter(
        step=4,
        trial_id=reporter.trial_id,
        trial_name=reporter.trial_name,
        logdir=reporter.logdir,
        cpus=reporter.trial_resources.required_resources["CPU"],
    )


def test_the_reporter_of_before_knows_its_trial(opened, tmp_path):
    driver = Driver()
    run_function(opened(driver), with_a_reporter, {}, {})
    assert driver.values("_metric", "step") == [(0.25, None), (0.5, 2), (None, 3), (None, 4)]
    told = driver.values("trial_name", "logdir", "cpus")[-1]
    assert told == ("mine", str(tmp_path / "abcde_00003"), 1.0)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        *(
            (
                lambda config, value=value: report(value),
                rf"report\(\) was given {type(value).__name__}; expected a dict",
            )
            for value in ([1], "loss", True)
        ),
        *(
            (lambda config, value=value: value, f"returned {type(value).__name__}; expected a dict")
            for value in ("done", True, [1], object())
        ),
    ],
)
def test_what_is_reported_or_returned_must_be_a_dict(opened, function, words):
    with pytest.raises(UserCodeError, match=words):
        run_function(opened(Driver()), function, {}, {})


@pytest.mark.parametrize("returned", [None, False, {}])
def test_nothing_is_no_report(opened, returned):
    driver = Driver()
    run_function(opened(driver), lambda config: returned, {}, {})
    assert driver.reports == []


def test_what_is_written_into_checkpoint_dir_comes_with_the_next_report(opened, tmp_path):
    def train(config):
        for step in range(2):
            with checkpoint_dir(step=step) as directory, open(os.path.join(directory, "state"), "w") as file:
                file.write(str(step))
            report(step=step)
        report(step=2)

    driver = Driver()
    run_function(opened(driver), train, {}, {})
    assert [message.checkpoint for message in driver.reports] == [
        "abcde_00003/checkpoint_000001",
        "abcde_00003/checkpoint_000002",
        None,
    ]
    assert (tmp_path / "abcde_00003/checkpoint_000002/state").read_text() == "1"
    assert sorted(os.listdir(tmp_path / "abcde_00003")) == ["checkpoint_000001", "checkpoint_000002"]


def test_a_checkpoint_whose_writing_failed_is_not_taken_along(opened, tmp_path):
    def train(config):
        with pytest.raises(OSError, match="full"), checkpoint_dir(step=1):
            raise OSError("full")
        report(step=1)

    driver = Driver()
    run_function(opened(driver), train, {}, {})
    assert driver.reports[0].checkpoint is None
    assert os.listdir(tmp_path / "abcde_00003") == []


def test_a_checkpoint_without_any_report_is_kept_as_in_tune(opened, tmp_path):
    def train(config):
        for step in range(2):
            with checkpoint_dir(step=step) as directory:
                Path(directory, "step").write_text(str(step))

    run_function(opened(Driver()), train, {}, {})
    assert os.listdir(tmp_path / "abcde_00003") == ["checkpoint_000000"]
    assert (tmp_path / "abcde_00003" / "checkpoint_000000" / "step").read_text() == "1"


@pytest.mark.parametrize("has_one", [False, True], ids=["alone", "beside_that_of_the_report"])
def test_a_checkpoint_written_after_the_last_report_belongs_to_that(opened, tmp_path, has_one):
    def train(config):
        for step in range(2):
            if has_one:
                with checkpoint_dir(step=step) as directory:
                    Path(directory, "model").write_text(str(step))
            report(step=step)
        with checkpoint_dir(step=9) as directory:
            Path(directory, "model").write_text("final")

    driver = Driver()
    run_function(opened(driver), train, {}, {})
    (saved,) = driver.saved
    stored = saved.checkpoint
    assert (saved.seq, Path(tmp_path, stored, "model").read_text()) == (2, "final")
    assert stored.startswith("abcde_00003/checkpoint_000002")
    assert stored not in [one.checkpoint for one in driver.reports]
    assert not [name for name in os.listdir(tmp_path / "abcde_00003") if name.startswith("tmp-")]


def test_outside_a_sweep_checkpoint_dir_is_a_directory_that_vanishes():
    with checkpoint_dir(step=1) as directory:
        assert os.listdir(directory) == []
    assert not os.path.exists(directory)


def test_the_functions_of_before_tell_what_the_context_tells(opened, tmp_path):
    module = session_module
    names = (module.get_trial_id, module.get_trial_name, module.get_trial_dir, module.get_trial_resources)
    assert [ask() for ask in names] == [None] * 4
    assert not module.is_session_enabled()
    opened(Driver())
    told = [ask() for ask in names[:3]]
    assert told == ["abcde_00003", "mine", str(tmp_path / "abcde_00003")]
    assert module.get_trial_resources().bundles[0].cpu == 1.0
    assert module.is_session_enabled()


class Counter(Trainable):
    """Notes what is done with it; does three steps."""

    def setup(self, config, offset=0):
        self.done = config.setdefault("done", [])
        self.config["done"].append(("setup", offset))

    def step(self):
        return {"at": self.iteration, "name": self.trial_name, "done": self.iteration == 2}

    def save_checkpoint(self, checkpoint_dir):
        return {"at": self.iteration}

    def load_checkpoint(self, checkpoint):
        self.config["done"].append(("load", checkpoint))

    def cleanup(self):
        self.config["done"].append("cleanup")


class BareInit(Counter):
    """Forgets its parent."""

    def __init__(self, config):
        self.own = 1


class EmptyInit(Counter):
    """Makes its parent without a config, and uses what `setup` made."""

    def __init__(self, config):
        super().__init__()
        self.copied = self.done


@pytest.mark.parametrize("cls", [Counter, BareInit, EmptyInit])
def test_in_a_sweep_setup_is_called_once_with_config_and_objects_however_the_class_is_made(opened, cls):
    config = {"done": []}
    driver = Driver()
    run_class(opened(driver), cls, config, {"offset": 5}, ReusedInstance())
    assert config["done"] == [("setup", 5), "cleanup"]
    assert driver.values("at", "name", "done") == [(0, "mine", False), (1, "mine", False), (2, "mine", True)]


def test_an_object_continues_where_its_checkpoint_says_and_saves_how_far_it_came(opened, tmp_path):
    class Saver(Counter):
        def step(self):
            return {"time_this_iter_s": 4.0, "should_checkpoint": True, "done": True}

    def run(start, base_count):
        driver = Driver()
        config = {"done": []}
        run_class(opened(driver, start, base_count), Saver, config, {}, ReusedInstance())
        return config["done"], driver.reports[-1].checkpoint

    _, stored = run("", 0)
    done, again = run(str(tmp_path / stored), 6)
    assert done == [("setup", 0), ("load", {"at": 1}), "cleanup"]
    told = json.loads((tmp_path / again / PROGRESS_FILE).read_text())
    assert told == {"training_iteration": 7, "time_total_s": 8.0, "path": ""}
    by_hand = Saver({"done": []})
    by_hand.restore(Checkpoint(tmp_path / again))
    assert by_hand.train()["training_iteration"] == 8


def test_a_cleanup_that_fails_fails_the_trial_and_does_not_hide_why_a_step_failed(opened, capsys):
    class Unclean(Counter):
        def cleanup(self):
            raise OSError("disk")

    class Broken(Unclean):
        def step(self):
            raise ValueError("the reason")

    with pytest.raises(OSError, match="disk"):
        run_class(opened(Driver()), Unclean, {"done": []}, {}, ReusedInstance())
    with pytest.raises(ValueError, match="the reason"):
        run_class(opened(Driver()), Broken, {"done": []}, {}, ReusedInstance())
    assert "OSError: disk" in capsys.readouterr().err


@pytest.mark.parametrize(("is_wanted", "left"), [(True, "step"), (False, "cleanup")])
def test_a_stopped_object_that_can_be_reset_is_kept_only_where_there_may_be_another_trial(opened, is_wanted, left):
    class Resettable(Counter):
        def step(self):
            self.config["done"].append("step")
            return {"a": 1}

        def reset_config(self, new_config):
            return True

    kept = ReusedInstance()
    kept.is_wanted = is_wanted
    config = {"done": []}
    with pytest.raises(StopRequested):
        run_class(opened(Driver(stop_at=1)), Resettable, config, {}, kept)
    assert config["done"][-1] == left
    assert (kept.instance is not None) == is_wanted


class Failing:
    """What `run_job` loads: a function that raises its own exception."""

    def __init__(self, error):
        self.error = error
        self.objects = {}
        self.kept = ReusedInstance()

    def load(self, job):
        """Nothing: it is here."""

    def trainable(self, config):
        """Raise."""
        raise self.error


class OwnError(Exception):
    """Of the user, with more than a text."""

    def __init__(self, code, detail):
        super().__init__(f"code {code}: {detail}")
        self.code = code

    def __reduce__(self):
        return OwnError, (self.code, "told again")


class Unloadable(Exception):
    """Pickles, and cannot be loaded: its `__init__` takes what it does not keep."""

    def __init__(self, code, detail):
        super().__init__(f"code {code}")


@pytest.mark.parametrize(("error", "is_kept"), [(OwnError(4, "x"), True), (Unloadable(4, "x"), False)])
def test_the_exception_of_the_user_travels_with_the_outcome_when_it_can(opened, error, is_kept, capsys):
    import pickle

    session = opened(Driver())
    session.job = session.job._replace(config=pickle.dumps({}), kind="function")
    kind, text, _, class_name, pickled, _ = run_job(session, Failing(error))
    assert (kind, class_name, text) == ("FAILED", type(error).__name__, f"{type(error).__name__}: {error}")
    assert bool(pickled) == is_kept
    if is_kept:
        back = pickle.loads(pickled)
        assert type(back) is OwnError
        assert back.code == 4
