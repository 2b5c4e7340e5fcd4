"""Tune Horovod training: the creator of trainables, under the name and with the arguments of Tune's first releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweep.checks import whole
from sweep.errors import ConfigError, refuse_unknown
from sweep.train.creator import create
from sweep.train.horovod import HorovodConfig, HorovodTrainer

__all__ = ["DistributedTrainableCreator"]


@refuse_unknown(
    {
        "num_workers": "Horovod's word for it is num_slots.",
        "num_workers_per_host": "Write num_slots: workers on each host.",
        "num_cpus_per_worker": "Horovod's word for it is num_cpus_per_slot.",
        "num_gpus_per_worker": "Write use_gpu=True: each slot has a GPU.",
    }
)
def DistributedTrainableCreator(
    func: Callable[..., Any],
    *,
    use_gpu: bool = False,
    num_hosts: int | None = None,
    num_slots: int = 1,
    num_cpus_per_slot: float = 1,
    timeout_s: float | None = None,
    replicate_pem: bool = False,
) -> HorovodTrainer:
    """Return a trainable that runs `func(config)` in several workers, which call `hvd.init()` as under `horovodrun`.

    The whole config of a trial is the function's. A function that also takes `checkpoint_dir` is given the directory to
    continue from, or None. All workers run on this machine, and meet on 127.0.0.1.

    Args:
        use_gpu: one GPU for each slot; `hvd.local_rank()` is its number.
        num_hosts: None: the workers run wherever they fit; 1: all on one node of the inventory; more, with one slot
            each: every worker on a node of its own.
        num_slots: workers on each host.
        num_cpus_per_slot: CPUs of each worker.
        timeout_s: as in `HorovodConfig`.
        replicate_pem: False; there is no other machine to copy a key to.

    Raises:
        ConfigError, ResourceError, TrainableError: an argument is wrong.
        ConfigError: Horovod is not installed.
    """
    _check_slots(num_hosts, num_slots)
    if replicate_pem:
        raise ConfigError(
            f"replicate_pem is {replicate_pem!r}; all workers run on this machine, and no key is copied. Leave it out."
        )
    return create(
        HorovodTrainer,
        func,
        use_gpu=use_gpu,
        num_workers=num_slots * (num_hosts or 1),
        num_cpus_per_worker=num_cpus_per_slot,
        num_workers_per_host=None if num_hosts is None else num_slots,
        horovod_config=HorovodConfig(timeout_s),
    )


def _check_slots(num_hosts: int | None, num_slots: int) -> None:
    whole("num_slots", num_slots, least=1, expected="a whole number of workers, at least 1")
    if num_hosts is None:
        return
    whole("num_hosts", num_hosts, least=1, expected="a whole number of machines, at least 1, or None")
    if num_hosts > 1 and num_slots > 1:
        raise ConfigError(
            f"num_hosts is {num_hosts} and num_slots is {num_slots}; expected one host, or one slot on each of "
            f"several. All workers run on this machine: write num_slots={num_hosts * num_slots}, without num_hosts."
        )
