"""Log each trial as a run of Weights & Biases, from the driver or from within the trial."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.callbacks.loggers import required
from sweep.callbacks.tracking import TrackingCallback, numbers_of
from sweep.core.literals import jsonable
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.errors import ConfigError, refuse_unknown
from sweep.worker.session import get_context

_NEVER = ("date", "done", "experiment_tag", "hostname", "node_ip", "pid", "should_checkpoint", "trial_id")
_init_lock = threading.Lock()


@refuse_unknown()
class WandbLoggerCallback(TrackingCallback):
    """Log each trial as a run of Weights & Biases, whose id is the trial's: a resumed sweep goes on with its runs.

    Numbers are logged, NaN and infinities too, by their flat names; charts have `training_iteration` as their x-axis.
    What W&B prints is not shown, because it would garble the display: `settings={"silent": False}` shows it.

    Args:
        project: default `$WANDB_PROJECT_NAME`, else what W&B takes.
        group: default `$WANDB_GROUP_NAME`, else the name of the experiment.
        api_key_file: a file that holds the key. Else `$WANDB_API_KEY`, or what `wandb login` stored.
        excludes: names of metrics that are left out, with all that is below them.
        log_config: log the numbers of the config with each report too, as `config/...`; it is always the run's config.
        upload_checkpoints: upload each checkpoint as an artifact.
        save_checkpoints: the older name of that.
        init: passed on to `wandb.init`, for instance `mode="offline"`, `tags=[...]`, `settings={...}`.

    Raises:
        ConfigError: wandb is not installed; a key is given twice; at the start of the sweep: there is no key.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: Sequence[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: float | None = None,
        **init: Any,
    ) -> None:
        super().__init__()
        _require()
        if isinstance(excludes, str):
            raise ConfigError(f"excludes={excludes!r} is a text; expected a list of names: excludes=[{excludes!r}].")
        self._variables = _key_of(api_key, api_key_file)
        self._project = project or os.environ.get("WANDB_PROJECT_NAME")
        self._group = group or os.environ.get("WANDB_GROUP_NAME")
        self._excludes = (*_NEVER, *(excludes or ()))
        self._log_config = log_config
        self._uploads = upload_checkpoints or save_checkpoints
        self._init = init
        if upload_timeout is not None:
            self.finish_timeout_s = float(upload_timeout)

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Take the experiment's directory, and see that there is a key."""
        super().setup(experiment_dir=experiment_dir, plan=plan, num_trials=num_trials, **info)
        os.environ.update(self._variables)
        if _mode(self._init) in ("online", "shared"):
            _require_key()

    def _begin(self, trial: Trial, run: Any | None) -> Any:
        if run is not None:  # another attempt; a scheduler may have changed the config
            run.config.update(jsonable(trial.config, is_strict=False), allow_val_change=True)
            return run
        directory = self.layout.trial(trial.id)
        directory.mkdir(parents=True, exist_ok=True)
        return _open_run(
            {
                "project": self._project,
                "group": self._group or self.layout.root.name,
                "id": trial.id,
                "name": str(trial),
                "dir": str(directory),
                "config": jsonable(trial.config, is_strict=False),
                "reinit": "create_new",  # beside the runs of other trials
                **self._init,
                "settings": _settings(
                    self._init.get("settings"), finish_timeout=self.finish_timeout_s, silent=True, console="off"
                ),
            }
        )

    def _record(self, trial: Trial, run: Any, iteration: int, result: TrialResult) -> None:
        row = {"training_iteration": iteration, **dict(numbers_of(result, self._excludes))}
        if self._log_config:
            row |= dict(numbers_of({"config": trial.config}, self._excludes))
        run.log(row)

    def _keep(self, trial: Trial, run: Any) -> None:
        checkpoint = trial.checkpoint
        if not self._uploads or checkpoint is None:
            return
        artifact = _require().Artifact(name=f"checkpoint_{trial.id}", type="model")
        try:
            artifact.add_dir(checkpoint.path)
        except (OSError, ValueError):
            if not os.path.exists(checkpoint.path):
                return  # not kept: a newer one has taken its place before this one's turn came
            raise
        run.log_artifact(artifact)

    def _finish(self, trial: Trial, run: Any, outcome: str) -> None:
        run.finish(exit_code=0 if outcome in ("finished", "paused") else 1)


