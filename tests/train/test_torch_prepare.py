"""Devices, models, data loaders and seeds of a torch loop, alone and as one worker of several."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import random
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
)
from torch.utils.data.distributed import DistributedSampler

from sweep.errors import ConfigError, UserCodeError
from sweep.train import torch_prepare
from sweep.train.torch_prepare import (
    ShardedSampler,
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
)
from sweep.worker import wire
from sweep.worker.session import Session, install

CPU = torch.device("cpu")
META = torch.device("meta")
SEED = 5
Pair = namedtuple("Pair", "features label")


def be_worker(rank=None, **changes):
    """Install a session of a trial: as one worker of a group, or with `rank=None` as its only process."""
    fields = dict.fromkeys(wire.Job._fields, "")
    fields.update(trial_id="abcde_00003", directory="/nowhere", seed=SEED, base_count=0, rank=rank, **changes)
    install(Session(wire.Job(**fields), channel=None))


def be_rank(rank, size=2, devices=()):
    be_worker(wire.Rank(rank=rank, size=size, local_rank=rank, local_size=size, devices=devices))


@pytest.fixture(autouse=True)
def no_trial(monkeypatch):
    """Every test starts and ends outside a sweep, on a machine where torch sees no CUDA."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    yield
    install(None)


@pytest.fixture
def cuda(monkeypatch):
    """Torch says that there is CUDA; `set_device` is recorded."""
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


@pytest.fixture
def process_group(monkeypatch):
    """One process is a whole gloo group, on loopback."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def loader_of(num_items=10, **arguments):
    return DataLoader(list(range(num_items)), **arguments)


def per_rank(make, size, **arguments):
    """Return what each rank's prepared loader is, each made from a loader of its own."""
    loaders = []
    for rank in range(size):
        be_rank(rank, size)
        loaders.append(prepare_data_loader(make(), **arguments))
    return loaders


def items(loader):
    """Return what one iteration gives, without batches."""
    return [int(item) for batch in loader for item in batch]


# Devices


