"""What a worker is told of its attempt: jobs made from trials, and the files that they name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from sweep.core.resources import Node, Resources
from sweep.core.trial import Trial
from sweep.worker import environment, wire
from sweep.worker.trainable import PreparedTrainable

__all__ = ["JobMaker", "store_code"]


class JobMaker:
    """Makes jobs for the trials of one engine.

    Attributes:
        directory: of the experiment, absolute.
    """

    def __init__(
        self,
        directory: Path,
        trainable: PreparedTrainable,
        *,
        nodes: Sequence[Node],
        environ: Mapping[str, str],
        env: Mapping[str, str] | None,
        seed: int,
        experiment_name: str,
        is_chdir: bool,
        code: str = "",
        objects: str = "",
    ) -> None:
        """Take what all jobs have in common.

        Args:
            environ: the driver's own variables.
            env: additional ones for all trials.
            code, objects: files with the trainable and its shared objects; empty when the worker is this process.
        """
        self.directory = str(directory)
        self._trainable = trainable
        self._nodes = tuple(nodes)
        self._environ = environ
        self._env = dict(env or {})
        self._seed = seed
        self._experiment_name = experiment_name or directory.name
        self._is_chdir = is_chdir
        self._code = code
        self._objects = objects
        self._requests: dict[Resources, tuple[dict[str, Any], int]] = {}

    def make(self, token: int, trial: Trial) -> wire.Job:
        """Return the job of one attempt."""
        request = self._requests.get(trial.resources)
        if request is None:
            threads = environment.num_threads(trial.resources, self._environ)
            request = self._requests[trial.resources] = (trial.resources.to_json(), threads)
        variables = environment.attempt_variables(
            experiment=self.directory,
            trial_id=trial.id,
            attempt=trial.attempt,
            resources=trial.resources,
            placement=trial.placement,
            nodes=self._nodes,
            environ=self._environ,
        )
        start = trial.checkpoint
        return wire.Job(
            token=token,
            trial_id=trial.id,
            attempt=trial.attempt,
            experiment=self._experiment_name,
            directory=self.directory,
            code=self._code,
            kind=self._trainable.kind,
            name=self._trainable.name,
            objects=self._objects,
            # Plain pickle of an enum of `__main__` succeeds here and fails in the worker.
            config=cloudpickle.dumps(dict(trial.config)),
            variables={**self._env, **variables},
            num_threads=request[1],
            seed=environment.trial_seed(self._seed, trial.id),
            base_count=start.count if start is not None else 0,
            checkpoint=os.path.join(self.directory, start.path) if start is not None else "",
            resources=request[0],
            is_chdir=self._is_chdir,
        )


def store_code(payload: bytes, directory: Path) -> str:
    """Write the trainable's bytes once, named by their hash, and return the path."""
    path = directory / f"{hashlib.sha256(payload).hexdigest()}.pkl"
    if not path.exists():
        temporary = directory / f"tmp-{path.name}-{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    return str(path)