def setup_wandb(
    config: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    **init: Any,
) -> Any:
    """Open a run of Weights & Biases in a trial, named and grouped as the trial, and return it.

    The run's id is the trial's, so that a trial that is started again goes on with its run; do not use
    `WandbLoggerCallback` besides. Outside a sweep it is `wandb.init` with the arguments given.

    Args:
        config: what the run shows as its config.
        rank_zero_only: in a group, ranks other than 0 get a run that does nothing. False: each has a run of its own,
            named with its rank.
        init: passed on to `wandb.init`, as in Tune with `trial_id` for the run's id and `trial_name` for its name; wins
            over what is derived from the trial.

    Raises:
        ConfigError: wandb is not installed; a key is given twice.
    """
    context = get_context()
    rank = context.get_world_rank()
    if rank and rank_zero_only:
        return _require().init(mode="disabled")
    os.environ.update(_key_of(api_key, api_key_file))
    derived: dict[str, Any] = {}
    trial_id = context.get_trial_id()
    if trial_id is not None:
        suffix = f"-rank{rank}" if rank else ""
        derived = {
            "id": f"{trial_id}{suffix}",
            "name": f"{context.get_trial_name()}{suffix}",
            "group": os.environ.get("WANDB_GROUP_NAME") or context.get_experiment_name(),
            "project": os.environ.get("WANDB_PROJECT_NAME"),
            "dir": context.get_trial_dir(),
        }
        os.makedirs(derived["dir"], exist_ok=True)
    if config is not None:
        derived["config"] = jsonable(config, is_strict=False)
    named = {ours: init.pop(theirs) for theirs, ours in (("trial_id", "id"), ("trial_name", "name")) if theirs in init}
    return _open_run({**derived, **named, **init})


def _require() -> Any:
    return required("wandb", "logging to Weights & Biases")


def _open_run(options: dict[str, Any]) -> Any:
    options = {name: value for name, value in options.items() if value is not None}
    if "id" in options and _mode(options) not in ("offline", "disabled"):
        options.setdefault("resume", "allow")  # offline there is nothing to go on with: `wandb sync` joins by id
    with _init_lock:
        run = _require().init(**options)
    run.define_metric("*", step_metric="training_iteration")
    return run


def _mode(init: Mapping[str, Any]) -> str:
    return str(init.get("mode") or os.environ.get("WANDB_MODE") or "online")


def _settings(given: Any, **defaults: Any) -> Any:
    """Return the settings that were given, with defaults for what they do not say and the installed version knows."""
    if given is not None and not isinstance(given, Mapping):
        return given
    known = getattr(_require().Settings, "model_fields", {})
    return {**{name: value for name, value in defaults.items() if name in known}, **(given or {})}


def _key_of(given: str | None, file: str | None) -> dict[str, str]:
    """Return the variable for the key that was given as a text or as the file that holds it; none when neither was."""
    if file is not None and given is not None:
        raise ConfigError("api_key and api_key_file were both given for Weights & Biases; expected one of them.")
    if file is not None:
        try:
            given = Path(file).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"api_key_file={file!r} cannot be read: {error.strerror}.") from error
        if not given:
            raise ConfigError(f"api_key_file={file!r} is empty; expected the key for Weights & Biases in it.")
    return {} if given is None else {"WANDB_API_KEY": given}


def _require_key() -> None:
    login = _require().login
    if "prompt" not in inspect.signature(login).parameters:
        return  # an older version would wait for somebody at the keyboard
    if not login(prompt=False, verify=False):
        raise ConfigError(
            "there is no key for Weights & Biases. Run 'wandb login', set WANDB_API_KEY, pass api_key_file=..., or "
            "work without the service: WandbLoggerCallback(mode='offline')."
        )