@pytest.mark.parametrize(
    ("devices", "expected"),
    [((), ["cpu"]), ((0,), ["cuda:0"]), ((2, 3), ["cuda:2", "cuda:3"])],
)
@pytest.mark.parametrize("is_available", [False, True])
def test_a_worker_of_a_group_has_the_devices_of_its_rank_whatever_torch_sees(
    devices, expected, is_available, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    be_rank(1, devices=devices)
    assert get_devices() == [torch.device(name) for name in expected]
    assert get_device() == torch.device(expected[0])


@pytest.mark.parametrize(
    ("visible", "is_available", "expected"),
    [
        ("3", False, ["cuda:0"]),
        ("3, 1", True, ["cuda:0", "cuda:1"]),
        ("GPU-8932f937,MIG-5a1b", False, ["cuda:0", "cuda:1"]),
        ("declared-0", False, ["cuda:0"]),
        ("0,2,-1,1", True, ["cuda:0", "cuda:1"]),
        ("0,,1", True, ["cuda:0"]),
        ("-1", True, ["cpu"]),
        ("NoDevFiles", True, ["cpu"]),
        ("", True, ["cpu"]),
        (" ", True, ["cpu"]),
        (None, True, ["cuda:0"]),
        (None, False, ["cpu"]),
    ],
)
def test_a_trial_of_one_process_has_the_devices_that_are_visible(visible, is_available, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    be_worker()
    assert get_devices() == [torch.device(name) for name in expected]


@pytest.mark.parametrize(("is_available", "expected"), [(True, "cuda:0"), (False, "cpu")])
def test_outside_a_sweep_the_first_gpu_is_used_if_torch_sees_one(is_available, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert get_devices() == [torch.device(expected)]
    assert get_device() == torch.device(expected)


# Models


def test_alone_or_without_a_strategy_a_model_is_only_moved():
    model = nn.Linear(2, 1)
    assert prepare_model(model) is model
    be_rank(0, size=1)
    assert prepare_model(model, parallel_strategy="fsdp") is model
    assert next(model.parameters()).device == CPU
    for device in (META, "meta"):
        assert next(prepare_model(nn.Linear(2, 1), move_to_device=device).parameters()).device == META
    be_rank(1)
    assert prepare_model(model, parallel_strategy=None) is model


def test_with_several_workers_a_model_on_the_cpu_is_wrapped_in_ddp_without_device_ids(process_group):
    be_rank(1)
    model = nn.Linear(2, 1)
    wrapped = prepare_model(model, parallel_strategy_kwargs={"gradient_as_bucket_view": True})
    assert type(wrapped) is DistributedDataParallel
    assert wrapped.module is model
    assert wrapped.device_ids is None
    assert wrapped.gradient_as_bucket_view
    wrapped(torch.ones(3, 2)).sum().backward()
    assert model.weight.grad.tolist() == [[3.0, 3.0]]


def test_a_model_stays_where_it_is_when_it_is_not_to_be_moved(cuda):
    be_rank(0, size=1, devices=(0,))
    model = nn.Linear(2, 1)
    assert prepare_model(model, move_to_device=False) is model
    assert next(model.parameters()).device == CPU
    assert cuda == []


@pytest.mark.parametrize("device", [True, "cuda", torch.device("cuda", 3)])
def test_on_a_declared_gpu_a_model_stays_on_the_cpu_and_a_warning_says_so(device):
    be_rank(0, size=1, devices=(2, 3))
    with pytest.warns(UserWarning, match="torch sees no CUDA device; its models and batches stay on the CPU"):
        model = prepare_model(nn.Linear(2, 1), move_to_device=device)
    assert next(model.parameters()).device == CPU


def test_a_gpu_that_the_worker_was_not_given_is_left_to_torch_to_refuse(monkeypatch):
    be_rank(0, size=1, devices=(2, 3))
    moved = []
    model = nn.Linear(2, 1)
    monkeypatch.setattr(model, "to", lambda device: moved.append(device) or model)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    prepare_model(model, move_to_device=torch.device("cuda", 1))
    assert moved == [torch.device("cuda", 1)]


class OnGpu(nn.Module):
    """A module that claims to be where it was moved to; `spread` over more devices if asked."""

    def __init__(self, *spread):
        super().__init__()
        self.devices = list(spread)

    def to(self, device):
        self.devices = self.devices or [device]
        return self

    def parameters(self, recurse=True):
        return iter([SimpleNamespace(device=device) for device in self.devices])


class Recorded(nn.Module):
    """Stands for a wrapper; keeps its arguments."""

    def __init__(self, module, device_ids=None, output_device=None, bucket_cap_mb=None):
        super().__init__()
        self.given = {"device_ids": device_ids, "output_device": output_device, "bucket_cap_mb": bucket_cap_mb}
        self.wrapped = module


@pytest.mark.parametrize(
    ("model", "arguments", "expected"),
    [
        (OnGpu(), {}, ([torch.device("cuda", 1)], torch.device("cuda", 1), None)),
        (OnGpu(), {"bucket_cap_mb": 5}, ([torch.device("cuda", 1)], torch.device("cuda", 1), 5)),
        (OnGpu(), {"device_ids": None}, (None, None, None)),
        (OnGpu(), {"output_device": 0}, ([torch.device("cuda", 1)], 0, None)),
        (OnGpu(torch.device("cuda", 0), torch.device("cuda", 1)), {}, (None, None, None)),
    ],
)
def test_ddp_is_told_the_one_gpu_that_holds_the_model(model, arguments, expected, cuda, process_group, monkeypatch):
    monkeypatch.setattr(torch_prepare, "DistributedDataParallel", Recorded)
    be_rank(1, devices=(1,))
    wrapped = prepare_model(model, parallel_strategy_kwargs=arguments)
    assert wrapped.wrapped is model
    assert tuple(wrapped.given.values()) == expected
    assert cuda == [torch.device("cuda", 1)]


def test_several_workers_without_torch_distributed_are_an_error_that_says_what_to_do():
    be_rank(1)
    with pytest.raises(UserCodeError, match=r"in worker 1 of 2: torch\.distributed is not initialised.*TorchTrainer"):
        prepare_model(nn.Linear(2, 1))


def test_workers_of_another_launcher_are_known_by_torch_distributed(monkeypatch):
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 2)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 5)
    assert items(prepare_data_loader(loader_of(10))) == [2, 7]


@pytest.mark.parametrize(("given", "nearest"), [("dpp", "ddp"), ("DDP", None), ("fsdp2", "fsdp"), (7, None)])
def test_an_unknown_strategy_is_refused_also_when_alone(given, nearest):
    hint = f"Did you mean '{nearest}'" if nearest else "Known: ddp, fsdp"
    with pytest.raises(ConfigError, match=hint):
        prepare_model(nn.Linear(2, 1), parallel_strategy=given)


def test_a_model_must_be_a_module():
    with pytest.raises(ConfigError, match=r"given a function; expected a torch\.nn\.Module"):
        prepare_model(lambda batch: batch)


@pytest.mark.parametrize("device", [None, 0, 1.0])
def test_where_to_move_must_be_a_device(device):
    with pytest.raises(ConfigError, match=r"move_to_device is .*; expected True"):
        prepare_model(nn.Linear(2, 1), move_to_device=device)
    with pytest.raises(ConfigError, match=r"move_to_device is .*; expected True"):
        prepare_data_loader(loader_of(), move_to_device=device)


def test_fsdp_without_cuda_is_an_error_that_says_so(process_group):
    be_rank(1)
    with pytest.raises(UserCodeError, match="'fsdp' needs CUDA"):
        prepare_model(nn.Linear(2, 1), parallel_strategy="fsdp")


@pytest.fixture
def fsdp(cuda, process_group, monkeypatch):
    """Both ways of FSDP, replaced by ones that record which was taken; torch says that there is CUDA."""
    from torch.distributed import fsdp as module

    taken = []

    def fully_shard(module, *, mesh=None, reshard_after_forward=None):
        taken.append(("fully_shard", mesh, reshard_after_forward))
        return module

    class FullyShardedDataParallel(nn.Module):
        def __init__(self, module, auto_wrap_policy=None, device_mesh=None):
            super().__init__()
            taken.append(("FullyShardedDataParallel", auto_wrap_policy, device_mesh))

    monkeypatch.setattr(module, "fully_shard", fully_shard, raising=False)
    monkeypatch.setattr(module, "FullyShardedDataParallel", FullyShardedDataParallel)
    be_rank(1, devices=(1,))
    return SimpleNamespace(module=module, taken=taken)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ("fully_shard", None, None)),
        ({"reshard_after_forward": False}, ("fully_shard", None, False)),
        ({"auto_wrap_policy": 3}, ("FullyShardedDataParallel", 3, None)),
    ],
)
def test_fsdp_shards_in_place_unless_its_arguments_are_those_of_the_wrapper(fsdp, arguments, expected):
    model = OnGpu()
    wrapped = prepare_model(model, parallel_strategy="fsdp", parallel_strategy_kwargs=arguments)
    assert fsdp.taken == [expected]
    assert (wrapped is model) == (expected[0] == "fully_shard")
    assert model.devices == [torch.device("cuda", 1)]


