"""A trainer: a train loop, how many workers run it and what they find each other by. It is a trainable: its gang is the
trial's request."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from searchers.errors import nearest
from searchers.space import Categorical, Domain
from searchers.variants import fresh, grid_values, has_domains, merge
from sweep import train
from sweep.checkpoints.store import Checkpoint
from sweep.checks import number
from sweep.core.config import RunConfig
from sweep.core.group import START_ERROR
from sweep.core.resources import Resources
from sweep.errors import ConfigError, ResourceError, SweepError, TrainableError, UserCodeError, refuse_unknown
from sweep.train.scaling import ScalingConfig
from sweep.worker.adapters import former_values
from sweep.worker.group_environment import GroupSpec
from sweep.worker.parameters import call_problem, name_of, refuse_asynchronous, unwrap
from sweep.worker.rank import RankSession
from sweep.worker.session import current
from sweep.worker.shipping import ship
from sweep.worker.trainable import PreparedTrainable, former_arguments
from sweep.worker.wire import Rank

if TYPE_CHECKING:
    from sweep.results.views import Result
    from sweep.train.fit import NestedResult

__all__ = ["Backend", "DataParallelTrainer", "GroupStartError"]

_KEYS = ("train_loop_config", "scaling_config")


class GroupStartError(SweepError):
    """The ranks of a group did not find each other; the group is started again, at most three times."""


assert GroupStartError.__name__ == START_ERROR


@dataclass(frozen=True)
class Backend:
    """How the ranks of a group find each other: nothing here; `TorchConfig` and `JaxConfig` are such.

    Raises:
        ConfigError: a field whose name ends in `timeout_s` is no number of seconds above 0.
    """

    framework: ClassVar[str] = ""
    visibility: ClassVar[str] = "isolate"  # unless the scaling config says otherwise
    modules: ClassVar[tuple[str, ...]] = ()  # imported before ranks are forked

    def __post_init__(self) -> None:
        for field in fields(self):
            seconds = getattr(self, field.name)
            if field.name.endswith("timeout_s") and seconds is not field.default:
                expected = "seconds above 0" + (", or None" if field.default is None else "")
                number(f"{type(self).__name__}: {field.name}", seconds, above=0, expected=expected)

    @property
    def name(self) -> str:
        """The communication library that the user chose; empty: none in particular."""
        return ""

    @property
    def sharing(self) -> str:
        """Whether workers with shares of GPUs are put on one device: "share" so, "refuse" never; empty: as it comes."""
        return "" if self.framework else "share"  # of a library of which nothing is known: as Ray does it

    @property
    def sharing_notice(self) -> str:
        """What to say when workers share devices; empty: nothing, because that was asked for."""
        return ""

    def check(self) -> None:
        """Refuse a machine without what the group needs; called when a trainer is made."""

    def start(self, rank: Rank) -> None:
        """Join the group; runs in each rank, before the train loop."""

    def finish(self) -> None:
        """Leave the group in order; runs in each rank, after the train loop has returned."""


NOT_OF_TRAINERS = {
    "datasets": "Load the data inside the train loop, each worker its part.",
    "dataset_config": "Load the data inside the train loop, each worker its part.",
    "preprocessor": "Prepare the data inside the train loop.",
    "validation_config": "Validate inside the train loop, and report what came of it.",
}
"""What Ray's trainers take besides, and what to do here."""


class TrainerOptions(TypedDict, total=False):
    """What every trainer takes besides its train loop and its backend."""

    train_loop_config: Mapping[str, Any] | None
    scaling_config: ScalingConfig | None
    run_config: RunConfig | None
    resume_from_checkpoint: Checkpoint | None


