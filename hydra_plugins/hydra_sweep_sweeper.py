"""`python app.py -m hydra/sweeper=sweep lr='interval(1e-5,1e-1)'`: a plugin of Hydra that sweeps an app by `sweep.run`.

Each trial is a job as Hydra's own launchers run it. Every Hydra app imports this file, so that it imports sweep late.
"""

import contextlib
import logging
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.singleton import Singleton
from hydra.core.utils import run_job
from hydra.errors import CompactHydraException
from hydra.plugins.sweeper import Sweeper
from omegaconf import OmegaConf, open_dict

log = logging.getLogger(__name__)
_LINK = "hydra"  # in the experiment's directory: to that of the jobs


# Options `hydra.sweeper.*`; others that are parameters of `sweep.run` can be added.
OPTIONS: dict[str, Any] = {
    "_target_": "hydra_plugins.hydra_sweep_sweeper.SweepSweeper",
    "params": None,  # ranges by key, which the command line wins over
    "direction": "minimize",  # or maximize; a list: several objectives; None: nothing is optimised
    "metric": None,  # name of what a job returns, or a key of the dict; None: value, or value_0 and so on
    "n_trials": None,  # None: a grid once, else 20, or until time_budget_s
    "time_budget_s": None,
    "max_concurrent_trials": None,
    "resources_per_trial": {"cpu": 1, "gpu": 0, "memory": None},
    "search_alg": None,  # None: grid if every range is a list and nothing limits it, else tpe
    "search_alg_options": None,
    "scheduler": None,
    "scheduler_options": None,
    "seed": None,
    "name": None,
    "storage_path": None,
    "resume": False,
}
ConfigStore.instance().store(group="hydra/sweeper", name="sweep", node=OPTIONS, provider="sweep")


