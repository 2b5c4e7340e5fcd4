"""What a torch train loop calls so that it also runs as one worker of many: devices, models, data loaders, seeds."""

from __future__ import annotations

import copy
import inspect
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from itertools import takewhile
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from sweep.errors import ConfigError, UserCodeError, nearest, refuse_unknown
from sweep.train.torch_sampling import ShardedSampler, chain, seed_cpu_generators
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
_DATA_LOADER_ARGUMENTS = frozenset(inspect.signature(DataLoader.__init__).parameters)
_CPU = torch.device("cpu")


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
        ConfigError: an unknown strategy, an argument that the strategy does not have, or something that is no module.
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
            "not initialised. Run the loop with TorchTrainer, which does that, or call "
            "torch.distributed.init_process_group first, or pass parallel_strategy=None."
        )
    arguments = dict(parallel_strategy_kwargs or {})
    return _in_ddp(model, arguments) if parallel_strategy == "ddp" else _in_fsdp(model, arguments)


def _in_ddp(model: nn.Module, arguments: dict[str, Any]) -> nn.Module:
    _check_arguments("ddp", arguments, DistributedDataParallel)
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

    ways: list[Callable[..., Any]] = [fsdp.FullyShardedDataParallel]
    if (fully_shard := getattr(fsdp, "fully_shard", None)) is not None:  # public since torch 2.6
        ways.insert(0, fully_shard)
    way = next((way for way in ways if set(arguments) <= set(inspect.signature(way).parameters)), None)
    if way is None:
        _check_arguments("fsdp", arguments, *ways)
        raise ConfigError(
            f"parallel_strategy_kwargs has {', '.join(sorted(arguments))}: some are of fully_shard, some of "
            "FullyShardedDataParallel. Pass those of one of them."
        )
    sharded: nn.Module = way(model, **arguments)
    return sharded


def _check_arguments(strategy: str, arguments: Mapping[str, Any], *ways: Callable[..., Any]) -> None:
    """Refuse the first argument that none of the ways to wrap a model has."""
    known = {name for way in ways for name in inspect.signature(way).parameters} - {"module"}
    for name in arguments:
        if name not in known:
            raise ConfigError(
                f"parallel_strategy={strategy!r} has no argument {name!r} (parallel_strategy_kwargs). "
                f"{nearest(str(name), known)}"
            )


@refuse_unknown()
def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool | str | torch.device = True,
    auto_transfer: bool = True,
) -> DataLoader[Any]:
    """Return a loader that gives this worker its part of the data, on its device; all else is as the given one has it.

    With several workers a default order becomes a `DistributedSampler`, shuffled if the loader shuffles; of a sampler
    or batch sampler of the user's own each worker takes every n-th index or batch (`ShardedSampler`). Either way all
    workers make the same number of steps: the first items are repeated to fill the last round, or, with the loader's
    `drop_last`, the last round is left out if it is not full. A loader of an `IterableDataset`, and one whose sampler
    already knows of ranks, is not divided. The order is seeded by the loader's `generator` if it has one, which must be
    seeded alike in all workers, else by the trial's seed.

    Each time the loader is iterated its sampler's epoch is set to the next, from 0. To set it yourself, for instance
    after a restart or where workers iterate unequally often, call `loader.sampler.set_epoch(epoch)` before: that holds
    for the next iteration, and counting goes on from it. (With a batch sampler of your own: `loader.batch_sampler`.)

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
    epochs = _epochs_of(loader)
    if device is None and epochs is None:
        return loader
    return PreparedDataLoader(loader, device, epochs, has_prefetch=auto_transfer)


def _samplers(loader: DataLoader[Any]) -> Iterator[Any]:
    return chain(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)


def _is_divided(loader: DataLoader[Any]) -> bool:
    """Whether one of the loader's samplers gives each rank its own part already."""
    return any(
        hasattr(sampler, "rank") and (hasattr(sampler, "num_replicas") or hasattr(sampler, "world_size"))
        for sampler in _samplers(loader)
    )


def _divided(loader: DataLoader[Any], rank: int, size: int) -> DataLoader[Any]:
    """Return the loader with samplers that give a rank its part.

    A copy of the object, not a new one from its arguments: so every argument is kept, those of later versions of torch
    and of the user's own subclass included.
    """
    for name, value in vars(loader).items():
        if isinstance(value, Iterator) and name not in _DATA_LOADER_ARGUMENTS and name != "_iterator":
            raise UserCodeError(
                f"prepare_data_loader cannot divide a {type(loader).__name__} among {size} workers: it keeps an "
                f"iterator over all the data in {name!r}. Build it with sampler=DistributedSampler(dataset), which is "
                "used as it is, or pass add_dist_sampler=False."
            )
    sampler: Any = loader.sampler
    batch_sampler: Any = loader.batch_sampler
    if batch_sampler is not None and loader.batch_size is None:
        # Never with drop_last: the batch sampler's own is about batches that are not full, and all of these stay.
        batch_sampler = ShardedSampler(batch_sampler, rank, size, seed=_shuffle_seed(loader))
    else:
        sampler = _divided_sampler(loader, rank, size)
        if batch_sampler is not None:
            batch_sampler = copy.copy(batch_sampler)
            batch_sampler.sampler = sampler
    divided = copy.copy(loader)
    # Past `DataLoader.__setattr__`, which refuses these names; and the worker processes of the given one are its own.
    vars(divided).update(sampler=sampler, batch_sampler=batch_sampler, _iterator=None)
    return divided


