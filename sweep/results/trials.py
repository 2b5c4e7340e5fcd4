"""What users see of a trial, in a callback or read from a record: one interface for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from searchers.errors import readable
from sweep.checkpoints.store import Checkpoint
from sweep.core.literals import evaluated_params, experiment_tag
from sweep.core.resources import Resources
from sweep.core.trial import Trial, shown_state
from sweep.record.layout import ExperimentLayout

if TYPE_CHECKING:
    from sweep.record.rows import TrialRow


@dataclass(frozen=True)
class ExperimentInfo:
    """What observers know of the experiment besides the trials themselves."""

    root: str = ""  # its directory, absolute
    trainable_name: str = "trial"  # shown before the trials' ids
    variables: tuple[str, ...] | None = ()  # flattened config paths that vary among trials; None: all may
    name_of: Callable[[Any], str] | None = None  # returns the name that the user gives to a trial, or an empty text
    max_failures: int = 0  # which a trial may have and still be started again; -1: unlimited

    @property
    def layout(self) -> ExperimentLayout:
        """Where its files lie."""
        return ExperimentLayout(Path(self.root))


class ShownTrial:
    """One trial as it was at some moment; read-only. `str(trial)` is its name.

    Besides what is listed here it has what else is known of it: `number`, `attempt`, `count`, `failures`, `losses`,
    `failure`, `reason`, `resources`, `placement` and others, as `sweep.core.trial.Trial` explains them. The statuses
    are constants, too: `trial.status == trial.RUNNING`.
    """

    __slots__ = ("_about", "_facts")

    PENDING: ClassVar[str] = "PENDING"
    RUNNING: ClassVar[str] = "RUNNING"
    PAUSED: ClassVar[str] = "PAUSED"
    TERMINATED: ClassVar[str] = "TERMINATED"
    ERROR: ClassVar[str] = "ERROR"

    def __init__(self, facts: Trial | TrialRow, about: ExperimentInfo) -> None:
        self._facts = facts
        self._about = about

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._facts, name):  # a copy that is just being made has no facts yet
            raise AttributeError(f"a trial has no attribute {name!r}", name=name, obj=self)
        return getattr(self._facts, name)

    def __str__(self) -> str:
        return readable(self.trial_name)

    def __repr__(self) -> str:
        return f"<trial {self} {self.status}>"

    @property
    def trial_id(self) -> str:
        """The trial's id, for instance `a1b2c_00042`."""
        return self._facts.id

    id = trial_id

    @property
    def trial_name(self) -> str:
        """What `trial_name_creator` called it, else `<trainable>_<trial id>`."""
        return self.custom_trial_name or f"{self.trainable_name}_{self.trial_id}"

    @property
    def custom_trial_name(self) -> str | None:
        """What `trial_name_creator` called it; None: nothing."""
        name_of = self._about.name_of
        return None if name_of is None else name_of(self._facts) or None

    @property
    def trainable_name(self) -> str:
        """The name of the function or class."""
        return self._about.trainable_name

    @property
    def status(self) -> str:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""
        return self._facts.status

    @property
    def state(self) -> str:
        """Where it is as people are shown it, one of `sweep.core.trial.STATES`: running, stopped early ..."""
        return shown_state(self._facts)

    @property
    def evaluated_params(self) -> dict[str, Any]:
        """The values that vary among trials, by flattened path."""
        return evaluated_params(self.config, self._about.variables)

    @property
    def experiment_tag(self) -> str:
        """`<number>_<name=value,...>` of what varies."""
        return experiment_tag(self._facts.number, self._facts.config, self._about.variables)

    @property
    def path(self) -> str:
        """The trial's directory, absolute."""
        return str(self._about.layout.trial(self.trial_id))

    local_path = logdir = path

    @property
    def log_dir(self) -> Path:
        """The same as a `Path`."""
        return Path(self.path)

    @property
    def local_dir(self) -> str:
        """The experiment's directory, absolute."""
        return self._about.root

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint, or None."""
        ref = self._facts.checkpoint
        return None if ref is None else Checkpoint(self._about.layout.checkpoint(ref.path))

    def has_checkpoint(self) -> bool:
        """Whether it has a checkpoint to continue from."""
        return self._facts.checkpoint is not None

    @property
    def placement_group_factory(self) -> Resources:
        """What it asks for: the same as `resources`."""
        return self._facts.resources

    @property
    def num_failures(self) -> int:
        """Faults of its own so far: the same as `failures`."""
        return self._facts.failures

    @property
    def max_failures(self) -> int:
        """Failures that it may have and still be started again; -1: unlimited."""
        return self._about.max_failures

    def is_finished(self) -> bool:
        """Whether it is TERMINATED or in ERROR."""
        return self._facts.is_ended
