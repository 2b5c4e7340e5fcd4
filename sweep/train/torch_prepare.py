"""What a torch train loop calls so that it also runs as one worker of many: devices, models, data loaders, seeds."""

from __future__ import annotations

import contextlib
import copy
import inspect
import operator
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from itertools import cycle, islice, takewhile
from typing import Any

import numpy
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from searchers.errors import nearest
from sweep.errors import ConfigError, UserCodeError, refuse_unknown
from sweep.worker.session import current

__all__ = [
    "PreparedDataLoader",
    "ShardedSampler",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
]

_STRATEGIES = ("ddp", "fsdp")
_CPU = torch.device("cpu")
# Rounds that a sampler is asked for at once: changing the generators back and forth costs 0.3 ms each time.
_ROUNDS = 128


def get_devices() -> list[torch.device]:
    """Return the devices of this worker, its own only; the CPU when it has no GPU.

    In a worker of a group they are named also when torch sees no CUDA (an inventory that was declared). In a trial of
    one process they follow `CUDA_VISIBLE_DEVICES`. Where that is unset, and outside a sweep: the first that torch sees.
    """
    session = current()
    if session is not None and session.job.rank is not None:
        indices: Iterable[int] = session.job.rank.devices
    elif session is not None and (variable := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        indices = range(_num_visible(variable))
    else:
        indices = range(int(torch.cuda.is_available()))
    return [torch.device("cuda", index) for index in indices] or [_CPU]


def get_device() -> torch.device:
    """Return the first device of this worker; see `get_devices`."""
    return get_devices()[0]


def _num_visible(variable: str) -> int:
    """Count the entries of `CUDA_VISIBLE_DEVICES` up to the first that names nothing, as CUDA does."""
    entries = (entry.strip() for entry in variable.split(","))
    return sum(1 for _ in takewhile(lambda entry: entry not in ("", "NoDevFiles") and entry[0] != "-", entries))


def _place_in_group() -> tuple[int, int]:
    """Return this worker's rank and the size of its group; without a group those of `torch.distributed`, else 0, 1."""
    session = current()
    if session is not None and session.job.rank is not None:
        return session.job.rank.rank, session.job.rank.size
    if _is_initialized():  # the same program, started by another launcher
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _is_initialized() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _target(move_to_device: bool | str | torch.device) -> torch.device | None:
    """Return the device to move to, or None when nothing is to be moved, or cannot be: a GPU that was only declared."""
    if isinstance(move_to_device, bool):
        device = get_device() if move_to_device else None
    elif isinstance(move_to_device, (str, torch.device)):
        device = torch.device(move_to_device)
    else:
        raise ConfigError(
            f"move_to_device is {move_to_device!r}; expected True (the worker's own device), False or a torch.device."
        )
    if device is None or device.type != "cuda" or torch.cuda.is_available():
        return device
    if not any(own.type == "cuda" and device.index in (None, own.index) for own in get_devices()):
        return device  # not one that the sweep speaks of: torch says what is wrong with it
    # The same line each time, so that it is shown once per process.
    warnings.warn(
        "this worker was given GPUs, but torch sees no CUDA device; its models and batches stay on the CPU. That is "
        "right for GPUs that were only declared; otherwise install a build of torch for CUDA.",
        stacklevel=1,
    )
    return None


@refuse_unknown()
def prepare_model(
    model: nn.Module,
    move_to_device: bool | str | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return the model on this worker's device, and in step with those of the other workers if there are any.

    Args:
        move_to_device: True moves it to `get_device()`, False leaves it where it is, a device moves it there. With a
            GPU that was only declared, where torch sees no CUDA, it stays on the CPU and a warning says so.
        parallel_strategy: how the workers of a group share it: `ddp` (every worker holds all of it), `fsdp` (each holds
            a part; needs CUDA) or None (not at all). Alone, a worker gets its model back unwrapped.
        parallel_strategy_kwargs: arguments of `DistributedDataParallel`, or of `fully_shard`; those that only
            `FullyShardedDataParallel` knows (`auto_wrap_policy`, `cpu_offload` ...) choose it instead.

    Raises:
        ConfigError: an unknown strategy, or something that is no module.
        UserCodeError: there are several workers and `torch.distributed` is not initialised, or `fsdp` without CUDA.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"prepare_model was given a {type(model).__name__}; expected a torch.nn.Module.")
    if parallel_strategy is not None and parallel_strategy not in _STRATEGIES:
        raise ConfigError(
            f"parallel_strategy is {parallel_strategy!r}. {nearest(str(parallel_strategy), _STRATEGIES)} "
            "None leaves the model as it is."
        )
    device = _target(move_to_device)
    if device is not None:
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # collectives and new tensors go where the model is
        model = model.to(device)
    rank, size = _place_in_group()
    if parallel_strategy is None or size == 1:
        return model
    if not _is_initialized():
        raise UserCodeError(
            f"prepare_model(parallel_strategy={parallel_strategy!r}) in worker {rank} of {size}: torch.distributed is "
            "not initialised. Run the loop with TorchTrainer, or pass parallel_strategy=None."
        )
    arguments = dict(parallel_strategy_kwargs or {})
    return _in_ddp(model, arguments) if parallel_strategy == "ddp" else _in_fsdp(model, arguments)


def _in_ddp(model: nn.Module, arguments: dict[str, Any]) -> nn.Module:
    devices = {parameter.device for parameter in model.parameters()}
    # Where the parameters are, not where the worker is: the user may have placed the model himself, or split it.
    if "device_ids" not in arguments and len(devices) == 1 and (device := devices.pop()).type == "cuda":
        arguments = {"device_ids": [device], "output_device": device, **arguments}
    return DistributedDataParallel(model, **arguments)


def _in_fsdp(model: nn.Module, arguments: dict[str, Any]) -> nn.Module:
    if not torch.cuda.is_available():
        raise UserCodeError(
            "parallel_strategy='fsdp' needs CUDA, and torch sees no CUDA device in this worker. Give each worker a GPU "
            "(use_gpu=True), or use parallel_strategy='ddp'."
        )
    from torch.distributed import fsdp  # takes a second, and few need it

    way: Callable[..., Any] | None = getattr(fsdp, "fully_shard", None)  # public since torch 2.6
    if way is None or not set(arguments) <= set(inspect.signature(way).parameters):
        way = fsdp.FullyShardedDataParallel
    sharded: nn.Module = way(model, **arguments)
    return sharded


@refuse_unknown()
def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool | str | torch.device = True,
    auto_transfer: bool = True,
) -> DataLoader[Any]:
    """Return a loader that gives this worker its part of the data, on its device; all else is as the given one has it.

    With several workers each takes every n-th index of the loader's sampler, or batch of its batch sampler
    (`ShardedSampler`), and all make the same number of steps: the first items are repeated to fill the last round, or,
    with the loader's `drop_last`, the last round is left out if it is not full. A loader of an `IterableDataset`, and
    one whose sampler already knows of ranks, is not divided. The order is seeded by the loader's `generator` if it has
    one, which must be seeded alike in all workers, else by the trial's seed.

    Each time the loader is iterated its sampler's `epoch` is set to the next, from 0. To set it yourself, for instance
    after a restart or where workers iterate unequally often, call `loader.sampler.set_epoch(epoch)` before: another
    epoch holds for the next iteration, and counting goes on from it. (With a batch sampler: `loader.batch_sampler`.)

    Args:
        add_dist_sampler: False: every worker sees all the data.
        move_to_device: True moves batches to `get_device()`, a device moves them there: tensors in dicts, lists, tuples
            and named tuples, and whatever has a method `to`. Other objects stay as they are.
        auto_transfer: on CUDA, copy each batch while the one before it is worked on.

    Raises:
        ConfigError: something else than a `DataLoader`.
        UserCodeError: the loader is of a class that keeps iterators of its own, which cannot be divided.
    """
    if not isinstance(data_loader, DataLoader):
        raise ConfigError(
            f"prepare_data_loader was given a {type(data_loader).__name__}; expected a torch.utils.data.DataLoader. "
            "Divide and move other data by get_context().get_world_rank(), get_world_size() and get_device()."
        )
    loader = data_loader.prepared_from if isinstance(data_loader, PreparedDataLoader) else data_loader
    device = _target(move_to_device)
    rank, size = _place_in_group()
    is_divisible = not isinstance(loader.dataset, IterableDataset) and not _is_divided(loader)
    if add_dist_sampler and size > 1 and is_divisible:
        loader = _divided(loader, rank, size)
    counted = next((one for one in _samplers(loader) if hasattr(one, "set_epoch") and hasattr(one, "epoch")), None)
    if device is None and counted is None:
        return loader
    return PreparedDataLoader(loader, device, counted, has_prefetch=auto_transfer)