@refuse_unknown(NOT_OF_TRAINERS)
class DataParallelTrainer:
    """Run a train loop in several worker processes at once.

    `fit()` runs it alone; `sweep.run(trainer, ...)` and `Tuner(trainer, ...)` make each trial such a group, admitted
    whole or not at all. A trial's config may hold `train_loop_config`, which is merged over the trainer's own, and
    `scaling_config`, the same; both may contain search domains.

    Args:
        train_loop_per_worker: a function of one config, or of nothing; it calls `sweep.train.report`.
        train_loop_config: its config.
        scaling_config: how many workers, with which resources.
        run_config: name, place, failures and environment of a run by `fit()`. In a sweep only the hang limit of its
            failure config and its `runtime_env` count: the rest is the sweep's own.
        resume_from_checkpoint: what `get_checkpoint()` returns while the trial has none of its own.

    Raises:
        TrainableError: the loop cannot be called with one config.
        ConfigError, ResourceError: an argument is wrong.
    """

    _default_backend: ClassVar[Backend] = Backend()
    _backend_argument: ClassVar[str] = "backend_config"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: Backend | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        own = type(self._default_backend)
        what = "a TorchConfig, JaxConfig or TensorflowConfig" if own is Backend else f"a {own.__name__}"
        for name, value, kind, expected in (
            ("train_loop_config", train_loop_config, Mapping, "a dict"),
            (self._backend_argument, backend_config, own, what),
            ("scaling_config", scaling_config, ScalingConfig, "a ScalingConfig"),
            ("run_config", run_config, RunConfig, "a RunConfig"),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint, "a Checkpoint"),
        ):
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{type(self).__name__}: {name} is {value!r:.100}; expected {expected}.")
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config: dict[str, Any] = dict(train_loop_config or {})
        self.backend = backend_config or self._default_backend
        self.backend.check()
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.resume_from_checkpoint = resume_from_checkpoint
        self._is_flat = False  # the whole config of a trial is the loop's
        self._takes_config = _takes_config(train_loop_per_worker, has_config=bool(train_loop_config))

    def fit(self) -> Result | NestedResult:
        """Run the loop to its end and return how it turned out.

        Outside a sweep it is an experiment of one trial. Inside a trial of a function, the workers take the resources
        that the trial holds (`PlacementGroupFactory`, `with_resources`) and never more.

        Raises:
            TrainingFailedError: it failed more often than `FailureConfig.max_failures` allows.
            ResourceError: the workers do not fit on this machine, or not into the trial's placement.
        """
        from sweep.train import fit

        if self.scaling_config.is_open or has_domains(self.train_loop_config):
            raise ConfigError(
                "fit() was called on a trainer whose config holds search domains; use sweep.run(trainer)."
            )
        session = current()
        return train.fit_alone(self) if session is None else fit.fit_inside(self, session)

    def scaling_of(self, config: Mapping[str, Any]) -> ScalingConfig:
        """Return the scaling of a trial with this config.

        Raises:
            ResourceError: the values in it make no sense.
        """
        given = None if self._is_flat else config.get("scaling_config")
        return self.scaling_config.merged(given) if given else self.scaling_config

    def resources_of(self, config: Mapping[str, Any]) -> Resources:
        """Return what a trial with this config asks for: the whole gang."""
        return self._request(self.scaling_of(config))

    def _request(self, scaling: ScalingConfig) -> Resources:
        sharing = self.backend.sharing
        return scaling.to_resources(distinct_devices=sharing == "refuse", shared_devices=sharing == "share")

    def spec_of(self, config: Mapping[str, Any]) -> GroupSpec:
        """Return what its group is besides."""
        scaling = self.scaling_of(config)
        plan = scaling.slice_plan
        failures = self.run_config.failure_config
        return GroupSpec(
            framework=self.backend.framework,
            backend=self.backend.name,
            visibility=str(scaling.gpu_visibility or self.backend.visibility),
            has_head=scaling.head is not None,
            workers_per_slice=plan.workers_per_slice if plan is not None else 0,
            env=self.run_config.env_vars,
            checkpoint=self.resume_from_checkpoint.path if self.resume_from_checkpoint is not None else "",
            hang_s=failures.report_limit_s if failures is not None else None,
        )

    def space_of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the search space of a sweep over this trainer: what was given, and the trainer's own domains.

        Raises:
            ConfigError: a key that a trainer does not take.
            ResourceError: a scaling that makes no sense.
        """
        if self._is_flat:
            self._refuse_config(given)
            return dict(given)
        for key in given:
            if key not in _KEYS:
                hint = nearest(str(key), list(_KEYS))
                raise ConfigError(
                    f"the config of a trainer has the key {key!r}; hyperparameters belong under 'train_loop_config': "
                    f"config={{'train_loop_config': {{{key!r}: ...}}}}. {hint}"
                )
        space: dict[str, Any] = {}
        loop = given.get("train_loop_config")
        own = {key: value for key, value in self.train_loop_config.items() if has_domains({key: value})}
        if loop is not None or own:
            if loop is not None and not (isinstance(loop, Mapping) and grid_values(loop) is None):
                expected = "a dict, whose values may be search domains"
                raise ConfigError(f"train_loop_config is {loop!r:.100}; expected {expected}.")
            self._refuse_config(loop)
            space["train_loop_config"] = merge(own, loop or {})
        scaling = given.get("scaling_config")
        own_scaling = self.scaling_config.to_config() if self.scaling_config.is_open else {}
        if scaling is not None or own_scaling:
            values = _plain_scaling(scaling) if scaling is not None else {}
            if isinstance(values, dict) and grid_values(values) is None:
                values = {**own_scaling, **values}
                self.scaling_config.merged(values)  # the check
            space["scaling_config"] = values
        return space

    def _refuse_config(self, config: Mapping[str, Any] | None) -> None:
        if config and not self._takes_config:
            name = name_of(unwrap(self.train_loop_per_worker)[0])
            raise TrainableError(
                f"a config was given, and the train loop {name}() takes none. Expected `def {name}(config)`."
            )

    def requests_of(self, space: Mapping[str, Any]) -> list[Resources]:
        """Return the requests that trials of this space can come to, as far as they can be told beforehand.

        Raises:
            ResourceError: one of the values makes no sense.
        """
        scalings = _variants(None if self._is_flat else space.get("scaling_config"))
        return list(dict.fromkeys(self._request(self.scaling_config.merged(values)) for values in scalings or ()))

    def elastic_of(self, space: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the range of workers and how often a group is resized, if one of this space can have a range."""
        values = _variants(None if self._is_flat else space.get("scaling_config")) or [None]
        if not any(isinstance(self.scaling_config.merged(one).num_workers, (tuple, list)) for one in values):
            return None
        own = self.scaling_config
        is_range = isinstance(own.num_workers, (tuple, list))
        return {"num_workers": own.num_workers if is_range else None, "resize_every_s": own.resize_every_s}

    def notices_of(self, space: Mapping[str, Any]) -> list[str]:
        """Return what people should be told of the groups that trials of this space can come to."""
        share = next((one.bundles[-1].gpu for one in self.requests_of(space) if one.shared_devices), 0.0)
        text = self.backend.sharing_notice
        return [f"workers of a group hold {share:g} of a GPU each and share one; {text}"] if share and text else []

    def __sweep_trainable__(self) -> PreparedTrainable:
        """Return this trainer in the form in which engines take it."""
        loop, objects, resources = unwrap(self.train_loop_per_worker)
        if resources is not None:
            raise ResourceError("the resources of a trainer are those of its ScalingConfig; leave out with_resources.")
        payload, modules = ship(self.rank_body(loop), objects)
        return PreparedTrainable(
            name=name_of(loop),
            kind="function",
            payload=payload,
            imports=(*modules, *self.backend.modules, __name__, type(self.backend).__module__),
            resources=self.resources_of,
            objects=objects,
            group=self.spec_of,
            space=self.space_of,
            requests=self.requests_of,
            elastic=self.elastic_of,
            notices=self.notices_of,
            env=self.run_config.env_vars,
        )

    def rank_body(self, loop: Callable[..., Any]) -> Callable[..., Any]:
        """Return what each rank runs: a function of the trial's config."""
        size, name = self.scaling_config.num_workers, name_of(loop)
        if inspect.ismethod(call := getattr(loop, "__call__", None)):  # noqa: B004 - what is called, not whether
            loop = call  # a method shows which code must travel; an object does not
        body = functools.partial(
            run_rank,
            loop=loop,
            # What is searched comes with each trial's config.
            loop_config={key: value for key, value in self.train_loop_config.items() if not has_domains({key: value})},
            takes_config=self._takes_config,
            is_flat=self._is_flat,
            num_workers=size if isinstance(size, int) else None,
            backend=self.backend,
        )
        vars(body)["__name__"] = name  # errors about it speak of the user's function
        return body


