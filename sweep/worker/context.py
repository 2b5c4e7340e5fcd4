"""What a trial may know of itself: `get_context()`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sweep.core.resources import Resources
from sweep.worker import wire

if TYPE_CHECKING:
    from sweep.worker.session import Session


class Context:
    """What a trial may know of itself; outside a sweep everything is empty."""

    def __init__(self, session: Session | None) -> None:
        self._session = session

    def get_trial_id(self) -> str | None:
        """Return the trial's id, for instance `a1b2c_00042`; None outside a sweep."""
        return self._session.job.trial_id if self._session else None

    def get_trial_name(self) -> str | None:
        """Return the name given by `trial_name_creator`, else `<trainable>_<trial id>`; None outside a sweep."""
        return self._session.job.shown_name if self._session else None

    def get_trial_dir(self) -> str | None:
        """Return the trial's own directory, absolute; None outside a sweep."""
        return self._session.trial_dir if self._session else None

    def get_trial_resources(self) -> Resources | None:
        """Return what the trial asked for; None outside a sweep."""
        return self._session.job.resources if self._session else None

    def get_experiment_name(self) -> str | None:
        """Return the name of the experiment; None outside a sweep."""
        return self._session.job.experiment if self._session else None

    def get_storage_path(self) -> str | None:
        """Return the directory that holds the experiment; None outside a sweep."""
        return os.path.dirname(self._session.job.directory) if self._session else None

    def get_attempt(self) -> int:
        """Return how many times this trial was started, this time included; 0 outside a sweep."""
        return self._session.job.attempt if self._session else 0

    def get_seed(self) -> int | None:
        """Return the seed that the global generators of this trial were seeded with; None outside a sweep."""
        return self._session.job.seed if self._session else None

    def get_num_threads(self) -> int | None:
        """Return how many threads numeric libraries were given; None outside a sweep."""
        return self._session.job.num_threads if self._session else None

    @property
    def _rank(self) -> wire.Rank:
        return (self._session and self._session.job.rank) or wire.Rank(0, 1)

    def get_world_size(self) -> int:
        """Return the number of workers of this trial's group; 1 when it is a single process."""
        return self._rank.size

    def get_world_rank(self) -> int:
        """Return the rank of this worker in the group, from 0."""
        return self._rank.rank

    def get_local_rank(self) -> int:
        """Return the rank of this worker among those on the same node, from 0."""
        return self._rank.local_rank

    def get_local_world_size(self) -> int:
        """Return the number of workers of the group on this node."""
        return self._rank.local_size

    def get_node_rank(self) -> int:
        """Return the number of this node among those of the group, from 0."""
        return self._rank.node_rank

    def get_num_nodes(self) -> int:
        """Return on how many nodes the group runs."""
        return self._rank.num_nodes

    def get_device_indices(self) -> tuple[int, ...]:
        """Return the positions of this worker's own GPUs among those that it sees: `cuda:i` for each `i`."""
        if self._session is None:
            return ()
        if self._session.job.rank is not None:
            return self._session.job.rank.devices
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return tuple(range(len([token for token in shown.split(",") if token.strip()])))