def _samplers(loader: DataLoader[Any]) -> Iterator[Any]:
    """Give the sampler of a loader and those it wraps, outermost first."""
    sampler: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    seen: list[int] = []
    while sampler is not None and id(sampler) not in seen:
        seen.append(id(sampler))
        yield sampler
        inner = getattr(sampler, "sampler", None)
        sampler = getattr(sampler, "batch_sampler", None) if inner is None else inner


def _is_divided(loader: DataLoader[Any]) -> bool:
    """Whether one of the loader's samplers gives each rank its own part already."""
    return any(
        hasattr(sampler, "rank") and (hasattr(sampler, "num_replicas") or hasattr(sampler, "world_size"))
        for sampler in _samplers(loader)
    )


def _divided(loader: DataLoader[Any], rank: int, size: int) -> DataLoader[Any]:
    """Return a copy of the loader, of whatever class, with samplers that give a rank its part."""
    for name, value in vars(loader).items():
        if isinstance(value, Iterator) and name not in ("sampler", "batch_sampler", "_iterator"):
            raise UserCodeError(
                f"prepare_data_loader cannot divide a {type(loader).__name__} among {size} workers: it keeps an "
                f"iterator over all the data in {name!r}. Build it with sampler=DistributedSampler(dataset), which is "
                "used as it is, or pass add_dist_sampler=False."
            )
    session = current()
    seed = session.job.seed if session is not None else 0
    sampler: Any = loader.sampler
    batch_sampler: Any = loader.batch_sampler
    if batch_sampler is not None and loader.batch_size is None:
        # Never with drop_last: the batch sampler's own is about batches that are not full, and all of these stay.
        batch_sampler = ShardedSampler(batch_sampler, rank, size, seed=seed)
    else:
        sampler = ShardedSampler(sampler, rank, size, seed=seed, drop_last=loader.drop_last)
        if batch_sampler is not None:
            batch_sampler = copy.copy(batch_sampler)
            batch_sampler.sampler = sampler
    divided = copy.copy(loader)
    # Past `DataLoader.__setattr__`, which refuses these names; and the worker processes of the given one are its own.
    vars(divided).update(sampler=sampler, batch_sampler=batch_sampler, _iterator=None)
    return divided