def test_fsdp_is_the_wrapper_where_torch_has_no_fully_shard(fsdp, monkeypatch):
    monkeypatch.delattr(fsdp.module, "fully_shard")
    prepare_model(OnGpu(), parallel_strategy="fsdp")
    assert fsdp.taken == [("FullyShardedDataParallel", None, None)]


# Data loaders: who sees what


def test_a_shuffled_loader_is_divided_shuffled_alike_in_all_ranks_and_anew_in_each_epoch():
    def orders(seed=None):
        generators = iter([torch.Generator().manual_seed(seed) for _ in range(3)] if seed is not None else [None] * 3)
        loaders = per_rank(lambda: loader_of(12, batch_size=3, shuffle=True, generator=next(generators)), 3)
        for epoch in range(3):
            parts = []
            for rank in range(3):
                torch.manual_seed(rank)  # what a rank draws elsewhere must not matter
                parts.append(items(loaders[rank]))
            assert sorted(itertools.chain(*parts)) == list(range(12)), epoch
            yield parts

    assert len(set(map(str, orders()))) == 3
    assert list(orders()) == list(orders())
    assert list(orders(77)) == list(orders(77)) != list(orders(78))


def in_order(**arguments):
    return lambda: loader_of(7, **arguments)


BATCHES = [[0, 1, 2], [3], [4, 5], [6], [7, 8, 9]]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (in_order(batch_size=2), [[[0, 2], [4, 6]], [[1, 3], [5, 0]]]),
        (in_order(), [[[0], [3], [6]], [[1], [4], [0]], [[2], [5], [1]]]),
        (in_order(sampler=list(range(7))), [[[0], [3], [6]], [[1], [4], [0]], [[2], [5], [1]]]),
        (in_order(drop_last=True), [[[0], [3]], [[1], [4]], [[2], [5]]]),
        (in_order(drop_last=True, sampler=list(range(7))), [[[0], [3]], [[1], [4]], [[2], [5]]]),
        (in_order(batch_size=None), [[0, 2, 4, 6], [1, 3, 5, 0]]),
        # Of a batch sampler each takes every nth batch.
        (lambda: loader_of(10, batch_sampler=BATCHES), [[[0, 1, 2], [4, 5], [7, 8, 9]], [[3], [6], [0, 1, 2]]]),
        (
            lambda: loader_of(10, batch_sampler=BatchSampler(range(10), 3, drop_last=True)),
            [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [0, 1, 2]]],
        ),
    ],
)
def test_each_rank_has_every_nth_item_and_the_last_round_is_filled_or_dropped_as_the_loader_has_it(make, expected):
    loaders = per_rank(make, len(expected))
    given = make()
    for loader, own in zip(loaders, expected, strict=True):
        assert isinstance(loader, DataLoader)
        assert [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in loader] == own
        assert (len(loader), loader.batch_size) == (len(own), given.batch_size)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(4))

    def __len__(self):
        return 4