def run_rank(
    config: dict[str, Any],
    *,
    loop: Callable[..., Any],
    loop_config: Mapping[str, Any],
    takes_config: bool,
    is_flat: bool,
    num_workers: int | None,
    backend: Backend,
    **objects: Any,
) -> Any:
    """Be one rank: join the group, run the train loop, leave the group.

    Raises:
        GroupStartError: the group was not joined.
    """
    session = current()
    assert session is not None
    rank = session.job.rank
    if rank is None:
        given = None if is_flat else config.get("scaling_config")
        if isinstance(given, ScalingConfig):  # from a function in the search space
            given = given.to_config()
        size = (given or {}).get("num_workers", num_workers)
        if size != 1:
            raise UserCodeError(
                f"this engine runs single processes, and the group has {size} workers; use engine='local'."
            )
        rank = Rank(0, 1)
    try:
        backend.start(rank)
    except Exception as error:  # whatever the library raises when ranks do not find each other
        raise GroupStartError(f"{type(error).__name__}: {error}") from error
    if isinstance(session, RankSession):
        session.join()
    own = config if is_flat else config.get("train_loop_config") or {}
    if takes_config:
        value = loop(merge(fresh(loop_config), own), **objects, **former_values(session, loop, objects))
    else:
        value = loop(**objects)
    if inspect.isgenerator(value):
        return _then_finish(value, backend)
    backend.finish()
    if is_flat:
        return value  # of a function for Tune it is the last report
    if isinstance(value, Mapping) and not session.num_reports:
        print("sweep: the train loop returned a dict and reported nothing; call report() with it.", flush=True)
    return None  # as in Ray Train


