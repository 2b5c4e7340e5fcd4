"""ScalingConfig: the bundles of every known example, every mistake by its words, what a search leaves open."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest

import sweep
from searchers.space import choice, grid_search, randint, uniform
from sweep.accelerators import inventory
from sweep.core.packing import Packer
from sweep.core.resources import STRATEGIES, Bundle, Device, Node, Resources
from sweep.errors import ConfigError, ResourceError
from sweep.train import DataParallelTrainer
from sweep.train.scaling import ScalingConfig

V6E = {"use_tpu": True, "topology": "4x4", "accelerator_type": "TPU-V6E"}


def problems_of(**given: object) -> list[str]:
    """Return the lines of the error that a config gives, without its heading."""
    with pytest.raises(ResourceError) as error:
        ScalingConfig(**given)
    head, *lines = str(error.value).split("\n")
    if not lines:
        return [head.removeprefix("ScalingConfig: ")]
    assert head == f"ScalingConfig has {len(lines)} problems:"
    assert all(line.startswith("- ") for line in lines)
    return [line.removeprefix("- ") for line in lines]


def quietly(**given: object) -> ScalingConfig:
    """Return a config whose warnings are not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ScalingConfig(**given)


# Every example of the pages "Configuring Scale and Accelerators" and "Configuring Scale and GPUs".
EXAMPLES = [
    ({"num_workers": 8}, Resources((Bundle(cpu=1),) * 8)),
    ({"num_workers": 8, "use_gpu": True}, Resources((Bundle(gpu=1),) * 8)),
    ({"num_workers": 1, "use_gpu": True}, Resources((Bundle(gpu=1),))),
    (
        {"num_workers": 4, **V6E},
        Resources((Bundle(cpu=1, tpu=4, accelerator_type="TPU-V6E"),) * 4, bundles_per_slice=4),
    ),
    (
        {"num_workers": 8, **V6E},
        Resources((Bundle(cpu=1, tpu=4, accelerator_type="TPU-V6E"),) * 8, bundles_per_slice=4),
    ),
    ({"num_workers": 1, "use_gpu": True, "resources_per_worker": {"GPU": 2}}, Resources((Bundle(gpu=2),))),
    (
        {"num_workers": 4, **V6E, "resources_per_worker": {"TPU": 2}},
        Resources((Bundle(tpu=2, accelerator_type="TPU-V6E"),) * 4, "STRICT_SPREAD", bundles_per_slice=4),
    ),
    (
        {"num_workers": 1, "use_gpu": True, "accelerator_type": "A100"},
        Resources((Bundle(gpu=1, accelerator_type="A100"),)),
    ),
    (
        {"num_workers": 4, "use_tpu": True, "topology": "2x2x4", "accelerator_type": "TPU-V4"},
        Resources((Bundle(cpu=1, tpu=4, accelerator_type="TPU-V4"),) * 4, bundles_per_slice=4),
    ),
    (
        {"num_workers": 8, "use_gpu": True, "resources_per_worker": {"CPU": 4, "GPU": 2}},
        Resources((Bundle(cpu=4, gpu=2),) * 8),
    ),
    (
        {"num_workers": 8, "use_gpu": True, "resources_per_worker": {"CPU": 4, "GPU": 0.5}},
        Resources((Bundle(cpu=4, gpu=0.5),) * 8),
    ),
    (
        {"num_workers": 4, "resources_per_worker": {"CPU": 2}, "trainer_resources": {"CPU": 0}},
        Resources((Bundle(cpu=2),) * 4),
    ),
    (
        {"num_workers": 8, "trainer_resources": {"CPU": 4, "GPU": 1}},
        Resources((Bundle(cpu=4, gpu=1), *(Bundle(cpu=1),) * 8)),
    ),
]


@pytest.mark.parametrize(("given", "resources"), EXAMPLES)
def test_every_example_of_rays_pages_gives_its_bundles(given, resources):
    config = quietly(**given)
    assert config.to_resources() == resources
    assert config.as_placement_group_factory() == resources
    assert ((config.head,) if config.head else ()) + (config.resources_of_worker,) * config.num_workers == (
        resources.bundles
    )
    assert not config.is_open