def test_without_a_sampler_and_alone_and_of_an_iterable_dataset_everybody_sees_everything():
    everything = [0, 1, 2, 3]
    for loader in per_rank(lambda: loader_of(4), 2, add_dist_sampler=False):
        assert items(loader) == everything
    streamed = DataLoader(Stream(), batch_size=2)
    assert prepare_data_loader(streamed).sampler is streamed.sampler
    assert items(prepare_data_loader(streamed)) == everything
    for become in (lambda: be_rank(0, size=1), be_worker):
        become()
        assert items(prepare_data_loader(loader_of(4))) == everything


class Ranked:
    """A sampler that divides by itself and is no `DistributedSampler`."""

    rank, world_size = 1, 2

    def __iter__(self):
        return iter([5, 6])


@pytest.mark.parametrize(
    "arguments",
    [
        {"sampler": DistributedSampler(range(10), 5, 3, shuffle=False)},
        {"batch_sampler": BatchSampler(DistributedSampler(range(10), 5, 3, shuffle=False), 2, False)},
        {"sampler": ShardedSampler([3, 1, 8], 1, 2)},
        {"batch_size": 2, "sampler": Ranked()},
    ],
)
def test_a_sampler_that_knows_of_ranks_is_used_as_it_is(arguments):
    be_rank(1)
    given = loader_of(**arguments)
    prepared = prepare_data_loader(given)
    assert prepared.sampler is given.sampler
    assert prepared.batch_sampler is given.batch_sampler


def test_a_batch_sampler_that_is_itself_distributed_is_used_as_it_is():
    class Buckets(DistributedSampler):
        def __iter__(self):
            return iter([[self.epoch, 2], [3]])

    be_rank(0)
    prepared = prepare_data_loader(loader_of(batch_sampler=Buckets(range(10), 2, 0)))
    assert [items(prepared), items(prepared)] == [[0, 2, 3], [1, 2, 3]]


