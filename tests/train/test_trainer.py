"""A trainer as a value: spaces, requests, specs and what its ranks run, without any process."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import pickle
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import sweep
from sweep.core.messages import Continue, Reported
from sweep.core.resources import Bundle, Resources
from sweep.errors import MetricError, ResourceError, UserCodeError
from sweep.train import (
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    get_context,
)
from sweep.train.fit import NestedResult
from sweep.train.jax import JaxTrainer
from sweep.train.tensorflow import DistributedTrainableCreator as TensorflowCreator
from sweep.train.tensorflow import TensorflowTrainer
from sweep.train.torch import DistributedTrainableCreator, TorchConfig, TorchTrainer
from sweep.train.trainer import Backend, GroupStartError
from sweep.worker import wire
from sweep.worker.adapters import run_function
from sweep.worker.group_environment import GroupSpec
from sweep.worker.parameters import load_objects, store_objects
from sweep.worker.rank import RankSession
from sweep.worker.session import Session, install, report
from sweep.worker.trainable import prepare

API = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def loop(config):
    report(got=config)


def one(cpu=1.0, gpu=0.0, **more):
    return Bundle(cpu=cpu, gpu=gpu, **more)


FIRST = wire.Rank(0, 2)
LR = sweep.uniform(0, 1)
WIDTH = sweep.choice([16, 32])
WORKERS = sweep.grid_search([1, 2])


@pytest.mark.parametrize(
    ("own", "given", "space"),
    [
        ({}, {}, {}),
        ({"lr": 0.1}, {}, {}),
        ({"lr": LR}, {}, {"train_loop_config": {"lr": LR}}),
        ({"lr": LR, "width": 8}, {}, {"train_loop_config": {"lr": LR}}),
        ({"lr": LR}, {"train_loop_config": {"lr": 0.2}}, {"train_loop_config": {"lr": 0.2}}),
        ({"lr": LR}, {"train_loop_config": {"width": WIDTH}}, {"train_loop_config": {"lr": LR, "width": WIDTH}}),
        ({"lr": 0.1}, {"train_loop_config": {"lr": LR}}, {"train_loop_config": {"lr": LR}}),
        ({"lr": 0.1}, {"train_loop_config": {}}, {"train_loop_config": {}}),
        ({"lr": 0.1}, {"train_loop_config": None}, {}),
        (
            {"net": {"lr": LR, "width": 8}},
            {"train_loop_config": {"net": {"width": WIDTH}}},
            {"train_loop_config": {"net": {"lr": LR, "width": WIDTH}}},
        ),
        # A grid is a value as a whole, although it is a dict.
        (
            {"net": sweep.grid_search([{"a": 1}, {"b": 2}])},
            {"train_loop_config": {"net": {"a": 3}}},
            {"train_loop_config": {"net": {"a": 3}}},
        ),
        (
            {"net": {"lr": LR}},
            {"train_loop_config": {"net": sweep.grid_search([{"a": 1}, {"b": 2}])}},
            {"train_loop_config": {"net": sweep.grid_search([{"a": 1}, {"b": 2}])}},
        ),
    ],
)
def test_what_is_searched_in_the_train_loop_config_is_the_trainers_own_and_then_what_is_given(own, given, space):
    assert DataParallelTrainer(loop, train_loop_config=own).space_of(given) == space


@pytest.mark.parametrize(
    ("own", "given", "scaling"),
    [
        ({}, None, None),
        ({"num_workers": 4}, None, None),
        ({"num_workers": WORKERS}, None, {"num_workers": WORKERS}),
        ({"num_workers": WORKERS, "use_gpu": True}, None, {"num_workers": WORKERS, "use_gpu": True}),
        ({"num_workers": WORKERS}, {"num_workers": 3}, {"num_workers": 3}),
        ({"use_gpu": True}, {"num_workers": WORKERS}, {"num_workers": WORKERS}),
        ({}, ScalingConfig(num_workers=WORKERS), {"num_workers": WORKERS}),
        ({}, ScalingConfig(2, use_gpu=True), {"num_workers": 2, "use_gpu": True}),
        # One worker is the default, and yet it is what was said.
        ({"num_workers": 4}, ScalingConfig(num_workers=1), {"num_workers": 1}),
        (
            {"num_workers": 4},
            sweep.grid_search([ScalingConfig(num_workers=1), {"num_workers": 2}]),
            sweep.grid_search([{"num_workers": 1}, {"num_workers": 2}]),
        ),
    ],
)
def test_scalings_in_a_space_are_dicts_of_the_fields_that_count(own, given, scaling):
    trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(**own))
    space = trainer.space_of({} if given is None else {"scaling_config": given})
    assert space == ({} if scaling is None else {"scaling_config": scaling})


def test_options_of_a_choice_of_scalings_become_dicts_too():
    options = [ScalingConfig(num_workers=1), ScalingConfig(num_workers=2, use_gpu=True)]
    space = DataParallelTrainer(loop).space_of({"scaling_config": sweep.choice(options)})
    assert space["scaling_config"].categories == [{"num_workers": 1}, {"num_workers": 2, "use_gpu": True}]
    function = sweep.sample_from(lambda config: ScalingConfig(num_workers=2))
    assert DataParallelTrainer(loop).space_of({"scaling_config": function}) == {"scaling_config": function}


def test_a_space_is_a_new_one_and_what_was_given_stays_as_it_is():
    given = {"train_loop_config": {"net": {"lr": LR}}, "scaling_config": {"num_workers": 2}}
    own = {"net": {"width": WIDTH}}
    trainer = DataParallelTrainer(loop, train_loop_config=own)
    own["lr"] = 7
    space = trainer.space_of(given)
    space["train_loop_config"]["net"]["lr"] = 1
    space["scaling_config"]["num_workers"] = 7
    assert given == {"train_loop_config": {"net": {"lr": LR}}, "scaling_config": {"num_workers": 2}}
    assert trainer.train_loop_config == {"net": {"width": WIDTH}}


@pytest.mark.parametrize(
    ("own", "given", "bundles"),
    [
        ({}, {}, [one()]),
        ({"num_workers": 2, "use_gpu": True}, {}, [one(0.0, 1.0)] * 2),
        ({"num_workers": 2, "use_gpu": True}, {"num_workers": 3}, [one(0.0, 1.0)] * 3),
        ({"num_workers": 2, "use_gpu": True}, {"use_gpu": False}, [one()] * 2),
        ({"resources_per_worker": {"CPU": 4}}, {"resources_per_worker": {"memory": "1G"}}, [one(0.0, memory=10**9)]),
        ({"num_workers": WORKERS}, {"num_workers": 2}, [one()] * 2),
        ({"num_workers": 2}, ScalingConfig(num_workers=3), [one()] * 3),
    ],
)
def test_a_trial_asks_for_a_bundle_for_each_worker_of_its_config(own, given, bundles):
    trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(**own))
    assert trainer.resources_of({"scaling_config": given}) == Resources(tuple(bundles))


GLOO, NCCL = TorchConfig("gloo"), TorchConfig("nccl")


@pytest.mark.parametrize(
    ("trainer", "devices"),
    [
        (DataParallelTrainer(loop), "shared"),
        (TorchTrainer(loop), "shared"),
        (TorchTrainer(loop, torch_config=GLOO), "shared"),
        (TorchTrainer(loop, torch_config=TorchConfig("cpu:gloo,cuda:gloo")), "shared"),
        (JaxTrainer(loop), ""),  # it talks by NCCL, and nobody can choose
        (TensorflowTrainer(loop), ""),
        (TorchTrainer(loop, torch_config=TorchConfig("ucc")), ""),
        (TorchTrainer(loop, torch_config=NCCL), "distinct"),
        (TorchTrainer(loop, torch_config=TorchConfig("cpu:gloo,cuda:nccl")), "distinct"),
        (DataParallelTrainer(loop, backend_config=NCCL), "distinct"),
    ],
)
def test_workers_with_shares_are_put_on_one_gpu_unless_they_talk_by_nccl(trainer, devices):
    config = {"scaling_config": {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"GPU": 0.5}}}
    expected = Resources(
        (one(0.0, 0.5),) * 2, distinct_devices=devices == "distinct", shared_devices=devices == "shared"
    )
    assert trainer.resources_of(config) == expected
    assert trainer.requests_of(config) == [expected]


@pytest.mark.parametrize(
    "scaling",
    [
        {"num_workers": 1, "resources_per_worker": {"GPU": 0.5}},
        {"num_workers": 2},
        {"num_workers": 2, "resources_per_worker": {"GPU": 0.6}},
        {"num_workers": 2, "resources_per_worker": {"GPU": 0.5}, "placement_strategy": "SPREAD"},
        {"num_workers": 2, "resources_per_worker": {"GPU": 0.5}, "placement_strategy": "STRICT_SPREAD"},
    ],
)
def test_workers_that_cannot_share_a_gpu_or_are_spread_have_their_own(scaling):
    config = {"scaling_config": {"use_gpu": True, **scaling}}
    assert not TorchTrainer(loop).resources_of(config).shared_devices
    assert TorchTrainer(loop).notices_of(config) == []


def test_that_workers_share_a_gpu_and_talk_by_gloo_is_said_where_nobody_has_chosen_it():
    config = {"scaling_config": {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"GPU": 0.25}}}
    (notice,) = TorchTrainer(loop).notices_of(config)
    assert "0.25 of a GPU each and share one; no backend was chosen" in notice
    assert "they talk by gloo. TorchConfig(backend='nccl') gives each a GPU of its own" in notice
    for quiet in (TorchTrainer(loop, torch_config=GLOO), TorchTrainer(loop, torch_config=NCCL), JaxTrainer(loop)):
        assert quiet.notices_of(config) == []


def sizes(requests):
    return [len(request.bundles) for request in requests]


@pytest.mark.parametrize(
    ("own", "scaling", "found"),
    [
        ({}, None, [1]),
        ({"num_workers": 3}, None, [3]),
        ({"num_workers": 3}, {"use_gpu": True}, [3]),
        ({}, {"num_workers": sweep.grid_search([4, 1, 4])}, [4, 1]),
        ({}, {"num_workers": sweep.choice([1, 2])}, [1, 2]),
        ({}, sweep.grid_search([{"num_workers": 5}, {"num_workers": sweep.choice([6, 7])}]), [5, 6, 7]),
        ({}, {"num_workers": WORKERS, "placement_strategy": sweep.choice(["PACK", "SPREAD"])}, [1, 1, 2, 2]),
        # These cannot be told before they are drawn.
        ({}, {"num_workers": sweep.randint(1, 9)}, []),
        ({}, {"resources_per_worker": {"CPU": sweep.choice([1, 2])}}, [1, 1]),
        ({}, sweep.sample_from(lambda config: {"num_workers": 2}), []),
        ({}, {"num_workers": sweep.grid_search(list(range(1, 50))), "use_gpu": sweep.choice([True] * 50)}, []),
    ],
)
def test_the_requests_of_a_space_are_those_of_all_its_options(own, scaling, found):
    trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(**own))
    assert sorted(sizes(trainer.requests_of({"scaling_config": scaling}))) == sorted(found)


def test_an_option_that_makes_no_sense_is_found_among_the_requests():
    with pytest.raises(ResourceError, match="num_workers is 0"):
        DataParallelTrainer(loop).requests_of({"scaling_config": {"num_workers": sweep.choice([1, 0])}})


@pytest.mark.parametrize(
    ("kind", "framework", "visibility", "num_ports"),
    [
        (DataParallelTrainer, "", "isolate", 0),
        (TorchTrainer, "torch", "share", 1),
        (JaxTrainer, "jax", "isolate", 1),
        (TensorflowTrainer, "tensorflow", "isolate", -1),
    ],
)
def test_the_group_of_a_trainer_is_that_of_its_framework(kind, framework, visibility, num_ports):
    spec = kind(loop).spec_of({})
    assert spec == GroupSpec(framework=framework, visibility=visibility)
    assert spec.num_ports == num_ports


def test_a_group_takes_over_what_trainer_and_scaling_say(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scaling = ScalingConfig(2, gpu_visibility="isolate", trainer_resources={"CPU": 1})
    trainer = TorchTrainer(
        loop,
        torch_config=TorchConfig("gloo"),
        scaling_config=scaling,
        run_config=RunConfig(
            failure_config=FailureConfig(hang_timeout_s=60), worker_runtime_env={"env_vars": {"NCCL_DEBUG": "INFO"}}
        ),
        resume_from_checkpoint=Checkpoint(tmp_path),
    )
    assert trainer.spec_of({}) == GroupSpec(
        framework="torch",
        backend="gloo",
        visibility="isolate",
        has_head=True,
        env={"NCCL_DEBUG": "INFO"},
        checkpoint=str(tmp_path),
        hang_s=60,
    )
    shared = {"scaling_config": {"gpu_visibility": "share"}}
    assert trainer.spec_of(shared).visibility == "share"


def test_workers_on_slices_are_counted_by_the_config_of_the_trial():
    trainer = JaxTrainer(loop)
    config = {"num_workers": 8, "use_tpu": True, "topology": "4x4", "accelerator_type": "TPU-V6E"}
    assert trainer.spec_of({"scaling_config": config}).workers_per_slice == 4
    assert trainer.resources_of({"scaling_config": config}).bundles_per_slice == 4


class Named:
    """A callable object, and a method, as train loops."""

    def __call__(self, config):
        report(called=config)

    def method(self, config):
        report(method=config)


@pytest.mark.parametrize(
    ("trainer", "imports"),
    [
        (DataParallelTrainer(loop), {"sweep.train.trainer"}),
        (
            TorchTrainer(loop),
            {"sweep.train.trainer", "sweep.train.torch", "sweep.train.torch_prepare", "torch", "torch.distributed"},
        ),
        (JaxTrainer(loop), {"sweep.train.trainer", "sweep.train.jax", "jax", "jax.numpy"}),
        (TensorflowTrainer(loop), {"sweep.train.trainer", "sweep.train.tensorflow"}),
    ],
)
def test_what_the_framework_needs_is_imported_before_ranks_are_forked(trainer, imports):
    assert imports <= set(prepare(trainer).imports)


def test_a_prepared_trainer_tells_the_driver_all_it_must_know():
    run_config = RunConfig(runtime_env={"env_vars": {"A": "1"}})
    trainer = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=run_config)
    prepared = prepare(trainer)
    assert prepared.resources({"scaling_config": {"num_workers": 3}}) == Resources((one(),) * 3)
    assert prepared.group({}) == GroupSpec(framework="torch", visibility="share", env={"A": "1"})
    assert prepared.space({"scaling_config": ScalingConfig(num_workers=4)}) == {"scaling_config": {"num_workers": 4}}
    assert prepared.requests({}) == [Resources((one(),) * 2)]
    assert prepared.env == {"A": "1"}
    assert prepared.objects == {}


class Peer:
    """A supervisor that answers every report with `go on`, and keeps what was sent."""

    def __init__(self):
        self.sent = []
        self._frames = wire.Frames()

    def send(self, data):
        self.sent += self._frames.feed(data)

    def receive(self):
        return Continue("abcde_00003", 1, self.sent[-1].seq)

    @property
    def kinds(self):
        return [type(message) for message in self.sent]

    @property
    def reports(self):
        filled_in = {"timestamp", "time_this_iter_s", "pid", "hostname"}
        return [
            {key: value for key, value in message.metrics.items() if key not in filled_in}
            for message in self.sent
            if isinstance(message, Reported)
        ]


@pytest.fixture
def run_rank(tmp_path):
    """Return `run(trainer, config, rank)`: runs what a rank would, and returns what its supervisor heard.

    With `is_shipped` it runs what was pickled, as a rank does; without, the very objects of the test.
    """

    def run(trainer, config, rank=FIRST, *, is_shipped=True, **changes):
        fields = dict.fromkeys(wire.Job._fields, "")
        fields.update(
            trial_id="abcde_00003", attempt=1, directory=str(tmp_path / "experiment"), base_count=0, rank=rank
        )
        peer = Peer()
        session = (Session if rank is None else RankSession)(wire.Job(**{**fields, **changes}), peer)
        body, objects = trainer.rank_body(trainer.train_loop_per_worker), {}
        if is_shipped:
            prepared = prepare(trainer)
            body = pickle.loads(prepared.payload)
            objects = load_objects(store_objects(prepared.objects, tmp_path)) if prepared.objects else {}
        install(session)
        try:
            run_function(session, body, config, objects)
        finally:
            install(None)
        return peer

    return run


def test_a_rank_says_that_it_has_joined_and_runs_the_loop_with_the_merged_config(run_rank):
    trainer = DataParallelTrainer(loop, train_loop_config={"lr": 0.1, "net": {"width": 8, "depth": 2}})
    peer = run_rank(trainer, {"train_loop_config": {"net": {"width": 16}}, "scaling_config": {"num_workers": 2}})
    assert peer.kinds == [wire.Joined, Reported]
    assert peer.reports == [{"got": {"lr": 0.1, "net": {"width": 16, "depth": 2}}}]
    assert run_rank(trainer, {}).reports == [{"got": {"lr": 0.1, "net": {"width": 8, "depth": 2}}}]


def test_what_was_searched_comes_from_the_trial_alone(run_rank):
    own = {"net": sweep.grid_search([{"a": 1}, {"b": 2}]), "lr": LR, "epochs": 3}
    peer = run_rank(
        DataParallelTrainer(loop, train_loop_config=own), {"train_loop_config": {"net": {"b": 2}, "lr": 0.5}}
    )
    assert peer.reports == [{"got": {"net": {"b": 2}, "lr": 0.5, "epochs": 3}}]


def test_a_loop_cannot_change_the_config_of_the_trial_or_of_the_trainer(run_rank):
    def changes_it(config):
        config["net"]["width"] = config["more"] = 1

    own, given = {"net": {"width": 8}}, {"train_loop_config": {"net": {"depth": 2}}}
    trainer = DataParallelTrainer(changes_it, train_loop_config=own)
    run_rank(trainer, given)
    assert given == {"train_loop_config": {"net": {"depth": 2}}}
    assert trainer.train_loop_config == {"net": {"width": 8}}


def takes_nothing():
    report(config="none")


def yields(config):
    for step in range(config["steps"]):
        yield {"step": step}


def takes_rest(*arguments):
    report(got=arguments[0])


@pytest.mark.parametrize(
    ("train_loop", "name", "reports"),
    [
        (loop, "loop", [{"got": {"steps": 2}}]),
        (takes_rest, "takes_rest", [{"got": {"steps": 2}}]),
        (yields, "yields", [{"step": 0}, {"step": 1}]),
        (lambda config: {"last": config["steps"]}, "lambda", []),
        (lambda config, other=None: report(other=other), "lambda", [{"other": None}]),
        (Named(), "Named", [{"called": {"steps": 2}}]),
        (Named().method, "method", [{"method": {"steps": 2}}]),
        (functools.partial(functools.partial(loop)), "loop", [{"got": {"steps": 2}}]),
        (functools.partial(lambda data, config: report(data=data), 5), "lambda", [{"data": 5}]),
        (
            sweep.with_parameters(lambda config, data: report(data=data, **config), data=[1]),
            "lambda",
            [{"data": [1], "steps": 2}],
        ),
    ],
)
def test_a_loop_of_any_form_is_called_with_its_config_and_names_its_trainer(run_rank, train_loop, name, reports):
    trainer = DataParallelTrainer(train_loop)
    assert run_rank(trainer, {"train_loop_config": {"steps": 2}}).reports == reports
    prepared = prepare(trainer)
    assert (prepared.name, prepared.kind, prepared.can_save_on_demand) == (name, "function", False)


@pytest.mark.parametrize("train_loop", [takes_nothing, lambda **more: report(config="none")], ids=["nothing", "kw"])
def test_a_loop_without_a_config_is_called_with_nothing(run_rank, train_loop):
    assert run_rank(DataParallelTrainer(train_loop), {}).reports == [{"config": "none"}]


def test_only_rank_0_sends_its_metrics(run_rank):
    assert run_rank(DataParallelTrainer(loop), {"train_loop_config": {"a": 1}}, wire.Rank(1, 2)).reports == [{}]


def test_the_loop_knows_which_worker_it_is(run_rank):
    def who(config):
        context = get_context()
        numbers = (
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
            context.get_node_rank(),
        )
        report({"who": list(numbers), "devices": list(context.get_device_indices())})

    rank = wire.Rank(0, 4, local_rank=1, local_size=2, node_rank=1, num_nodes=2, devices=(2, 3))
    assert run_rank(DataParallelTrainer(who), {}, rank).reports == [{"who": [0, 4, 1, 1], "devices": [2, 3]}]


@dataclass(frozen=True)
class Recorded(Backend):
    """A backend that notes when it is called, and fails when it is told to."""

    calls: list[str] = field(default_factory=list)
    is_broken: bool = False

    def start(self, rank):
        self.calls.append(f"start {rank.rank} of {rank.size}")
        if self.is_broken:
            raise OSError("no route")

    def finish(self):
        self.calls.append("finish")


@pytest.mark.parametrize(
    ("train_loop", "middle"),
    [
        (lambda calls: calls.append("loop"), ["loop"]),
        (lambda calls: (calls.append(f"yield {i}") or {"i": i} for i in range(2)), ["yield 0", "yield 1"]),
    ],
    ids=["function", "generator"],
)
def test_the_group_is_joined_before_the_loop_and_left_after_it(run_rank, train_loop, middle):
    backend = Recorded()
    trainer = DataParallelTrainer(lambda config: train_loop(backend.calls), backend_config=backend)
    peer = run_rank(trainer, {}, wire.Rank(1, 2), is_shipped=False)
    assert backend.calls == ["start 1 of 2", *middle, "finish"]
    assert peer.kinds[0] == wire.Joined


def raises(config):
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("train_loop", "backend", "error", "cause"),
    [
        (loop, Recorded(is_broken=True), (GroupStartError, "OSError: no route"), OSError),
        (raises, Recorded(), (ValueError, "boom"), type(None)),  # and nothing is left in order
    ],
)
def test_a_group_that_is_not_joined_is_a_failed_start_and_a_loop_that_raises_is_not(
    run_rank, train_loop, backend, error, cause
):
    with pytest.raises(error[0], match=error[1]) as caught:
        run_rank(DataParallelTrainer(train_loop, backend_config=backend), {}, is_shipped=False)
    assert isinstance(caught.value.__cause__, cause)
    assert backend.calls == ["start 0 of 2"]


@pytest.mark.parametrize(
    ("own", "config"),
    [
        ({}, {}),
        ({"num_workers": 4}, {"scaling_config": {"num_workers": 1}}),
        ({"num_workers": WORKERS}, {"scaling_config": {"num_workers": 1}}),
        ({}, {"scaling_config": {"use_gpu": True}}),
        ({}, {"scaling_config": ScalingConfig(use_gpu=True)}),
    ],
)
def test_a_group_of_one_runs_where_there_are_no_ranks(run_rank, own, config):
    backend = Recorded()
    scaling = ScalingConfig(**own)
    trainer = DataParallelTrainer(takes_nothing, scaling_config=scaling, backend_config=backend)
    peer = run_rank(trainer, config, None, is_shipped=False)
    assert peer.kinds == [Reported]
    assert backend.calls == ["start 0 of 1", "finish"]


@pytest.mark.parametrize(
    ("own", "config", "number"),
    [
        ({"num_workers": 4}, {}, 4),
        ({}, {"scaling_config": {"num_workers": 2}}, 2),
        ({}, {"scaling_config": ScalingConfig(num_workers=3)}, 3),
    ],
)
def test_larger_groups_are_refused_there(run_rank, own, config, number):
    backend = Recorded()
    trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(**own), backend_config=backend)
    with pytest.raises(UserCodeError, match=f"the group has {number} workers; use engine='local'"):
        run_rank(trainer, config, None, is_shipped=False)
    assert backend.calls == []


def with_optional_directory(config, data=None, checkpoint_dir=None):
    report(config=config, directory=checkpoint_dir, data=data)


def test_the_whole_config_of_a_trial_is_the_functions(run_rank):
    trainer = TensorflowCreator(loop, num_workers=2)
    config = {"lr": LR, "scaling_config": 3}
    assert trainer.space_of(config) == config
    assert trainer.resources_of({"scaling_config": 3}) == Resources((one(),) * 2)
    assert trainer.requests_of(config) == [Resources((one(),) * 2)]
    assert run_rank(trainer, {"lr": 0.1, "scaling_config": 3}).reports == [{"got": {"lr": 0.1, "scaling_config": 3}}]


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (lambda config, checkpoint_dir: report(config=config, directory=checkpoint_dir), {}),
        (with_optional_directory, {"data": None}),
        (sweep.with_parameters(with_optional_directory, data=[1, 2]), {"data": [1, 2]}),
    ],
    ids=["required", "optional", "with_parameters"],
)
def test_a_function_with_a_checkpoint_dir_is_given_the_directory_to_continue_from(run_rank, tmp_path, function, more):
    trainer = TensorflowCreator(function)
    expected = {"config": {"lr": 0.1}, **more}
    assert run_rank(trainer, {"lr": 0.1}).reports == [{"directory": None, **expected}]
    saved = tmp_path / "saved"
    saved.mkdir()
    peer = run_rank(trainer, {"lr": 0.1}, checkpoint=str(saved))
    assert peer.reports == [{"directory": str(saved), **expected}]
    bound = sweep.with_parameters(function, checkpoint_dir="mine")
    assert run_rank(TensorflowCreator(bound), {"lr": 0.1}).reports == [{"directory": "mine", **expected}]


@pytest.mark.parametrize(
    ("arguments", "resources"),
    [
        ({}, Resources((one(),))),
        ({"num_workers": 3}, Resources((one(),) * 3)),
        ({"num_workers": 2, "num_cpus_per_worker": 2}, Resources((one(2.0),) * 2)),
        ({"num_workers": 2, "use_gpu": True}, Resources((one(1.0, 1.0),) * 2)),
        (
            {"num_workers": 2, "use_gpu": True, "num_gpus_per_worker": 0.5},
            Resources((one(1.0, 0.5),) * 2, shared_devices=True),
        ),
        ({"num_gpus_per_worker": 2}, Resources((one(1.0, 2.0),))),
        ({"num_workers": 2, "num_workers_per_host": 2}, Resources((one(),) * 2, "STRICT_PACK")),
        ({"num_workers": 2, "num_workers_per_host": 1}, Resources((one(),) * 2, "STRICT_SPREAD")),
        ({"num_workers": 2, "backend": "nccl"}, Resources((one(),) * 2, "PACK", True)),
    ],
    ids=str,
)
def test_the_arguments_of_a_creator_are_a_request(arguments, resources):
    assert DistributedTrainableCreator(loop, **arguments).resources_of({}) == resources


def test_the_creator_for_tensorflow_has_two_workers_unless_told_otherwise():
    assert TensorflowCreator(loop).resources_of({}) == Resources((one(),) * 2)
    assert TensorflowCreator(loop).spec_of({}).framework == "tensorflow"
    assert TensorflowCreator(loop, num_workers=1, use_gpu=True).resources_of({}) == Resources((one(1.0, 1.0),))


def test_a_creator_chooses_backend_and_timeout():
    backend = DistributedTrainableCreator(loop, backend="gloo", timeout_s=60).backend
    assert backend == TorchConfig("gloo", 60)


def documented():
    """Return module and text of each name in the tables of the reference's section on training groups."""
    section = API.read_text(encoding="utf-8").partition("\n## Training groups")[2].partition("\n## ")[0]
    for part in section.split("\n### `")[1:]:
        module, _, text = part.partition("`")
        for shown in re.findall(r"^\| `([^`]+)` \|", text, flags=re.M):
            yield module, shown