@pytest.mark.parametrize(
    ("given", "bundle"),
    [
        ({}, Bundle(cpu=1)),
        ({"resources_per_worker": {}}, Bundle(cpu=1)),
        ({"use_gpu": True}, Bundle(gpu=1)),
        ({"use_gpu": True, "resources_per_worker": {"CPU": 4}}, Bundle(cpu=4, gpu=1)),
        ({"use_tpu": True}, Bundle(tpu=1)),
        ({"use_tpu": True, "accelerator_type": "v6e"}, Bundle(tpu=1, accelerator_type="TPU-V6E")),
        ({"use_tpu": True, "resources_per_worker": {"CPU": 4}}, Bundle(cpu=4, tpu=1)),
        (
            {"num_workers": 4, **V6E, "resources_per_worker": {"CPU": 8}},
            Bundle(cpu=8, tpu=4, accelerator_type="TPU-V6E"),
        ),
        (
            {"num_workers": 2, **V6E, "topology": "2x4", "chips_per_host": 4},
            Bundle(cpu=1, tpu=4, accelerator_type="TPU-V6E"),
        ),
        (
            {"num_workers": 1, **V6E, "topology": "2x4"},
            Bundle(cpu=1, tpu=8, accelerator_type="TPU-V6E"),
        ),
        (
            {"num_workers": 1, "use_tpu": True, "topology": "2x2", "accelerator_type": "v5e"},
            Bundle(cpu=1, tpu=4, accelerator_type="TPU-V5LITEPOD"),
        ),
        (
            {"resources_per_worker": {"CPU": 1, "memory": "4G", "licence": 2, "disk": 0.5}},
            Bundle(cpu=1, memory=4 * 10**9, custom=(("disk", 0.5), ("licence", 2.0))),
        ),
        ({"resources_per_worker": {"CPU": np.float32(0.5)}}, Bundle(cpu=0.5)),
        ({"use_gpu": True, "resources_per_worker": {"GPU": np.int64(2)}}, Bundle(gpu=2)),
    ],
)
def test_what_a_worker_holds(given, bundle):
    config = ScalingConfig(**given)
    assert config.resources_of_worker == bundle
    assert (config.num_cpus_per_worker, config.num_gpus_per_worker, config.num_tpus_per_worker) == (
        bundle.cpu,
        bundle.gpu,
        bundle.tpu,
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_strategy_is_that_of_the_request(name):
    resources = ScalingConfig(3, placement_strategy=name).to_resources()
    assert resources == Resources((Bundle(cpu=1),) * 3, name)


def test_the_request_says_whether_workers_may_share_a_gpu():
    config = ScalingConfig(2, True, resources_per_worker={"GPU": 0.5})
    assert config.to_resources(distinct_devices=True) == Resources((Bundle(gpu=0.5),) * 2, distinct_devices=True)
    assert config.to_resources() == Resources((Bundle(gpu=0.5),) * 2)


@pytest.mark.parametrize(
    ("given", "bundles_per_slice", "num_slices"),
    [
        ({"num_workers": 8, **V6E}, 4, 2),
        ({"num_workers": 8, **V6E, "resources_per_worker": {"TPU": 2}}, 8, 1),
        ({"num_workers": 2, **V6E, "topology": "2x4"}, 1, 2),
        ({"num_workers": 2, **V6E, "topology": "2x4", "resources_per_worker": {"TPU": 4}}, 2, 1),
        ({"num_workers": 2, **V6E, "topology": "2x4", "chips_per_host": 4}, 2, 1),
        ({"num_workers": 1, **V6E, "topology": "2x4"}, 0, 1),
        ({"num_workers": 1, **V6E, "topology": "1x1"}, 0, 1),
    ],
)
def test_workers_fill_whole_slices_except_one_that_is_alone_on_one_host(given, bundles_per_slice, num_slices):
    config = ScalingConfig(**given)
    assert config.to_resources().bundles_per_slice == bundles_per_slice
    assert config.slice_plan is not None
    assert config.slice_plan.num_slices == num_slices


CHIPS = tuple(Device(f"tpu{i}", "tpu", "TPU-V6E", visible=str(i), labels=("TPU-V6E",)) for i in range(4))
TWO_SLICES = [Node(f"{name}{i}", 8, devices=CHIPS, slice=name) for name in "ab" for i in range(4)]


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ({"num_workers": 4}, ["a0", "a1", "a2", "a3"]),
        ({"num_workers": 8}, ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]),
        ({"num_workers": 8, "resources_per_worker": {"TPU": 2}}, ["a0", "a0", "a1", "a1", "a2", "a2", "a3", "a3"]),
        ({"num_workers": 4, "resources_per_worker": {"TPU": 2}}, ["a0", "a1", "a2", "a3"]),
        (
            {"num_workers": 4, "resources_per_worker": {"TPU": 2}, "trainer_resources": {"CPU": 1}},
            ["a0", "a1", "a2", "a3"],
        ),
    ],
)
def test_workers_come_to_lie_on_the_hosts_of_their_plan(given, hosts):
    config = quietly(**V6E, **given)
    placement = Packer(TWO_SLICES).place(config.to_resources(), ("00000_00000", 1))
    assert placement is not None
    bundles = placement.bundles[config.head is not None :]
    assert [bundle.node for bundle in bundles] == hosts
    assert {len(bundle.devices) for bundle in bundles} == {config.num_tpus_per_worker}