def _then_finish(values: Iterator[Any], backend: Backend) -> Iterator[Any]:
    yield from values
    backend.finish()


def _takes_config(loop: Any, *, has_config: bool) -> bool:
    """Whether a train loop is called with its config, or with nothing."""
    inner, objects, _ = unwrap(loop)
    if not callable(inner) or inspect.isclass(inner):
        raise TrainableError(f"train_loop_per_worker is {loop!r}; expected a function of a config, or of nothing.")
    refuse_asynchronous("train loop", inner)
    if not call_problem(inner, {}, **dict.fromkeys({*objects, *former_arguments(inner, objects)})):
        return True
    if not has_config and not call_problem(inner, **dict.fromkeys(objects)):
        return False
    raise TrainableError(
        f"the train loop {name_of(inner)}{inspect.signature(inner)} cannot be called with one config; expected "
        f"`def {name_of(inner)}(config)`"
        + (", because a train_loop_config was given." if has_config else " or a function without arguments.")
        + " Bind other arguments with functools.partial or sweep.with_parameters."
    )


def _plain_scaling(value: Any) -> Any:
    """Return a scaling in a space with `ScalingConfig` objects, also among options, replaced by dicts; the number of
    workers of an object counts also when it is the default."""
    if isinstance(value, ScalingConfig):
        return {"num_workers": value.num_workers, **value.to_config()}
    grid = grid_values(value)
    if grid is not None:
        return {"grid_search": [_plain_scaling(option) for option in grid]}
    if isinstance(value, Categorical):
        options = [_plain_scaling(value[i]) for i in range(len(value))]
        return Categorical(options) if options != [value[i] for i in range(len(value))] else value
    if isinstance(value, (Mapping, Domain)):
        return dict(value) if isinstance(value, Mapping) else value
    raise ConfigError(f"scaling_config is {value!r:.100}; expected a ScalingConfig, or a dict of its fields.")


def _variants(value: Any) -> list[Any] | None:
    """Return all that a part of a space can come to; None: that cannot be told, or is too much."""
    options = value.categories if isinstance(value, Categorical) else grid_values(value)
    if options is None and not isinstance(value, Mapping):
        return None if isinstance(value, Domain) else [value]
    parts = list(map(_variants, value.values() if options is None else options))
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or (math.prod(map(len, known)) > 1000 and options is None):
        return None
    if options is not None:
        return list(itertools.chain(*known))
    return [dict(zip(value, values, strict=True)) for values in itertools.product(*known)]