@pytest.mark.parametrize(("module", "shown"), list(documented()), ids=lambda text: text.partition("(")[0])
def test_the_reference_shows_the_signatures_of_training_groups_as_they_are(module, shown):
    name = shown.partition("(")[0]
    signature = inspect.signature(getattr(importlib.import_module(module), name))
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert shown == f"{name}{signature.replace(parameters=parameters, return_annotation=signature.empty)}"


@pytest.mark.parametrize(
    "module",
    [
        "sweep.train.torch",
        "sweep.train.jax",
        "sweep.train.tensorflow",
        "sweep.train.horovod",
        "sweep.integration.horovod",
        "sweep.train",
    ],
)
def test_the_reference_lists_every_name_of_a_training_module(module):
    shown = {text.partition("(")[0] for home, text in documented() if home == module}
    text = API.read_text(encoding="utf-8").partition("\n## Training groups")[2]
    in_prose = set(re.findall(r"`(\w+)`", text.partition("| name |")[0])) if module == "sweep.train" else set()
    assert set(importlib.import_module(module).__all__) <= shown | in_prose


def test_the_best_checkpoint_of_a_nested_fit_has_a_number_and_a_nested_metric_is_found() -> None:
    kept = tuple((Checkpoint(f"/c{i}"), {"eval": {"loss": loss}}) for i, loss in enumerate((math.nan, 2.0, 1.0, 1.0)))
    result = NestedResult({}, None, "/", {}, best_checkpoints=kept)
    assert result.get_best_checkpoint("eval/loss", "min").path == "/c2"
    with pytest.raises(MetricError, match="no report with a checkpoint has a number under 'loss'"):
        result.get_best_checkpoint("loss", "min")