@pytest.mark.parametrize(
    ("given", "totals"),
    [
        ({}, {"CPU": 1}),
        ({"num_workers": 3, "use_gpu": True, "resources_per_worker": {"CPU": 2}}, {"CPU": 6, "GPU": 3}),
        ({"num_workers": 4, **V6E}, {"CPU": 4, "TPU": 16}),
        (
            {"num_workers": 2, "resources_per_worker": {"zeta": 1, "memory": "1G", "CPU": 1, "alpha": 2}},
            {"CPU": 2, "memory": 2e9, "alpha": 4, "zeta": 2},
        ),
        ({"num_workers": 8, "trainer_resources": {"CPU": 4, "GPU": 1}}, {"CPU": 12, "GPU": 1}),
    ],
)
def test_the_totals_are_those_of_all_workers_and_the_head(given, totals):
    found = quietly(**given).total_resources
    assert found == totals
    assert list(found) == list(totals)


@pytest.mark.parametrize(
    "value",
    [2.0, 2.5, "4", None, True, -1, 0, math.inf, (8, 2), (0, 4), (1.0, 2.0), (1, 2.5), (True, 2), (1,), (1, 2, 3), ()],
)
def test_the_number_of_workers_is_one_whole_number_or_the_least_and_the_most(value):
    (line,) = problems_of(num_workers=value)
    assert f"num_workers is {value!r}; expected a whole number of at least 1, or the least and the most" in line


def test_of_a_range_of_workers_the_least_is_asked_for():
    config = ScalingConfig(num_workers=(2, 8), use_gpu=True, resources_per_worker={"GPU": 0.25})
    assert config.to_resources(shared_devices=True) == Resources((Bundle(gpu=0.25),) * 2, shared_devices=True)
    assert config.total_resources == {"GPU": 0.5}
    assert (config.num_workers, ScalingConfig(num_workers=[2, 8]).num_workers) == ((2, 8), [2, 8])
    assert ScalingConfig(num_workers=(1, 1)).to_resources() == ScalingConfig().to_resources()


@pytest.mark.parametrize("value", [-1, "60", None, True, math.nan])
def test_how_often_a_group_is_resized_is_a_number_of_seconds(value):
    (line,) = problems_of(num_workers=(1, 2), resize_every_s=value)
    assert f"resize_every_s is {value!r}; expected seconds, at least 0" in line