def test_a_loader_that_is_prepared_twice_is_divided_once():
    be_rank(1)
    once = prepare_data_loader(loader_of(8))
    twice = prepare_data_loader(once)
    assert items(twice) == [1, 3, 5, 7]
    assert twice.prepared_from is once.prepared_from


# Samplers of the user's own


@pytest.mark.parametrize("num_items", [0, 1, 2, 3, 4, 383, 384, 385, 768, 1000])
@pytest.mark.parametrize("drop_last", [False, True])
def test_shards_are_equally_long_and_together_they_are_everything(num_items, drop_last):
    shards = [ShardedSampler(range(num_items), rank, 3, drop_last=drop_last) for rank in range(3)]
    parts = [list(shard) for shard in shards]
    num_rounds = num_items // 3 if drop_last else (num_items + 2) // 3
    assert [len(part) for part in parts] == [len(shard) for shard in shards] == [num_rounds] * 3
    merged = [item for turn in zip(*parts, strict=True) for item in turn]
    if drop_last:
        assert merged == list(range(num_rounds * 3))
    else:
        assert merged == (list(range(num_items)) * 3)[: num_rounds * 3]


class Drawn:
    """Draws anew at every iteration from whatever generator it is told."""

    def __init__(self, draw):
        self.draw = draw

    def __iter__(self):
        return (self.draw() for _ in range(1000))

    def __len__(self):
        return 1000


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.randrange(10**6),
        lambda: int(torch.randint(10**6, ())),
        lambda: int(numpy.random.randint(10**6)),
    ],
    ids=["random", "torch", "numpy"],
)
def test_a_random_sampler_gives_all_ranks_one_sequence_and_leaves_the_trials_generators_alone(draw):
    shards = [ShardedSampler(Drawn(draw), rank, 2, seed=SEED) for rank in range(2)]
    sequences = []
    for epoch in (0, 1):
        parts = []
        for rank, shard in enumerate(shards):
            torch_prepare._seed_cpu(rank)
            before = draw()
            torch_prepare._seed_cpu(rank)
            shard.set_epoch(epoch)
            parts.append([])
            iterator = iter(shard)
            parts[-1].append(next(iterator))
            assert draw() == before
            for item in iterator:
                draw()  # the training loop draws between the batches, how often may differ
                parts[-1].append(item)
        sequences.append([item for turn in zip(*parts, strict=True) for item in turn])
    torch_prepare._seed_cpu(SEED)
    assert sequences[0] == [draw() for _ in range(1000)]
    torch_prepare._seed_cpu(SEED + 1)
    assert sequences[1] == [draw() for _ in range(1000)]