class ShardedSampler(DistributedSampler[Any]):
    """Gives one rank every n-th item of a sampler or batch sampler that knows nothing of ranks.

    All ranks get the same number of items, and together all of them: the last round is filled with the first items, or
    left out with `drop_last`. For that the wrapped sampler must give every rank the same sequence. So it is run on
    global generators of its own (torch's on the CPU, `random`, numpy's), seeded alike in all ranks and anew in each
    epoch; the trial's do not move. A generator that the sampler holds itself must be seeded alike in all ranks. It is
    asked for some rounds ahead, and may be endless. Attributes that this class lacks are the wrapped sampler's.

    Attributes:
        sampler: the wrapped one.
        rank, num_replicas: which part of how many.
        epoch: set by `set_epoch`; added to the seed.
    """

    def __init__(self, sampler: Iterable[Any], rank: int, num_replicas: int, *, seed: int = 0, drop_last: bool = False):
        # Without that of DistributedSampler, which asks for a length.
        self.sampler = sampler
        self.rank = rank
        self.num_replicas = num_replicas
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        seed, own = self.seed + self.epoch, list[Any]()
        with _generators(own, seed):
            items = iter(self.sampler)
        first: list[Any] = []
        while True:
            with _generators(own, seed):
                chunk = list(islice(items, _ROUNDS * self.num_replicas))
            first = first or chunk[: self.num_replicas]
            end = len(chunk) - len(chunk) % self.num_replicas
            yield from chunk[self.rank : end : self.num_replicas]
            if len(chunk) < _ROUNDS * self.num_replicas:
                break
        rest = chunk[end:]
        if rest and not self.drop_last:
            # Those of few items may be needed more than once: 2 items for 5 ranks.
            filled = rest + list(islice(cycle(first), self.num_replicas - len(rest)))
            yield filled[self.rank]

    def __len__(self) -> int:
        num_items = len(self.sampler)  # type: ignore[arg-type]  # a TypeError when it has no length, as without us
        return num_items // self.num_replicas if self.drop_last else -(-num_items // self.num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is; it is passed on to a wrapped sampler that has this method."""
        self.epoch = epoch
        for sampler in (self.sampler, getattr(self.sampler, "sampler", None)):
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(epoch)  # type: ignore[union-attr]
                return

    def __getattr__(self, name: str) -> Any:
        # While a copy is being made there is no wrapped sampler yet.
        if name.startswith("__") or "sampler" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.sampler, name)