def test_a_range_may_be_one_of_several_sizes_and_then_other_trials_keep_theirs():
    trainer = DataParallelTrainer(print, scaling_config=ScalingConfig(resize_every_s=5))
    space = trainer.space_of({"scaling_config": {"num_workers": grid_search([3, (2, 8)])}})
    assert trainer.elastic_of(space) == {"num_workers": None, "resize_every_s": 5.0}
    assert [len(one.bundles) for one in trainer.requests_of(space)] == [3, 2]
    assert trainer.elastic_of({}) is None
    assert DataParallelTrainer(print, scaling_config=ScalingConfig((2, 8))).elastic_of({})["num_workers"] == (2, 8)


def test_an_elastic_group_needs_processes():
    trainer = DataParallelTrainer(lambda config: None, scaling_config=ScalingConfig(num_workers=(1, 2)))
    with pytest.raises(ConfigError, match="a group of several workers needs processes"):
        sweep.run(trainer, engine="inline", verbose=0)


def test_a_range_of_workers_fills_no_slices_and_has_no_head():
    (line,) = problems_of(num_workers=(4, 8), **V6E)
    assert "num_workers is (4, 8) and use_tpu is True; expected one number: workers fill whole slices." in line
    (line,) = problems_of(num_workers=(4, 8), trainer_resources={"CPU": 1})
    assert "num_workers is (4, 8) and there are trainer_resources" in line


@pytest.mark.parametrize("name", ["use_gpu", "use_tpu"])
@pytest.mark.parametrize("value", [1, 0, "yes", None, [True]])
def test_a_flag_is_true_or_false(name, value):
    (line,) = problems_of(**{name: value})
    assert line.startswith(f"{name} is {value!r}; expected True or False. How many each worker has")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"resources_per_worker": {"GPU": 1}}, "has GPU=1 and use_gpu is False; set use_gpu=True."),
        ({"use_tpu": True, "resources_per_worker": {"GPU": 0.5, "TPU": 1}}, "has GPU=0.5 and use_gpu is False;"),
        ({"resources_per_worker": {"TPU": 4}}, "has TPU=4 and use_tpu is False; set use_tpu=True."),
        (
            {"use_gpu": True, "resources_per_worker": {"GPU": 0}},
            "resources_per_worker has GPU=0; expected more than 0.",
        ),
        (
            {"use_tpu": True, "resources_per_worker": {"TPU": 0}},
            "resources_per_worker has TPU=0; expected more than 0.",
        ),
        ({"use_gpu": True, "use_tpu": True}, "use_gpu and use_tpu are both True; expected one of them."),
        ({"resources_per_worker": {"CPU": 0}}, "resources_per_worker asks for nothing"),
        ({"resources_per_worker": {"memory": "0G"}}, "resources_per_worker asks for nothing"),
    ],
)
def test_flags_and_amounts_agree(given, words):
    (line,) = problems_of(**given)
    assert words in line


