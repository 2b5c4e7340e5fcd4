"""What can be a trainable, how it is named, and what is said of those that cannot be one."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import threading

import cloudpickle
import numpy as np
import pytest

import sweep
from sweep.core.resources import Bundle, Resources
from sweep.errors import TrainableError
from sweep.worker.parameters import load_objects, store_objects, with_parameters, with_resources
from sweep.worker.shipping import refuse_unpicklable, ship
from sweep.worker.trainable import Trainable, prepare


def train(config):
    """Do nothing."""


def train_more(config, factor, data=None):
    """Do nothing with more arguments."""


async def later(config):
    """Do nothing, and not now."""


class Callable:
    """An object that can be called."""

    def __call__(self, config):
        return 1

    def method(self, config):
        return 2


class Stepper(Trainable):
    """A class trainable that can be saved."""

    def setup(self, config, data=None):
        self.data = data

    def step(self):
        return {"a": 1}

    def save_checkpoint(self, checkpoint_dir):
        return None

    @classmethod
    def default_resource_request(cls, config):
        return {"cpu": config["n"]}


@pytest.mark.parametrize(
    ("trainable", "name", "kind"),
    [
        (train, "train", "function"),
        (lambda config: 1, "lambda", "function"),
        (functools.partial(train_more, factor=2), "train_more", "function"),
        (Callable(), "Callable", "function"),
        (Callable().method, "method", "function"),
        (Stepper, "Stepper", "class"),
    ],
)
def test_every_form_is_prepared_named_and_comes_back(trainable, name, kind):
    prepared = prepare(trainable)
    assert (prepared.name, prepared.kind) == (name, kind)
    assert callable(pickle.loads(prepared.payload))
    with_its_own = prepare(with_resources(trainable, lambda config: {"cpu": config["n"]}))
    assert (with_its_own.name, with_its_own.resources({"n": 2})) == (name, {"cpu": 2})


def test_a_class_tells_whether_it_can_save_and_what_it_asks_for():
    prepared = prepare(Stepper)
    assert prepared.can_save_on_demand
    assert prepared.resources({"n": 3}) == {"cpu": 3}
    assert not prepare(train).can_save_on_demand


@pytest.mark.parametrize(
    ("trainable", "says"),
    [
        (3, "is 3 of type int; expected a function"),
        (lambda: 1, "cannot be called as lambda"),
        (train_more, "missing a required argument: 'factor'"),
        (lambda a, b: 1, "missing a required argument: 'b'"),
        (later, "asynchronous"),
        (dict, "the class dict is no trainable"),
        (type("Empty", (Trainable,), {}), "has no step; define"),
        (
            type("Half", (Trainable,), {"step": lambda self: {}, "_save": lambda self, path: None}),
            "has _save, which is called save_checkpoint now; rename it",
        ),
        (
            type("Old", (Trainable,), dict.fromkeys(("_setup", "_train", "_save"), lambda *_: {})),
            "it has _setup, which is called setup now, and _train, which is called step now, and _save",
        ),
        (
            type("Former", (Trainable,), {"_train": lambda self: {}}),
            "has no step; it has _train, which is called step now; define",
        ),
    ],
)
def test_what_is_no_trainable_is_refused(trainable, says):
    with pytest.raises(TrainableError, match=says):
        prepare(trainable)


class Holder:
    def __init__(self):
        self.inner_lock = threading.Lock()


def capturing(holder, lock):
    return (lambda config: holder), (lambda config: lock)


HOLDS, LOCKS = capturing(Holder(), threading.Lock())


@pytest.mark.parametrize(
    ("trainable", "words"),
    [
        (HOLDS, r"captures `holder\.inner_lock`, a _thread\.lock, which cannot be shipped"),
        (LOCKS, r"captures `lock`, a _thread\.lock"),
        (functools.partial(train_more, factor=1, data=(i for i in range(3))), "captures `data`, a generator"),
    ],
)
def test_a_lock_deep_inside_a_captured_object_is_named(trainable, words):
    with pytest.raises(TrainableError, match=words):
        prepare(trainable)


def test_a_large_captured_object_is_warned_of():
    data = np.zeros(2_000_000)
    with pytest.warns(UserWarning, match=r"takes 16 MB .*with_parameters"):
        prepare(lambda config: data.sum())


def test_modules_that_are_referred_to_are_found_also_through_local_functions_and_inside_bodies():
    import json

    def inner():
        return json.dumps(np.zeros(1).tolist())

    def outer(config):
        import torch

        return inner(), torch

    assert set(prepare(outer).imports) == {"json", "numpy", "torch"}


def test_a_function_that_can_be_found_again_has_an_import_path():
    assert prepare(train).import_path == f"{__file__}:train"
    assert prepare(lambda config: 1).import_path == ""


def test_resources_and_parameters_are_found_through_both_wrappers_in_any_order():
    for wrapped in (
        with_resources(with_parameters(train_more, factor=2), {"cpu": 2}),
        with_parameters(with_resources(train_more, {"cpu": 2}), factor=2),
        with_parameters(with_parameters(with_resources(train_more, {"cpu": 2}), factor=1), factor=2),
    ):
        prepared = prepare(wrapped)
        assert prepared.name == "train_more"
        assert prepared.resources == Resources((Bundle(cpu=2.0),))
        assert prepared.objects == {"factor": 2}
    wrapped_class = prepare(with_resources(with_parameters(Stepper, data=1), {"gpu": 1}))
    assert (wrapped_class.name, wrapped_class.kind, wrapped_class.objects) == ("Stepper", "class", {"data": 1})
    assert wrapped_class.resources == Resources((Bundle(gpu=1.0),))


def test_wrapped_trainables_still_run_by_hand():
    assert with_parameters(lambda config, data: (config, data), data=3)(1) == (1, 3)
    assert with_resources(with_parameters(Stepper, data=3), {"cpu": 2})({}).data == 3


def test_an_object_that_is_no_parameter_is_refused_by_name():
    with pytest.raises(TrainableError, match=r"with_parameters cannot pass .*nonsense"):
        with_parameters(train_more, factor=1, nonsense=2)


def test_stored_objects_come_back_equal_private_and_writable(tmp_path):
    import torch

    objects = {
        "array": np.arange(10.0),
        "tensor": torch.arange(5),
        "other": {"a": [1, "b"]},
        "half": torch.ones(3).bfloat16(),
    }
    path = store_objects(objects, tmp_path)
    assert store_objects(objects, tmp_path) == path
    first, second = load_objects(path), load_objects(path)
    first["array"][0] = 99.0
    assert second["array"][0] == 0.0
    assert np.array_equal(second["array"], objects["array"])
    assert torch.equal(second["tensor"], objects["tensor"])
    assert second["other"] == objects["other"]
    assert torch.equal(second["half"], objects["half"])
    assert second["array"].ctypes.data % 64 == second["tensor"].data_ptr() % 64 == 0  # both are in the file
    with pytest.raises(TrainableError, match="cannot store the object 'bad'"):
        store_objects({"good": 1, "bad": threading.Lock()}, tmp_path)


def test_functions_and_large_arrays_in_a_config_travel_and_are_not_copied_to_be_checked():
    seen = []

    class Large(np.ndarray):
        def __reduce_ex__(self, protocol):
            seen.append(protocol)
            return super().__reduce_ex__(protocol)

    config = {"f": lambda x: x + 1, "large": np.zeros(10).view(Large), "lr": sweep.uniform(0, 1)}
    refuse_unpicklable(config)
    assert seen == [5]  # the protocol that passes arrays by reference


def test_code_that_travels_by_value_keeps_the_name_of_its_file_for_tracebacks():
    def outer(config):
        def inner():
            return config

        return inner

    code = pickle.loads(ship(outer)[0]).__code__
    inner = next(constant for constant in code.co_consts if hasattr(constant, "co_filename"))
    assert code.co_filename == inner.co_filename == __file__


KNOWN: dict[type, list[str]] = {}


class Registering(type):
    """As Equinox does, it tells JAX of the fields that a class has when it is made."""

    def __new__(cls, name, bases, namespace):
        made = dataclasses.dataclass(init="__init__" not in namespace)(super().__new__(cls, name, bases, namespace))
        KNOWN[made] = [field.name for field in dataclasses.fields(made) if not field.metadata.get("static")]
        return made


class Base:
    """As Flax does."""

    def __init_subclass__(cls):
        dataclasses.dataclass(cls)
        KNOWN[cls] = [field.name for field in dataclasses.fields(cls)]


@pytest.mark.parametrize("style", [{"metaclass": Registering}, {}])
def test_a_class_of_the_script_that_registers_its_fields_does_so_where_it_arrives(monkeypatch, style):
    class Plain(*([] if style else [Base]), **style):
        x: float
        y: list = dataclasses.field(default_factory=list)

    class Module(*([] if style else [Base]), **style):
        width: int = dataclasses.field(metadata={"static": True})
        w: float = 0.5

        def __init__(self, width):
            super().__init__()
            self.width = width

        def other(self):
            return Module(self.width + 1)

    sent = ship(lambda config: [Plain(1.0), Module(2).other()])[0]
    monkeypatch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})  # as in another process
    plain, module = pickle.loads(sent)({})
    assert type(plain) is not Plain
    assert (plain.x, plain.y, module.width, module.w) == (1.0, [], 3, 0.5)
    assert [KNOWN[type(plain)], KNOWN[type(module)]] == [KNOWN[Plain], KNOWN[Module]]