def test_a_generator_that_a_sampler_holds_is_used_and_goes_on():
    samplers = [RandomSampler(range(9), num_samples=4, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    alone = RandomSampler(range(9), num_samples=4, generator=torch.Generator().manual_seed(3))
    shards = [ShardedSampler(sampler, rank, 2) for rank, sampler in enumerate(samplers)]
    for _ in range(2):
        expected = list(alone)
        assert [list(shard) for shard in shards] == [expected[0::2], expected[1::2]]


def test_an_endless_sampler_stays_endless_and_has_no_length():
    loader = per_rank(lambda: loader_of(10, sampler=itertools.cycle(range(10))), 2)[1]
    assert [int(batch) for batch in itertools.islice(loader, 400)] == [1, 3, 5, 7, 9] * 80
    with pytest.raises(TypeError, match="has no len"):
        len(loader)


def test_what_a_sampler_raises_reaches_the_loop_and_the_generators_are_put_back():
    def broken():
        torch.rand(3)
        yield 1
        raise LookupError("no more")

    state = torch.get_rng_state()
    with pytest.raises(LookupError, match="no more"):
        list(ShardedSampler(broken(), 0, 2))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_shard_shows_the_attributes_of_what_it_wraps_and_can_be_copied():
    shard = ShardedSampler(BatchSampler(range(10), 3, drop_last=True), 1, 2)
    assert (shard.batch_size, shard.rank, shard.drop_last) == (3, 1, False)
    with pytest.raises(AttributeError, match="nothing"):
        _ = shard.nothing
    assert list(copy.deepcopy(shard)) == list(shard) == [[3, 4, 5], [0, 1, 2]]


# Epochs


class Epoch:
    """A sampler of the user's own that knows epochs: it gives the epoch, and is told of it."""

    def __init__(self):
        self.epoch = 0
        self.told = []

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.told.append(epoch)

    def __iter__(self):
        return iter([self.epoch] * 2)

    def __len__(self):
        return 2


def epoch_of(loader):
    iter(loader)
    return loader.sampler.epoch


def test_the_epoch_counts_up_until_the_user_sets_it_and_goes_on_from_there():
    be_rank(0)
    loader = prepare_data_loader(loader_of(8, shuffle=True))
    assert [epoch_of(loader), epoch_of(loader)] == [0, 1]
    loader.sampler.set_epoch(7)
    assert loader.sampler.epoch == 7
    next(iter(loader))  # an epoch that is left early is over
    assert epoch_of(loader) == 8
    loader.sampler.set_epoch(0)
    assert [epoch_of(loader), epoch_of(loader)] == [0, 1]
    sampler = DistributedSampler(range(8), 2, 0)
    sampler.set_epoch(5)
    loader = prepare_data_loader(loader_of(8, sampler=sampler))
    assert [epoch_of(loader), epoch_of(loader)] == [5, 6]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "arguments",
    [
        lambda sampler: {"sampler": sampler},
        lambda sampler: {"batch_sampler": BatchSampler(sampler, 1, False)},
    ],
)
def test_a_users_own_sampler_is_told_its_epochs(size, arguments):
    be_rank(0, size)
    sampler = Epoch()
    loader = prepare_data_loader(loader_of(8, **arguments(sampler)))
    assert items(loader) == [0] * (2 // size)
    assert items(loader) == [1] * (2 // size)
    assert sampler.told == [1]


# Data loaders: what is kept


def collate(batch):
    return torch.tensor(batch) * 10


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": None},
        {"batch_sampler": [[1], [2, 3]]},
        {"batch_size": 4, "shuffle": True, "drop_last": True, "pin_memory": True, "collate_fn": collate},
        {"num_workers": 1, "prefetch_factor": 7, "persistent_workers": True, "timeout": 3.5, "worker_init_fn": print},
    ],
)
def test_every_argument_of_a_loader_is_kept(arguments):
    be_rank(1)
    given = loader_of(8, **arguments)
    prepared = prepare_data_loader(given)
    replaced = {"sampler", "batch_sampler", "_iterator"}
    kept = {key: value for key, value in vars(prepared.prepared_from).items() if key not in replaced}
    assert kept == {key: value for key, value in vars(given).items() if key not in replaced}
    assert prepared.sampler is not given.sampler or "batch_sampler" in arguments
    assert type(given.sampler) is type(loader_of(8, **arguments).sampler)  # the given one is left as it was


def test_the_worker_processes_of_the_given_loader_stay_its_own():
    be_rank(1)
    given = loader_of(4, num_workers=1, persistent_workers=True)
    given._iterator = "running"
    assert prepare_data_loader(given).prepared_from._iterator is None
    assert given._iterator == "running"


def test_a_prepared_loader_can_be_copied_and_reads_and_writes_the_attributes_of_the_wrapped_one():
    be_rank(1)
    prepared = prepare_data_loader(loader_of(4))
    copied = copy.deepcopy(prepared)
    assert items(prepared) == [1, 3]
    assert [epoch_of(copied), epoch_of(copied)] == [0, 1]
    prepared.num_workers = 3
    assert prepared.prepared_from.num_workers == prepared.num_workers == 3
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        prepared.batch_size = 3
    with pytest.raises(AttributeError, match="nothing"):
        _ = prepared.nothing


class Doubling(DataLoader):
    """A loader of the user's own, whose constructor cannot be called with the attributes."""

    def __init__(self, path):
        super().__init__([len(path), 2, 3, 4], batch_size=2)
        self.factor = 2

    def __iter__(self):
        return (batch * self.factor for batch in super().__iter__())

    def shape(self):
        return "wide"


def test_a_subclass_of_the_users_own_stays_what_it_is():
    first, second = per_rank(lambda: Doubling("x"), 2)
    assert (items(first), items(second)) == ([2, 6], [4, 8])
    assert (first.factor, first.shape()) == (2, "wide")
    assert type(first.prepared_from) is Doubling


def test_a_subclass_that_keeps_an_iterator_over_everything_is_refused():
    class Kept(DataLoader):
        def __init__(self, dataset):
            super().__init__(dataset)
            self.batches = super().__iter__()

    be_rank(1)
    with pytest.raises(UserCodeError, match=r"divide a Kept among 2 workers: it keeps an iterator .* in 'batches'"):
        prepare_data_loader(Kept([1, 2]))
    assert prepare_data_loader(Kept([1, 2]), add_dist_sampler=False).dataset == [1, 2]


@pytest.mark.parametrize("given", [[1, 2], TensorDataset(torch.zeros(3))])
def test_something_that_is_no_loader_is_refused(given):
    with pytest.raises(
        ConfigError, match=rf"given a {type(given).__name__}; expected a torch\.utils\.data\.DataLoader"
    ):
        prepare_data_loader(given)


def test_where_nothing_is_to_be_done_the_loader_itself_comes_back():
    loader = loader_of(4)
    assert prepare_data_loader(loader, move_to_device=False) is loader


# Data loaders: where batches go


class Movable:
    """An object that has a method `to`."""

    def __init__(self, device=CPU):
        self.device = device

    def to(self, device):
        return Movable(device)


@dataclass
class Record:
    tensor: torch.Tensor


class Named(dict):
    def __init__(self, name, **values):
        super().__init__(values)
        self.name = name


class Batches(Dataset):
    def __init__(self, *batches):
        self.batches = batches

    def __getitem__(self, index):
        return self.batches[index]

    def __len__(self):
        return len(self.batches)


def moved(batch, device=META):
    """Return a batch as it comes out of a prepared loader."""
    loader = DataLoader(Batches(batch), batch_size=None, collate_fn=lambda item: item)
    (out,) = prepare_data_loader(loader, move_to_device=device)
    return out


def test_tensors_are_moved_wherever_they_are():
    out = moved({"a": torch.zeros(2), "b": [torch.zeros(1), (torch.zeros(3), "text", 4)], "c": None})
    assert [out["a"].device, out["b"][0].device, out["b"][1][0].device] == [META] * 3
    assert (out["b"][1][1:], out["c"], list(out)) == (("text", 4), None, ["a", "b", "c"])
    assert (type(out), type(out["b"]), type(out["b"][1])) == (dict, list, tuple)
    assert moved(torch.zeros(2)).device == META
    batch = {"x": torch.zeros(2), "y": [torch.zeros(1)]}
    moved(batch)
    assert (batch["x"].device, batch["y"][0].device) == (CPU, CPU)


def test_containers_of_other_classes_keep_their_class_and_attributes():
    named = moved(Named("n", x=torch.zeros(2)))
    assert (type(named), named.name, named["x"].device) == (Named, "n", META)
    ordered = moved(OrderedDict(x=torch.zeros(2), y=1))
    assert (type(ordered), list(ordered), ordered["x"].device) == (OrderedDict, ["x", "y"], META)
    user = moved(UserDict(x=torch.zeros(2)))
    assert (type(user), user["x"].device) == (UserDict, META)
    pair = moved(Pair(torch.zeros(2), label=3))
    assert (type(pair), pair.features.device, pair.label) == (Pair, META, 3)
    largest = moved(torch.zeros(2, 3).max(dim=1))
    assert (largest.values.device, largest.indices.device) == (META, META)
    packed = moved(nn.utils.rnn.pack_sequence([torch.zeros(3), torch.zeros(2)]))
    assert (packed.data.device, packed.batch_sizes.tolist()) == (META, [2, 2, 1])
    with_to, of_a_class = moved([Movable(), Movable])
    assert (with_to.device, of_a_class) == (META, Movable)


@pytest.mark.parametrize("batch", ["text", b"bytes", 3, None, {1, 2}, range(3), numpy.zeros(2), Record(torch.zeros(1))])
def test_other_objects_stay_as_they_are(batch):
    assert moved(batch) is batch
    assert moved([batch])[0] is batch


def test_on_a_declared_gpu_batches_stay_on_the_cpu():
    be_rank(0, devices=(0,))
    with pytest.warns(UserWarning, match="torch sees no CUDA device"):
        loader = prepare_data_loader(DataLoader(Batches(torch.zeros(1)), batch_size=None))
    assert next(iter(loader)).device == CPU


class Traced:
    """A batch that records where it is moved to, and when."""

    def __init__(self, events, name):
        self.events, self.name = events, name

    def to(self, device):
        self.events.append(f"copy {self.name} to {device}")
        return self


@pytest.fixture
def streams(cuda, monkeypatch):
    """The events of CUDA's streams, in order, without CUDA."""
    events = []

    class Stream:
        def __init__(self, device, name="side"):
            self.name = name

        def wait_stream(self, other):
            events.append(f"{self.name} waits for {other.name}")

    @contextlib.contextmanager
    def on(stream):
        events.append(f"on {stream.name}")
        yield
        events.append(f"off {stream.name}")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(device, "main"))
    be_rank(0, size=1, devices=(1,))
    return events