@pytest.mark.parametrize("field", ["resources_per_worker", "trainer_resources"])
@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        *(
            ({name: 1, "licence": 1}, f"{name!r}; did you mean {right!r}?")
            for names, right in (
                ("cpu cpus num_cpus", "CPU"),
                ("gpu gpus num_gpus", "GPU"),
                ("tpu num_tpus", "TPU"),
                ("Memory mem", "memory"),
            )
            for name in names.split()
        ),
        *(({"CPU": value}, "expected a number of at least 0") for value in (-1, math.nan, True, "2", None)),
        ({"licence": -0.5}, "licence=-0.5; expected a number of at least 0."),
        *(({"memory": value}, f"memory={value!r} is no amount of memory") for value in (-1, "lots", True)),
        ({"accelerator_type:A100": 0.001}, "accelerator_type is a field of its own"),
        ({"custom_resources": {"licence": 1}}, "custom names stand here"),
        ({3: 1}, "expected a text such as"),
        *((value, "expected a dict such as {'CPU': 2, 'GPU': 1}.") for value in (4, "CPU", [("CPU", 1)], True)),
    ],
    ids=str,
)
def test_amounts_are_numbers_under_known_names(field, amounts, words):
    (line,) = problems_of(**{field: amounts})
    assert line.startswith(field)
    assert words in line


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"use_gpu": True, "resources_per_worker": {"GPU": 1.5}}, "gpu=1.5; expected a whole number, or a share"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": -1}}, "gpu=-1.0; expected a number of at least 0."),
        ({"trainer_resources": {"GPU": 2.5}}, "gpu=2.5; expected a whole number"),
        ({"trainer_resources": {"TPU": 4}}, "trainer_resources has TPU; expected no chips"),
        *(
            ({"use_tpu": True, "resources_per_worker": {"TPU": number}}, "expected 1, 2, 4 or 8")
            for number in (3, 5, 16, 0.5)
        ),
        ({"num_workers": 4, **V6E, "resources_per_worker": {"TPU": 3}}, "TPU is 3; expected 1, 2, 4 or 8"),
    ],
)
def test_devices_come_whole_or_as_a_share_of_one_gpu(given, words):
    (line,) = problems_of(**given)
    assert words in line


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("placement_strategy", "pack", "expected 'PACK', 'SPREAD', 'STRICT_PACK' or 'STRICT_SPREAD'."),
        ("placement_strategy", "SPRED", "Did you mean 'SPREAD'?"),
        ("placement_strategy", ["PACK"], "expected 'PACK', "),
        ("gpu_visibility", "isolated", "Did you mean 'isolate'?"),
        ("gpu_visibility", True, "expected 'share' or 'isolate'."),
        *(("label_selector", value, "expected None: nodes have no labels.") for value in ({"zone": "a"}, {})),
    ],
)
def test_an_unknown_strategy_is_refused_with_the_nearest(field, value, words):
    (line,) = problems_of(**{field: value})
    assert line.startswith(f"{field} is {value!r}; ")
    assert words in line


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"use_gpu": True, "accelerator_type": "Z999"}, "unknown accelerator type 'Z999'."),
        ({"use_gpu": True, "accelerator_type": "A10O"}, "Did you mean 'A10"),
        ({"use_gpu": True, "accelerator_type": 100}, "accelerator_type is 100; expected a text such as 'A100'"),
        ({"use_gpu": True, "accelerator_type": "TPU-V6E"}, "have no such devices; set use_tpu=True"),
        (
            {"accelerator_type": "A100"},
            "accelerator_type is 'A100' and the workers have no such devices; set use_gpu=True.",
        ),
        ({"accelerator_type": "TPU-V6E"}, "and the workers have no such devices; set use_tpu=True."),
        ({"use_tpu": True, "accelerator_type": "A100"}, "unknown TPU type 'A100'. Known: v2, v3, "),
        ({"use_tpu": True, "accelerator_type": "TPU-V6"}, "unknown TPU type 'TPU-V6'. Did you mean 'v6e'?"),
        ({"use_tpu": True, "accelerator_type": "v6e-16"}, "names a whole slice; expected a generation."),
    ],
)
def test_an_accelerator_type_is_that_of_the_workers_devices(given, words):
    (line,) = problems_of(**given)
    assert words in line


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_workers": 4, "use_tpu": True}, ["there is no topology; set it", "there is no accelerator_type; set it"]),
        ({"num_workers": 4, "use_tpu": True, "accelerator_type": "TPU-V6E"}, ["there is no topology; set it"]),
        ({"num_workers": 4, "use_tpu": True, "topology": "4x4"}, ["there is no accelerator_type; set it"]),
        ({"use_tpu": True, "topology": "2x2"}, ["accelerator_type is None; expected a text"]),
        ({"topology": "4x4"}, ["topology is '4x4' and use_tpu is False; set use_tpu=True, or leave topology out."]),
        ({"chips_per_host": 4}, ["chips_per_host is 4 and use_tpu is False"]),
        ({"use_tpu": True, "chips_per_host": 4}, ["chips_per_host is 4, and there is no topology;"]),
    ],
)
def test_several_tpu_workers_need_a_slice_and_only_tpu_workers_have_one(given, words):
    lines = problems_of(**given)
    assert len(lines) == len(words)
    assert all(part in line for line, part in zip(lines, words, strict=True))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_workers": 1}, "so expected a multiple of 4: 4, 8, 12 ..."),
        ({"num_workers": 6, "resources_per_worker": {"TPU": 2}}, "so expected a multiple of 4: 4, 8, 12 ..."),
        ({"num_workers": 4, "resources_per_worker": {"TPU": 8}}, "a worker asks for 8 TPU chips; expected 1, 2 or 4"),
        ({"num_workers": 4, "topology": "3x5"}, "topology '3x5' is no slice of v6e; the nearest ones are 2x8, 4x4"),
        ({"num_workers": 4, "topology": "2x2x4"}, "topology '2x2x4' has 3 dimensions; v6e has slices of 2"),
        ({"num_workers": 4, "topology": (4, 4)}, "topology is (4, 4); expected numbers with x between them"),
        ({"num_workers": 4, "topology": ""}, "topology is ''; expected numbers with x between them"),
        ({"num_workers": 4, "chips_per_host": 2}, "chips_per_host is 2; expected 1, 4 or 8"),
    ],
)
def test_tpu_workers_fill_whole_slices(given, words):
    (line,) = problems_of(**(V6E | given))
    assert words in line


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ({"num_workers": 4}, "STRICT_SPREAD"),
        ({"num_workers": 1, "topology": "2x4"}, "STRICT_PACK"),
        ({"num_workers": 2, "topology": "2x4", "resources_per_worker": {"TPU": 4}}, "STRICT_PACK"),
    ],
)
def test_a_strict_strategy_that_slices_allow_is_taken(given, strategy):
    assert ScalingConfig(**V6E | given, placement_strategy=strategy).to_resources().strategy == strategy


