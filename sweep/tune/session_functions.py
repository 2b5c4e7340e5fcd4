"""What a trial asks of its session, each a function of its own, as `ray.air.session` and `ray` have them."""

from __future__ import annotations

import os

from sweep.worker.session import (
    checkpoint_dir,
    get_checkpoint,
    get_context,
    get_trial_dir,
    get_trial_id,
    get_trial_name,
    get_trial_resources,
    is_session_enabled,
    report,
)

__all__ = [
    "checkpoint_dir",
    "get_checkpoint",
    "get_experiment_name",
    "get_gpu_ids",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_trial_resources",
    "get_world_rank",
    "get_world_size",
    "is_session_enabled",
    "report",
]


def get_experiment_name() -> str | None:
    """Return the name of the experiment, as `get_context` does; None outside a sweep."""
    return get_context().get_experiment_name()


def get_world_size() -> int:
    """Return the number of workers of this trial's group, as `get_context` does; 1 when it is a single process."""
    return get_context().get_world_size()


def get_world_rank() -> int:
    """Return the rank of this worker in its group, as `get_context` does; 0 when it is a single process."""
    return get_context().get_world_rank()


def get_local_rank() -> int:
    """Return the rank of this worker among those on its node, as `get_context` does."""
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    """Return the number of workers of the group on this node, as `get_context` does."""
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    """Return the number of this node among those of the group, as `get_context` does."""
    return get_context().get_node_rank()


def get_gpu_ids() -> list[int | str]:
    """Return the GPUs of this trial, or of this worker of its group, as `CUDA_VISIBLE_DEVICES` names them.

    An index is a number, a UUID a text. Outside a sweep there are none: the list is empty.
    """
    context = get_context()
    if context.get_trial_id() is None:
        return []
    shown = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("HIP_VISIBLE_DEVICES") or ""
    tokens = [token.strip() for token in shown.split(",") if token.strip()]
    if context.get_world_size() > 1:  # workers may see the GPUs of each other
        tokens = [tokens[index] for index in context.get_device_indices() if index < len(tokens)]
    return [int(token) if token.isdecimal() else token for token in tokens]