def test_on_cuda_the_next_batch_is_copied_beside_the_work_on_this_one(streams):
    loader = DataLoader(Batches(Traced(streams, "a"), Traced(streams, "b")), batch_size=None)
    for batch in prepare_data_loader(loader):
        streams.append(f"work on {batch.name}")
    assert streams == [
        "side waits for main",
        "on side",
        "copy a to cuda:1",
        "off side",
        "main waits for side",
        "side waits for main",
        "on side",
        "copy b to cuda:1",
        "off side",
        "work on a",
        "main waits for side",
        *("side waits for main", "on side", "off side"),
        "work on b",
    ]


def test_on_cuda_without_auto_transfer_each_batch_is_copied_when_it_is_asked_for(streams):
    loader = DataLoader(Batches(Traced(streams, "a"), Traced(streams, "b")), batch_size=None)
    for batch in prepare_data_loader(loader, auto_transfer=False):
        streams.append(f"work on {batch.name}")
    assert streams == ["copy a to cuda:1", "work on a", "copy b to cuda:1", "work on b"]


@pytest.mark.parametrize(("device", "is_async"), [(torch.device("cuda", 1), True), (CPU, False)])
def test_only_copies_to_a_gpu_are_not_waited_for(device, is_async, monkeypatch):
    asked = []
    tensor = torch.zeros(1)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, where, non_blocking: asked.append((where, non_blocking)))
    torch_prepare._moved(tensor, device)
    assert asked == [(device, is_async)]