@pytest.mark.parametrize(
    ("given", "heads"),
    [
        (
            {
                "num_workers": True,
                "topology": "4x4",
                "resources_per_worker": {"gpu": 1, "CPU": -1, "licence": 1},
                "trainer_resources": {"memory": "much"},
                "gpu_visibility": "all",
            },
            [
                "num_workers is True",
                "gpu_visibility is 'all'",
                "resources_per_worker: unknown resource 'gpu'",
                "resources_per_worker: a trial asks for cpu=-1",
                "trainer_resources: memory='much' is no amount of memory",
                "topology is '4x4' and use_tpu is False",
            ],
        ),
        (
            V6E | {"num_workers": 6, "resources_per_worker": {"TPU": 8}, "chips_per_host": 2},
            ["chips_per_host is 2", "a worker asks for 8 TPU chips"],
        ),
    ],
)
def test_all_problems_are_listed_in_one_error(given, heads):
    assert [line.split(";")[0].split(".")[0] for line in problems_of(**given)] == heads


def test_fields_after_the_second_are_given_by_name():
    with pytest.raises(TypeError):
        ScalingConfig(2, True, True)  # the third and all others are given by name


def test_chips_that_stay_unused_are_warned_of_once_where_the_config_is_made():
    with pytest.warns(UserWarning, match="stay unused") as caught:
        config = ScalingConfig(num_workers=4, **V6E, resources_per_worker={"TPU": 2})
    (warning,) = caught
    assert "8 of the 16 chips of every slice stay unused" in str(warning.message)
    assert warning.filename == __file__
    assert config.to_resources().bundles_per_slice == 4  # quiet: warnings are errors here
    assert config.merged({"placement_strategy": "SPREAD"}).num_workers == 4


