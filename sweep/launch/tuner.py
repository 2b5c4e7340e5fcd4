"""`Tuner`: a sweep described by configs, and brought back from its directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.config import ResumeConfig, RunConfig, TuneConfig, fields_of
from sweep.errors import ConfigError, ExperimentError, SweepError, SweepInterrupted, refuse_unknown
from sweep.launch.execute import execute
from sweep.launch.spec import HAS_NO_RESUME, PARAMETERS
from sweep.record.layout import split_uri
from sweep.record.saved_spec import TUNER_PKL, read_saved_spec, space_keys, with_environment

if TYPE_CHECKING:
    from sweep.results.analysis import ResultGrid
    from sweep.results.views import Result
    from sweep.train.trainer import DataParallelTrainer


_METRIC = "The key that it reports is tune_config=sweep.TuneConfig(metric=...)."
_A_FUNCTION = f"The function is the first argument: Tuner(train, ...). {_METRIC}"


@refuse_unknown(
    {
        **fields_of(RunConfig, "run_config"),
        **fields_of(TuneConfig, "tune_config"),
        "config": "It is called param_space.",
        **dict.fromkeys(("objective", "func", "fn", "function", "run_or_experiment"), _A_FUNCTION),
    }
)
class Tuner:
    """Run a sweep described by configs; `fit` returns a `ResultGrid` and does not raise for failed trials.

    Args:
        trainable: as for `run`.
        param_space: search space and constants.
        tune_config, run_config: what is searched and how; where it lives.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        resources_per_trial: Any = None,
    ) -> None:
        own = getattr(trainable, "run_config", None)  # of a trainer
        self._trainable = trainable
        self._arguments = {
            **_of(tune_config or TuneConfig()),
            **_of(run_config or (own if isinstance(own, RunConfig) else RunConfig())),
            "config": param_space,
            "resources_per_trial": resources_per_trial,
        }
        self._results: ResultGrid | None = None

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether there is an experiment at `path` that `restore` can bring back."""
        try:
            root = _directory_of(path, storage_filesystem)
        except ExperimentError:
            return False
        return (root / "sweep.db").is_file() and (root / TUNER_PKL).is_file()

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any = None,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        storage_filesystem: Any = None,
    ) -> Tuner:
        """Return a tuner that goes on with the experiment at `path`, in any process, also when it was moved.

        It loads `tuner.pkl` there, which runs code: restore only experiments that you trust.

        Args:
            path: directory of the experiment, or its URI.
            trainable: what is run; it must have the name that it had.
            resume_unfinished: continue trials that had not ended; False ends them.
            resume_errored: continue failed trials from their checkpoint; restart_errored: start them anew.
            param_space: in place of the stored one, with the same keys: for spaces that hold what could not be stored.
            tune_config, run_config: fields that differ from their defaults take the place of the stored ones: more
                samples, another time budget, callbacks.

        Raises:
            ExperimentError: there is no experiment, or it cannot be restored.
            ConfigError: the trainable has another name, the space other keys, two arguments contradict each other, or
                environment variables of the trials, whose values are not stored, are not in the environment.
        """
        from sweep.record.reader import ExperimentReader
        from sweep.results.analysis import ResultGrid, own_analysis
        from sweep.worker.trainable import prepare

        if resume_errored and restart_errored:
            raise ConfigError("resume_errored and restart_errored were both given; failed trials can do only one.")
        root = _directory_of(path, storage_filesystem)
        reader = ExperimentReader(root)
        meta = reader.meta
        recorded = (meta.get("trainable") or {}).get("name")
        if trainable is None:
            raise ConfigError(f"{root} needs the trainable: Tuner.restore(path, trainable={recorded}).")
        name = trainable if isinstance(trainable, str) else prepare(trainable).name
        if recorded not in (None, name):
            what = f"the experiment {root} was run with the trainable {recorded!r}"
            raise ConfigError(f"{what}, and {name!r} was given. Pass the same function or class.")
        arguments, lost = read_saved_spec(root)
        arguments |= reader.edits()
        changes = {} if param_space is None else {"config": param_space}
        if param_space is not None and (odd := set(meta.get("space_keys") or ()) ^ set(space_keys(param_space))):
            what = f"param_space is another space: {', '.join(sorted(odd))} is in one of the two only"
            raise ConfigError(f"{what}; expected the keys that the experiment was run with.")
        for given in filter(None, (tune_config, run_config)):
            usual = _of(type(given)())
            changes |= {name: value for name, value in _of(given).items() if value != usual[name]}
        if lost := {name: why for name, why in lost.items() if name not in changes}:
            hints = {"config": "param_space", "search_alg": "tune_config", "scheduler": "tune_config"}
            shown = "; ".join(f"{name} ({hints.get(name, 'run_config')}=...): {why}" for name, why in lost.items())
            raise ExperimentError(f"{root / TUNER_PKL} does not hold everything. Pass it again: {shown}.")
        errored = "resume" if resume_errored else "restart" if restart_errored else "skip"
        tuner = cls.__new__(cls)
        tuner._trainable = trainable
        tuner._arguments = {
            **with_environment(arguments, os.environ, is_given="env" in changes),
            **changes,
            **_place_of(path, storage_filesystem),
            "resume": "AUTO",
            "resume_config": ResumeConfig(unfinished="resume" if resume_unfinished else "skip", errored=errored),
        }
        tuner._results = ResultGrid(own_analysis(root))
        return tuner

    def fit(self) -> ResultGrid:
        """Run the sweep to its end.

        Raises:
            SweepInterrupted: it was interrupted (`RunConfig.on_interrupt`); `get_results` has what there is.
        """
        from sweep.results.analysis import ResultGrid

        token = HAS_NO_RESUME.set(True)
        try:
            self._results = ResultGrid(execute(self._trainable, {**self._arguments, "raise_on_failed_trial": False}))
        except SweepInterrupted as error:
            self._results = ResultGrid(error.analysis)
            raise error.with_traceback(None) from None
        finally:
            HAS_NO_RESUME.reset(token)
        return self._results

    def get_results(self) -> ResultGrid:
        """Return the results of `fit`, or what a restored experiment has so far.

        Raises:
            SweepError: nothing was run yet.
        """
        if self._results is None:
            raise SweepError("nothing was run yet; call fit() first.")
        return self._results


def fit_alone(trainer: DataParallelTrainer) -> Result:
    """Run a trainer as an experiment of one trial: its `fit()` outside a trial.

    Raises:
        TrialsFailed: the trial failed.
    """
    from sweep.results.views import TrainingResult
    from sweep.train.fit import TuneReportCallback

    callbacks = [one for one in trainer.run_config.callbacks or () if not isinstance(one, TuneReportCallback)]
    arguments = _of(trainer.run_config) | {"callbacks": callbacks, "raise_on_failed_trial": True}
    del arguments["env"]  # the trainer's own, as a trainable
    analysis = execute(trainer, arguments)
    return TrainingResult(analysis._reader.trials()[0], analysis._reader)


def _of(config: Any) -> dict[str, Any]:
    """Return the parameters of `run` that a config stands for: its fields have their names, but for the environment."""
    given = {name: value for name, value in vars(config).items() if name in PARAMETERS}
    return given | ({"env": config.env_vars} if isinstance(config, RunConfig) else {})


def _directory_of(path: str | os.PathLike[str], filesystem: Any) -> Path:
    """Return the local directory of the experiment at `path`, brought here when it lies elsewhere."""
    if "://" in os.fspath(path) or filesystem is not None:
        from sweep.storage.fetch import open_storage_for_reading

        return open_storage_for_reading(path, filesystem)
    place = _place_of(path, None)
    return Path(place["storage_path"], place["name"])


def _place_of(path: str | os.PathLike[str], filesystem: Any) -> dict[str, Any]:
    """Return name and storage of the experiment at `path`, which may be a URI."""
    text = os.fspath(path).rstrip("/")
    if "://" not in text and filesystem is None:
        text = os.path.abspath(os.path.expanduser(text)).removesuffix("/sweep.db")
    parent, name = split_uri(text)
    return {"storage_path": parent, "name": name, "storage_filesystem": filesystem}