def _states() -> list[Any]:
    """Return the states of the global generators of torch's CPU, `random` and numpy."""
    return [torch.get_rng_state(), random.getstate(), numpy.random.get_state(legacy=False)]


def _set_states(states: list[Any]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    numpy.random.set_state(states[2])


@contextlib.contextmanager
def _generators(states: list[Any], seed: int) -> Iterator[None]:
    """Run on generators of one's own, which are noted in `states` and seeded at first; the others do not move."""
    outer = _states()
    _set_states(states) if states else _seed_cpu(seed)
    try:
        yield
    finally:
        states[:] = _states()
        _set_states(outer)


def _seed_cpu(seed: int) -> None:
    """Seed these generators; not by `torch.manual_seed`, which also moves the generators of every GPU."""
    torch.default_generator.manual_seed(seed % (1 << 64))
    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))


class PreparedDataLoader(DataLoader[Any]):
    """A loader that counts its epochs and moves its batches; in all else it is the loader that it wraps.

    Attributes:
        prepared_from: the wrapped loader.
    """

    prepared_from: DataLoader[Any]

    def __init__(
        self, loader: DataLoader[Any], device: torch.device | None, counted: Any, *, has_prefetch: bool
    ) -> None:
        # Without DataLoader's constructor: every attribute is asked of the wrapped loader.
        own = {"_device": device, "_counted": counted, "_last": None, "_has_prefetch": has_prefetch}
        vars(self).update(own, prepared_from=loader)

    def __iter__(self) -> Any:
        if self._counted is not None:
            if self._counted.epoch == self._last:  # otherwise the user has set it
                self._counted.set_epoch(self._last + 1)
            vars(self)["_last"] = self._counted.epoch
        batches = iter(self.prepared_from)
        device = self._device
        if device is None:
            return batches
        if device.type == "cuda" and self._has_prefetch:
            return _prefetched(batches, device)
        return (_moved(batch, device) for batch in batches)

    def __len__(self) -> int:
        return len(self.prepared_from)

    def __getattr__(self, name: str) -> Any:
        # While a copy is being made there is no wrapped loader yet.
        if name.startswith("__") or "prepared_from" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.prepared_from, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.prepared_from, name, value)


def _prefetched(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """Give the batches on a GPU, each copied on a stream of its own while the one before it is worked on. A copy waits
    for what the caller has queued so far, which makes the memory of an earlier batch safe to use again."""
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def fetch() -> list[Any]:
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            return [_moved(batch, device) for batch in islice(batches, 1)]

    ready = fetch()
    while ready:
        torch.cuda.current_stream(device).wait_stream(side)
        batch, ready = ready[0], fetch()
        yield batch


def _moved(value: Any, device: torch.device) -> Any:
    """Return a value with all that can be moved on the device, in new containers."""
    if isinstance(value, torch.Tensor):
        # Only towards the GPU: a copy back that is not waited for can be read before it is there.
        return value.to(device, non_blocking=device.type == "cuda")
    if not isinstance(value, type) and callable(getattr(value, "to", None)):
        return value.to(device)
    if isinstance(value, MutableMapping):
        clone = copy.copy(value)  # a dict of the user's class stays one
        clone.update({key: _moved(item, device) for key, item in value.items()})
        return clone
    if not isinstance(value, (list, tuple)):
        return value
    make = getattr(type(value), "_make", type(value))  # a named tuple takes its fields one by one
    return make([_moved(item, device) for item in value])


def enable_reproducibility(seed: int = 0) -> None:
    """Make runs of the same program repeat as far as torch can: seeds, and deterministic algorithms only.

    Seeds `random`, numpy and torch on all devices, the same in every worker that calls it. Operations that have no
    deterministic form raise an error when they are used; others may be slower. Call it first thing: cuBLAS reads its
    setting when it is first used.

    Args:
        seed: a whole number from 0 to 2**32 - 1, the range of numpy's.

    Raises:
        ConfigError: another seed.
    """
    if not hasattr(seed, "__index__") or not 0 <= operator.index(seed) < 1 << 32:
        raise ConfigError(f"enable_reproducibility was given seed={seed!r}; expected a whole number, 0 to 2**32 - 1.")
    seed = operator.index(seed)
    _seed_cpu(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # one of the two settings with which cuBLAS is deterministic