@pytest.mark.parametrize(
    ("head", "bundle"),
    [
        ({"CPU": 0}, None),
        ({"CPU": 1}, Bundle(cpu=1)),
        ({"CPU": 4, "GPU": 1}, Bundle(cpu=4, gpu=1)),
        ({"memory": "1G"}, Bundle(memory=10**9)),
    ],
)
def test_trainer_resources_are_deprecated_and_honoured_as_a_head(head, bundle):
    with pytest.warns(DeprecationWarning, match="trainer_resources") as caught:
        config = ScalingConfig(2, trainer_resources=head)
    (warning,) = caught
    assert str(warning.message).startswith(f"trainer_resources={head!r} is deprecated: ")
    assert warning.filename == __file__
    assert config.head == bundle
    assert len(config.to_resources().bundles) == 2 + (bundle is not None)


@pytest.mark.parametrize(
    "given",
    [
        {"num_workers": grid_search([2, 4])},
        {"num_workers": choice([2, 4])},
        {"num_workers": randint(1, 4)},
        {"use_tpu": True, "accelerator_type": "v6e", "topology": choice(["2x2", "2x4"])},
        {"use_gpu": True, "accelerator_type": grid_search(["A100", "H100"])},
        {"resources_per_worker": {"CPU": choice([1, 2])}},
        {"resources_per_worker": {"CPU": 1, "licence": uniform(0, 1)}},
        {"resources_per_worker": grid_search([{"CPU": 1}, {"CPU": 2}])},
        {"resources_per_worker": choice([{"CPU": 1}, {"CPU": 2}])},
        {"use_gpu": choice([True, False]), "resources_per_worker": {"GPU": 1}},
        {"use_gpu": True, "resources_per_worker": {"GPU": choice([0.5, 1])}},
        {**V6E, "num_workers": grid_search([4, 8])},
        {**V6E, "num_workers": 6, "resources_per_worker": {"TPU": choice([2, 4])}},
        {"use_tpu": True, "num_workers": 4, "topology": "4x4", "accelerator_type": choice(["v5e", "v6e"])},
    ],
)
def test_a_field_may_hold_what_a_search_decides(given):
    config = ScalingConfig(**given)
    assert config.is_open
    assert config.to_config() == given
    for ask in (
        config.to_resources,
        lambda: config.resources_of_worker,
        lambda: config.head,
        lambda: config.slice_plan,
        lambda: config.total_resources,
    ):
        with pytest.raises(ResourceError, match=r"is to be searched; expected values\. Use `merged`"):
            ask()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_workers": grid_search([1, 2]), "placement_strategy": "PAC"}, "placement_strategy is 'PAC'"),
        ({"num_workers": grid_search([1, 2]), "resources_per_worker": {"gpu": 1}}, "did you mean 'GPU'?"),
        ({"resources_per_worker": {"CPU": choice([1, 2]), "GPU": 1}}, "resources_per_worker has GPU=1 and use_gpu is"),
        ({"use_gpu": True, "use_tpu": True, "num_workers": choice([1])}, "both True"),
    ],
)
def test_what_is_decided_is_checked_all_the_same(given, words):
    (line,) = problems_of(**given)
    assert words in line


def test_an_open_config_is_closed_by_a_trials_values():
    config = ScalingConfig(grid_search([2, 4]), use_gpu=True, resources_per_worker={"GPU": choice([0.5, 1])})
    closed = config.merged({"num_workers": 2, "resources_per_worker": {"GPU": 0.5}})
    assert not closed.is_open
    assert closed.to_resources() == Resources((Bundle(gpu=0.5),) * 2)


def test_an_open_config_warns_of_what_is_decided():
    with pytest.warns(DeprecationWarning, match="trainer_resources") as caught:
        config = ScalingConfig(grid_search([4, 8]), **V6E, resources_per_worker={"TPU": 2}, trainer_resources={})
    assert len(caught) == 1
    assert config.merged({"num_workers": 4}).slice_plan.warnings  # quiet: warnings are errors here
    assert config.merged({"num_workers": 8}).slice_plan.warnings == ()


