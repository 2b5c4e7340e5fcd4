"""What a trial asks of its session, each a function of its own, as in `ray.air.session`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sweep.worker.context import Context
from sweep.worker.session import checkpoint_dir as checkpoint_dir, get_checkpoint as get_checkpoint, report as report
from sweep.worker.session import get_context, get_trial_dir as get_trial_dir, get_trial_id as get_trial_id
from sweep.worker.session import get_trial_name as get_trial_name, get_trial_resources as get_trial_resources
from sweep.worker.session import is_session_enabled as is_session_enabled


def _of_context(name: str) -> Callable[[], Any]:
    def ask() -> Any:
        return getattr(get_context(), name)()

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = getattr(Context, name).__doc__
    return ask


get_experiment_name = _of_context("get_experiment_name")
get_world_size = _of_context("get_world_size")
get_world_rank = _of_context("get_world_rank")
get_local_rank = _of_context("get_local_rank")
get_local_world_size = _of_context("get_local_world_size")
get_node_rank = _of_context("get_node_rank")


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