# Reproducibility


@pytest.fixture
def undo(monkeypatch):
    """Put back what `enable_reproducibility` changes in the process."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    states = torch_prepare._states()
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = benchmark
    torch_prepare._set_states(states)


@pytest.mark.parametrize(
    "draw",
    [random.random, lambda: float(torch.rand(())), lambda: float(numpy.random.rand())],
    ids=["random", "torch", "numpy"],
)
def test_reproducibility_seeds_every_generator(draw, undo):
    enable_reproducibility(3)
    first = draw()
    assert draw() != first
    enable_reproducibility(3)
    assert draw() == first
    enable_reproducibility()
    zero = draw()
    assert zero != first
    enable_reproducibility(numpy.int64(0))
    assert draw() == zero
    torch.backends.cudnn.benchmark = True
    enable_reproducibility((1 << 32) - 1)
    assert torch.initial_seed() == (1 << 32) - 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.parametrize("seed", [-1, 1 << 32, 1.5, "3", None])
def test_a_seed_outside_numpys_range_is_refused_before_anything_changes(seed, undo):
    state = torch.get_rng_state()
    with pytest.raises(ConfigError, match=r"seed=.*; expected a whole number, 0 to 2\*\*32 - 1"):
        enable_reproducibility(seed)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.are_deterministic_algorithms_enabled()