@pytest.mark.parametrize(("given", "resources"), EXAMPLES)
def test_a_config_survives_its_own_fields_and_pickling(given, resources):
    config = quietly(**given)
    assert quietly(**config.to_config()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert pickle.loads(pickle.dumps(config)).to_resources() == resources


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, {}),
        ({"num_workers": 1, "use_gpu": False, "placement_strategy": "PACK"}, {}),
        ({"num_workers": 2, "use_gpu": True}, {"num_workers": 2, "use_gpu": True}),
        ({"resources_per_worker": {}}, {"resources_per_worker": {}}),
        ({"num_workers": np.int64(2)}, {"num_workers": 2}),
        ({"resources_per_worker": {"CPU": np.float64(0.5)}}, {"resources_per_worker": {"CPU": 0.5}}),
    ],
)
def test_a_trials_config_holds_only_the_fields_that_were_given(given, fields):
    found = ScalingConfig(**given).to_config()
    assert found == fields
    assert repr(found) == repr(fields)


def test_a_config_keeps_values_of_its_own():
    amounts = {"CPU": 1}
    config = ScalingConfig(resources_per_worker=amounts)
    amounts["CPU"] = 100
    config.to_config()["resources_per_worker"]["CPU"] = 100
    assert config == ScalingConfig(resources_per_worker={"CPU": 1})
    assert config != ScalingConfig(num_workers=2)
    with pytest.raises(AttributeError):
        config.num_workers = 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "ScalingConfig()"),
        ({"num_workers": 8, "use_gpu": True}, "ScalingConfig(num_workers=8, use_gpu=True)"),
        ({"resources_per_worker": {"CPU": 2}}, "ScalingConfig(resources_per_worker={'CPU': 2})"),
        ({"num_workers": grid_search([1, 2])}, "ScalingConfig(num_workers={'grid_search': [1, 2]})"),
    ],
)
def test_a_config_shows_only_what_was_given(given, text):
    assert repr(ScalingConfig(**given)) == text


ONE_OR_TWO = choice([1, 2])
BASE = {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 4, "GPU": 1}}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (None, BASE),
        ({}, BASE),
        ({"num_workers": 8}, BASE | {"num_workers": 8}),
        ({"resources_per_worker": {"GPU": 2}}, BASE | {"resources_per_worker": {"GPU": 2}}),
        ({"resources_per_worker": None}, {"num_workers": 2, "use_gpu": True}),
        (
            {"use_gpu": False, "resources_per_worker": {"CPU": 1}},
            {"num_workers": 2, "resources_per_worker": {"CPU": 1}},
        ),
        (ScalingConfig(num_workers=8), BASE | {"num_workers": 8}),
        (ScalingConfig(), BASE),
        ({"num_workers": ONE_OR_TWO}, BASE | {"num_workers": ONE_OR_TWO}),
    ],
)
def test_overrides_win_field_by_field(overrides, expected):
    base = ScalingConfig(**BASE)
    assert base.merged(overrides) == ScalingConfig(**expected)
    assert base == ScalingConfig(**BASE)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"num_worker": 8}, "unknown field 'num_worker'. Did you mean 'num_workers'?"),
        ({3: 1}, "unknown field 3. Known: accelerator_type, "),
        ({"num_workers": 0}, "num_workers is 0"),
        ({"use_gpu": False}, "resources_per_worker has GPU=1 and use_gpu is False"),
        (4, "scaling_config is 4; expected a ScalingConfig, or a dict of its fields such as {'num_workers': 4}."),
        ([("num_workers", 4)], "scaling_config is [('num_workers', 4)]"),
    ],
)
def test_overrides_that_make_no_sense_are_refused(overrides, words):
    with pytest.raises(ResourceError) as error:
        ScalingConfig(**BASE).merged(overrides)
    assert words in str(error.value)


def test_a_type_that_only_a_declared_device_has_is_known():
    sweep.init(num_gpus=1, gpu_type="Prototype 7")
    try:
        request = ScalingConfig(use_gpu=True, accelerator_type="prototype 7").to_resources()
        assert Packer(inventory.available()).could_ever_fit(request)
        with pytest.raises(ResourceError, match="Prototype 8"):
            ScalingConfig(use_gpu=True, accelerator_type="Prototype 8")
    finally:
        sweep.shutdown()