def _divided_sampler(loader: DataLoader[Any], rank: int, size: int) -> Sampler[Any]:
    sampler: Any = loader.sampler
    seed = _shuffle_seed(loader)
    # Exactly these classes, over exactly this dataset, in full: anything else is a choice of the user's.
    is_default = getattr(sampler, "data_source", None) is loader.dataset and (
        type(sampler) is SequentialSampler
        or (
            type(sampler) is RandomSampler
            and not sampler.replacement
            and sampler.num_samples == len(sampler.data_source)
        )
    )
    if not is_default:
        return ShardedSampler(sampler, rank, size, seed=seed, drop_last=loader.drop_last)
    return DistributedSampler(
        loader.dataset,
        num_replicas=size,
        rank=rank,
        shuffle=type(sampler) is RandomSampler,
        seed=seed,
        drop_last=loader.drop_last,
    )


def _shuffle_seed(loader: DataLoader[Any]) -> int:
    """Return a seed that is the same in every worker: never one drawn from a global generator."""
    generator = getattr(loader.sampler, "generator", None)
    if generator is None:
        generator = loader.generator
    if isinstance(generator, torch.Generator):
        return generator.initial_seed() % (1 << 63)  # room for the epochs that are added
    session = current()
    return session.job.seed if session is not None else 0


class _Epochs:
    """Counts the iterations of a loader and tells them to its sampler, unless the user does.

    Attributes:
        next: the epoch of the next iteration.
    """

    def __init__(self, sampler: Any) -> None:
        epoch = getattr(sampler, "epoch", 0)
        self.next = epoch if isinstance(epoch, int) else 0
        self._set_epoch: Callable[[int], Any] = sampler.set_epoch
        # Its value alone would not do: setting the same epoch twice asks for the same order twice.
        vars(sampler)["set_epoch"] = self._take

    def _take(self, epoch: int) -> None:
        self._set_epoch(epoch)
        self.next = epoch

    def advance(self) -> None:
        """Begin the next epoch."""
        self._set_epoch(self.next)
        self.next += 1


def _epochs_of(loader: DataLoader[Any]) -> _Epochs | None:
    """Return a counter for the outermost sampler whose epoch can be set; None when there is none."""
    for sampler in _samplers(loader):
        if callable(getattr(sampler, "set_epoch", None)):
            # Without a `__dict__` the user's own calls would go unnoticed, and be overruled.
            return _Epochs(sampler) if hasattr(sampler, "__dict__") else None
    return None


class PreparedDataLoader(DataLoader[Any]):
    """A loader that counts its epochs and moves its batches; in all else it is the loader that it wraps.

    Attributes:
        prepared_from: the wrapped loader.
    """

    prepared_from: DataLoader[Any]

    def __init__(
        self, loader: DataLoader[Any], device: torch.device | None, epochs: _Epochs | None, *, has_prefetch: bool
    ) -> None:
        # Without DataLoader's constructor: every attribute is asked of the wrapped loader.
        vars(self).update(prepared_from=loader, _device=device, _epochs=epochs, _has_prefetch=has_prefetch)

    def __iter__(self) -> Any:
        if self._epochs is not None:
            self._epochs.advance()
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
    """Give the batches on a GPU, each copied on a stream of its own while the one before it is worked on.

    A copy waits for what the caller has queued so far. That leaves the work on one batch to hide it, and it is what
    makes the memory of an earlier batch safe to use again, also in objects whose tensors cannot be seen from here.
    """
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    end = object()

    def fetch() -> Any:
        batch = next(batches, end)
        if batch is end:
            return end
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            return _moved(batch, device)

    ready = fetch()
    while ready is not end:
        torch.cuda.current_stream(device).wait_stream(side)
        batch, ready = ready, fetch()
        yield batch


def _moved(value: Any, device: torch.device) -> Any:
    """Return a value with all that can be moved on the device; containers are copied when something in them was."""
    if isinstance(value, torch.Tensor):
        # Only towards the GPU: a copy back that is not waited for can be read before it is there.
        return value.to(device, non_blocking=device.type == "cuda")
    if not isinstance(value, type) and callable(getattr(value, "to", None)):
        return value.to(device)
    if isinstance(value, Mapping):
        changed = {key: new for key, old in value.items() if (new := _moved(old, device)) is not old}
        if not changed:
            return value
        if not isinstance(value, MutableMapping):
            return {**value, **changed}
        clone = copy.copy(value)  # a dict of the user's class stays one
        clone.update(changed)
        return clone
    if not isinstance(value, (list, tuple)):
        return value
    items = [_moved(item, device) for item in value]
    if all(map(operator.is_, items, value)):
        return value
    if isinstance(value, list):
        copied = copy.copy(value)
        copied[:] = items
        return copied
    make = getattr(type(value), "_make", type(value))  # a named tuple takes its fields one by one
    return make(items)


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
    seed_cpu_generators(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # one of the two settings with which cuBLAS is deterministic