class SweepSweeper(Sweeper):  # type: ignore[misc]
    """Run the jobs of a multirun as the trials of a sweep."""

    def __init__(self, **options: Any) -> None:
        self.options: Any = OmegaConf.to_object(OmegaConf.create(options, flags={"allow_objects": True}))

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        """Run the sweep that the overrides describe; log its best job, and write it down."""
        import sweep
        from sweep.launch.execute import failure_of
        from sweep.worker.shipping import why_unpicklable

        sampler, *_ = [self.options.pop(key, None) for key in ("sampler", "n_jobs", "study_name", "storage")]
        if sampler is not None:  # of a config for Hydra's Optuna sweeper, which works here, too
            if self.options["resume"]:
                sampler.reseed_rng()  # else it draws again what it has drawn
            self.options["search_alg"] = sweep.OptunaSearch(sampler=sampler)
        try:
            space, fixed = self._space(arguments)
            kwargs = self._run_kwargs()
            home = self._directory(kwargs)
            own = {key: one for key, one in vars(sys.modules["__main__"]).items() if isinstance(one, type)}
            own = {key: one for key, one in own.items() if one.__module__ == "__main__" and not why_unpicklable(one)}
            known = {"own": own, "state": Singleton.get_state(), "context": self.hydra_context, "config": self.config}
            known |= {"fixed": fixed, "keys": [*space], "metric": kwargs["metric"], "home": home, "argv": sys.argv}
            job: Any = partial(_run, self.task_function, known)
            job.__name__ = self.config.hydra.job.name
            analysis = sweep.run(job, config=space, **kwargs)
            if kwargs["metric"]:
                _conclude(analysis, fixed, kwargs["metric"], home)
            if failure := failure_of(analysis):
                raise failure
        except sweep.SweepError as error:
            raise CompactHydraException(f"{type(error).__name__}: {error}") from error

    def _space(self, arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the search space, by keys such as `+model.lr`, and the overrides that are no ranges.

        A value is a number, or a text of the grammar. What the options leave open is filled in. Some jobs are composed,
        with all listed values or at least ten, so that mistakes show before the first one starts."""
        options, parser = self.options, OverridesParser.create(self.hydra_context.config_loader)
        ranges = [f"{key}={value}" for key, value in (options.pop("params") or {}).items()]
        overrides = {one.get_key_element(): one for one in parser.parse_overrides([*ranges, *arguments])}
        swept = {key: one for key, one in overrides.items() if one.is_sweep_override()}
        is_open = options["n_trials"] is None and options["time_budget_s"] is None
        is_listed = all(one.is_discrete_sweep() for one in swept.values())
        usual = "grid" if is_open and is_listed else "tpe" if options["direction"] else "random"
        options["search_alg"] = options["search_alg"] or usual
        is_grid = options["search_alg"] == "grid"
        options["n_trials"] = options["n_trials"] or (1 if is_grid else 20 if is_open else -1)
        domains = {key: _domain(one, is_grid) for key, one in swept.items()}
        fixed = [str(one.input_line) for key, one in overrides.items() if key not in swept]
        for i in range(min(10, max((len(values) for _, values in domains.values()), default=1))):
            config = {key: values[i % len(values)] for key, (_, values) in domains.items()}
            self.validate_batch_is_legal([[*fixed, *_texts(config)]])
        return {key: domain for key, (domain, _) in domains.items()}, fixed

    def _run_kwargs(self) -> dict[str, Any]:
        """Return the arguments of `sweep.run` that the options ask for."""
        import sweep

        kwargs = {**self.options, "raise_on_failed_trial": False}
        direction, metric = kwargs.pop("direction"), kwargs.pop("metric")
        several = [str(one)[:3].lower() for one in direction] if isinstance(direction, list) else None
        names: Any = [f"value_{i}" for i in range(len(several))] if several else "value"
        kwargs["mode"] = several or (direction and str(direction)[:3].lower())
        kwargs |= {"metric": (metric or names) if direction else None, "num_samples": kwargs.pop("n_trials")}
        kwargs["resources_per_trial"] = {key: one for key, one in kwargs["resources_per_trial"].items() if one}
        for name, create in (("search_alg", sweep.create_searcher), ("scheduler", sweep.create_scheduler)):
            if given := kwargs.pop(f"{name}_options"):
                kwargs[name] = create(kwargs[name], **given)
        if kwargs["resume"] and not kwargs["name"]:
            raise CompactHydraException("To resume a sweep, also give hydra.sweeper.name; `sweep ls` lists the names.")
        return kwargs

    def _directory(self, kwargs: dict[str, Any]) -> Path:
        """Make and return the directory of the jobs; a sweep that is continued has it where it was."""
        from sweep.storage.location import parse_storage

        home = Path(self.config.hydra.sweep.dir).absolute()
        link = parse_storage(kwargs["storage_path"]).local_root / (kwargs["name"] or "") / _LINK
        if kwargs["resume"] and link.is_symlink():
            home = link.readlink()
        home.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, home / "multirun.yaml")
        return home


def _domain(override: Any, is_grid: bool) -> tuple[Any, list[Any]]:
    """Return what a range is drawn from, and values of it; an interval of whole numbers includes both ends."""
    import sweep

    given, text = override.value(), type(override)._get_value_element_as_str
    if override.is_discrete_sweep():
        values: Any = [v if isinstance(v, (bool, int, float)) else text(v) for v in override.sweep_iterator()]
        if not is_grid and override.is_range_sweep() and isinstance(given.range(), range) and given.step == 1:
            return sweep.randint(given.start, given.stop), values  # neighbours are alike, which a searcher may use
        return (sweep.grid_search if is_grid else sweep.choice)(values), values
    if is_grid:
        raise CompactHydraException(f"{override.input_line}: no grid can be made of an interval; list its values.")
    low, high, is_log = given.start, given.end, "log" in given.tags
    if isinstance(low, int):
        return (sweep.lograndint if is_log else sweep.randint)(low, high + 1), [low, high]
    return (sweep.loguniform if is_log else sweep.uniform)(low, high), [low, high]


def _texts(config: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in config.items()]


def _run(task: Any, known: dict[str, Any], config: dict[str, Any]) -> None:
    """Run one job in the process of its trial, and report what it returns."""
    import sweep

    trial_id, trial_dir = str(sweep.get_context().get_trial_id()), str(sweep.get_context().get_trial_dir())
    with contextlib.suppress(FileExistsError):
        Path(trial_dir).with_name(_LINK).symlink_to(known["home"])
    for name, one in known["own"].items():  # for `_target_: __main__.Net`
        vars(sys.modules["__main__"]).setdefault(name, one)
    Singleton.set_state(known["state"])
    sys.argv = known["argv"]
    overrides = [*known["fixed"], *_texts({key: config[key] for key in known["keys"]})]
    job = known["context"].config_loader.load_sweep_config(known["config"], overrides)
    with open_dict(job):
        job.hydra.job.num = int(trial_id.rpartition("_")[2])
        job.hydra.job.id = f"{job.hydra.job.name}_{job.hydra.job.num}"
        job.hydra.sweep.dir = str(known["home"])
    HydraConfig.instance().set_config(job)
    ended = run_job(task, job, "hydra.sweep.dir", "hydra.sweep.subdir", known["context"])
    returned, names = ended.return_value, known["metric"] or "value"  # raises what the task has raised
    if isinstance(names, list) and isinstance(returned, (list, tuple)) and len(names) == len(returned):
        returned = dict(zip(names, returned, strict=True))
    if returned is not None:
        sweep.report(dict(returned) if isinstance(returned, dict) else {str(names): returned})


def _conclude(analysis: Any, fixed: list[str], metric: Any, directory: Path) -> None:
    """Log the best job as a command, and write it into the directory of the jobs."""
    is_several, spec = isinstance(metric, list), sys.modules["__main__"].__spec__
    program = [sys.argv[0]] if spec is None else ["-m", spec.name.removesuffix(".__main__")]
    results: list[dict[str, Any]] = []
    for trial in analysis.get_pareto_trials() if is_several else [trial for trial, _ in analysis.ranking()[:1]]:
        values = {name: trial.last_result[name] for name in (metric if is_several else [metric])}
        found = ", ".join(f"{name}={value:.6g}" for name, value in values.items())
        log.info(f"Best: {found}\n\t{shlex.join(['python', *program, *fixed, *_texts(trial.config)])}")
        one = {"params": trial.config, "values": [*values.values()]}
        results.append(one if is_several else {"best_params": trial.config, "best_value": values[metric]})
    text = {"solutions": results} if is_several else results[0] if results else {}
    OmegaConf.save(OmegaConf.create({"name": "sweep", **text}), directory / "optimization_results.yaml")
