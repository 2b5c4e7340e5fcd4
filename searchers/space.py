"""What a search space is made of: domains, their samplers, and the functions users write (`uniform`, `choice` ...)."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Self

import numpy as np

from searchers.checks import Checks, is_number, is_whole
from searchers.errors import SpaceError
from searchers.keywords import refuse_unknown
from searchers.samplers import Beta as Beta
from searchers.samplers import Grid as Grid
from searchers.samplers import LogNormal as LogNormal
from searchers.samplers import LogUniform as LogUniform
from searchers.samplers import Normal as Normal
from searchers.samplers import Quantized as Quantized
from searchers.samplers import Sampler as Sampler
from searchers.samplers import Shaped
from searchers.samplers import Uniform as Uniform
from searchers.samplers import Weighted as Weighted

RandomState = int | np.random.Generator | np.random.RandomState | None

_LARGEST_INT = 2**63 - 1
_checks = Checks(SpaceError)


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a generator for a seed, a numpy Generator (itself), a numpy RandomState (advanced by one draw) or None.

    None gives fresh entropy: searchers never pass it.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(0, 2**32, dtype=np.uint64)))
    if random_state is None:
        return np.random.default_rng()
    expected = "a whole number of at least 0, a numpy Generator or RandomState, or None"
    return np.random.default_rng(_checks.whole("random_state", random_state, expected=expected))


# --- domains ---------------------------------------------------------------------------------------------------------


class Domain(ABC):
    """A set of values with a distribution over it: a leaf of a search space that is still to be decided.

    A domain is a value: the methods that choose a sampler return a copy.

    Attributes:
        sampler: the distribution that was chosen; None: the domain's own (uniform).
    """

    sampler: Sampler | None = None

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Any:
        """Return one value, a plain Python object."""

    def cast(self, value: Any) -> Any:
        """Return `value` in the type that this domain's samples have."""
        return value

    def sample(self, config: Mapping[str, Any] | None = None, size: int = 1, random_state: RandomState = None) -> Any:
        """Return one value (`size` 1), or `size` of them: an array of numbers, a list of anything else.

        Args:
            config: what `sample_from` functions are called with.
            random_state: seed, generator, or None for fresh entropy.
        """
        _checks.whole("size", size, least=1)
        rng = as_generator(random_state)
        if size == 1:
            return self.draw(rng)
        values = [self.draw(rng) for _ in range(size)]
        return np.asarray(values) if isinstance(self, _Number) else values

    def is_valid(self, value: Any) -> bool:
        """Whether `value` is one of this domain's."""
        return True

    def is_grid(self) -> bool:
        """Whether every value is to be tried."""
        return isinstance(self.sampler, Grid)

    def is_function(self) -> bool:
        """Whether the value is computed from the rest of the config."""
        return False

    def get_sampler(self) -> Sampler:
        """Return the distribution that is in force."""
        return self.sampler if self.sampler is not None else Uniform()

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """Choose the distribution, in place.

        Raises:
            SpaceError: one was chosen before, unless `allow_override`.
        """
        if self.sampler is not None and not allow_override:
            raise SpaceError(f"{self} already has the sampler {self.sampler}; {sampler} would replace it.")
        self.sampler = sampler

    def _with(self, sampler: Sampler) -> Self:
        new = copy.copy(self)
        new.set_sampler(sampler)
        return new

    @property
    @abstractmethod
    def domain_str(self) -> str:
        """The values, for people."""

    def __repr__(self) -> str:
        sampler = f".{self.sampler!r}" if self.sampler is not None else ""
        return f"{type(self).__name__}{self.domain_str}{sampler}"


class _Number(Domain):
    """What floats and integers share: two bounds and a sampler over the range between them."""

    lower: float
    upper: float

    def uniform(self) -> Self:
        """Return a copy whose values are uniform between the bounds."""
        self._check_finite("uniform")
        return self._with(Uniform())

    def loguniform(self) -> Self:
        """Return a copy whose values are uniform in their logarithm.

        Raises:
            SpaceError: a bound is infinite, or not above 0.
        """
        if not self.lower > 0:
            raise SpaceError(f"a log range begins at {self.lower!r}; its lower bound must be above 0.")
        self._check_finite("loguniform")
        return self._with(LogUniform())

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Self:
        """Return a copy with a normal distribution; a value outside the bounds is moved to the nearer one."""
        mean, sd = _number("mean", mean), _number("sd", sd)
        if not (math.isfinite(mean) and math.isfinite(sd) and sd > 0):
            raise SpaceError(f"normal(mean={mean!r}, sd={sd!r}): expected finite numbers and sd above 0.")
        return self._with(Normal(mean, sd))

    def lognormal(self, mean: float = 0.0, sd: float = 1.0) -> Self:
        """Return a copy whose logarithm has a normal distribution; bounds are above 0, and count as for `normal`."""
        self.loguniform()  # its checks
        self.normal(mean, sd)
        return self._with(LogNormal(mean, sd))

    def beta(self, a: float = 1.0, b: float = 1.0) -> Self:
        """Return a copy with a beta distribution, for bounds of 0 and 1."""
        return self._with(Beta(_checks.number("a", a, above=0), _checks.number("b", b, above=0)))

    def quantized(self, q: float) -> Self:
        """Return a copy whose values are multiples of `q`."""
        if isinstance(self.sampler, Quantized):
            raise SpaceError(f"{self} is quantized already, by q={self.sampler.q!r}.")
        new = copy.copy(self)
        new.set_sampler(Quantized(self.get_sampler(), q), allow_override=True)
        new._check_quantized(q)
        return new

    def is_valid(self, value: Any) -> bool:
        """Whether `value` is a number of this type from lower to upper, both included."""
        return is_number(value, is_finite=False) and self.lower <= value <= self.upper

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"

    def _check_quantized(self, q: float) -> None:
        raise NotImplementedError

    def _check_order(self) -> None:
        if self.lower > self.upper:
            raise SpaceError(f"lower={self.lower!r} is above upper={self.upper!r}; swap them.")

    def _check_finite(self, what: str) -> None:
        if not math.isfinite(self.upper - self.lower):
            raise SpaceError(
                f"{what} over ({self.lower}, {self.upper}): the range must be finite. Give two finite bounds."
            )

    def base_and_q(self) -> tuple[Sampler, Any]:
        """Return how the values are distributed before rounding, and to multiples of what they are rounded."""
        sampler = self.get_sampler()
        return (sampler.sampler, sampler.q) if isinstance(sampler, Quantized) else (sampler, None)


@refuse_unknown()
class Float(_Number):
    """Real numbers in [lower, upper); None for a bound that is infinite.

    Raises:
        SpaceError: a bound that is no number, or lower above upper.
    """

    def __init__(self, lower: float | None = None, upper: float | None = None) -> None:
        self.lower = -math.inf if lower is None else _number("lower", lower)
        self.upper = math.inf if upper is None else _number("upper", upper)
        self._check_order()

    def cast(self, value: Any) -> float:
        return float(value)

    def draw(self, rng: np.random.Generator) -> float:
        sampler, q = self.base_and_q()
        lower, upper = self.lower, self.upper
        if isinstance(sampler, Shaped):
            value = sampler.draw(rng)
        elif isinstance(sampler, LogUniform):
            value = math.exp(rng.uniform(math.log(lower), math.log(upper)))
        else:
            self._check_finite("uniform")
            value = float(rng.uniform(lower, upper))
        if q is not None:
            return self.quantize(value)
        if value >= upper > lower and math.isfinite(upper) and not isinstance(sampler, Shaped):
            value = math.nextafter(upper, lower)  # rounding reached the exclusive bound
        return float(min(max(value, lower), upper))

    def quantize(self, value: float) -> float:
        """Return the multiple of q nearest to `value` (half to even), within the bounds; without q, `value`."""
        _, q = self.base_and_q()
        if q is None:
            return value
        return float(min(max(np.round(value / q) * q, self.lower), self.upper))

    def _check_quantized(self, q: float) -> None:
        _checks.number("q", _number("q", q), above=0)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if math.isfinite(bound) and not math.isclose(bound / q, round(bound / q), rel_tol=1e-9, abs_tol=1e-9):
                raise SpaceError(
                    f"{name}={bound!r} is not a multiple of q={q!r}; the nearest one is {round(bound / q) * q:.12g}."
                )


@refuse_unknown()
class Integer(_Number):
    """Integers in [lower, upper); quantized ones in [lower, upper].

    Raises:
        SpaceError: a bound that is no whole number, or no integer between the bounds.
    """

    lower: int
    upper: int

    def __init__(self, lower: int, upper: int) -> None:
        self.lower, self.upper = _whole("lower", lower), _whole("upper", upper)
        self._check_order()

    def cast(self, value: Any) -> int:
        return int(value)

    @property
    def step(self) -> int:
        """How far apart the integers are."""
        return int(self.base_and_q()[1] or 1)

    @property
    def last(self) -> int:
        """The largest integer that can be drawn."""
        return self.upper - 1 if self.base_and_q()[1] is None else self.upper // self.step * self.step

    @property
    def first(self) -> int:
        """The smallest integer that can be drawn."""
        return -(-self.lower // self.step) * self.step

    def draw(self, rng: np.random.Generator) -> int:
        (sampler, q), step = self.base_and_q(), self.step
        if self.first > self.last:
            raise SpaceError(f"no integer in [{self.lower}, {self.upper}): the upper bound is exclusive.")
        if isinstance(sampler, Shaped):
            return self.quantize(sampler.draw(rng))
        if not isinstance(sampler, LogUniform):
            return int(rng.integers(self.first // step, self.last // step, endpoint=True)) * step
        if q is None:
            value = math.floor(math.exp(rng.uniform(math.log(self.lower), math.log(self.upper))))
            return min(max(value, self.first), self.last)
        # Each multiple owns the numbers that round to it; the log mass of that cell, cut to the range, is its weight.
        low = max(float(self.lower), self.first - step / 2)
        high = min(float(self.upper), self.last + step / 2)
        return self.quantize(math.exp(rng.uniform(math.log(low), math.log(high))))

    def quantize(self, value: float) -> int:
        """Return the multiple of q nearest to `value` (half up) that can be drawn; without q, `value`."""
        return min(max(math.floor(value / self.step + 0.5) * self.step, self.first), self.last)

    def is_valid(self, value: Any) -> bool:
        """Whether `value` is a whole number from lower to upper, both included."""
        return super().is_valid(value) and value == int(value)

    def _check_quantized(self, q: float) -> None:
        _checks.whole("q", _whole("q", q), least=1)
        if self.first > self.last:
            raise SpaceError(f"no multiple of q={q!r} lies in [{self.lower}, {self.upper}]; widen it or lower q.")


@refuse_unknown()
class Categorical(Domain):
    """One of a list of options, each as it is; an option may hold domains itself (a conditional space).

    Raises:
        SpaceError: no list of options, or an empty one.
    """

    def __init__(self, categories: Iterable[Any]) -> None:
        self.categories: list[Any] = _options("choice", categories)

    def uniform(self) -> Self:
        """Return a copy whose options are equally likely."""
        return self._with(Uniform())

    def grid(self) -> Self:
        """Return a copy that is a grid variable: every option is tried."""
        return self._with(Grid())

    def weighted(self, weights: Sequence[float]) -> Self:
        """Return a copy whose options have these probabilities, one each; they are scaled to a sum of 1."""
        numbers = [_checks.number(f"probability {index}", one, least=0) for index, one in enumerate(weights)]
        total = math.fsum(numbers)
        if len(numbers) != len(self.categories) or total <= 0:
            raise SpaceError(f"{len(self.categories)} options have the probabilities {numbers}; expected one each.")
        return self._with(Weighted(tuple(one / total for one in numbers)))

    def draw_index(self, rng: np.random.Generator) -> int:
        """Return the index of a random option."""
        if isinstance(self.sampler, Weighted):
            return int(rng.choice(len(self.categories), p=self.sampler.weights))
        return int(rng.integers(len(self.categories)))

    def draw(self, rng: np.random.Generator) -> Any:
        return self.categories[self.draw_index(rng)]

    def is_valid(self, value: Any) -> bool:
        """Whether `value` equals one of the options."""
        return any(is_same(value, option) for option in self.categories)

    @property
    def domain_str(self) -> str:
        try:
            return repr(self.categories)
        except Exception:  # the user's own __repr__, and whole numbers beyond what Python prints
            return f"([{len(self.categories)} options])"

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]


@refuse_unknown()
class Function(Domain):
    """A value computed by `function(config)` or `function()`.

    Raises:
        SpaceError: not callable, or more than one argument is required.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise SpaceError(f"sample_from({function!r}): expected a function of the config, such as lambda config: 1.")
        self.function = function
        self.takes_config = _takes_config(function)

    def call(self, config: Any) -> Any:
        """Return what the function says of `config`."""
        return self.function(config) if self.takes_config else self.function()

    def draw(self, rng: np.random.Generator) -> Any:
        return self.call({})

    def sample(self, config: Mapping[str, Any] | None = None, size: int = 1, random_state: RandomState = None) -> Any:
        """Return the function's value (`size` 1), or a list of `size` calls; `random_state` plays no part."""
        values = [self.call({} if config is None else config) for _ in range(size)]
        return values[0] if size == 1 else values

    def is_function(self) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"{getattr(self.function, '__name__', type(self.function).__name__)}()"


# --- what users write ------------------------------------------------------------------------------------------------


@refuse_unknown()
def uniform(lower: float, upper: float) -> Float:
    """Return real numbers, uniform in [lower, upper)."""
    return Float(_number("lower", lower), _number("upper", upper)).uniform()


@refuse_unknown()
def quniform(lower: float, upper: float, q: float) -> Float:
    """Return multiples of `q`: uniform in [lower, upper], rounded; the two ends have half the weight of the others.

    Raises:
        SpaceError: a bound is no multiple of `q`.
    """
    return uniform(lower, upper).quantized(q)


@refuse_unknown()
def loguniform(lower: float, upper: float, base: float | None = None) -> Float:
    """Return reals of [lower, upper), uniform in their logarithm; both bounds above 0. `base` changes nothing."""
    _ignore_base(base)
    return Float(_number("lower", lower), _number("upper", upper)).loguniform()


@refuse_unknown()
def qloguniform(lower: float, upper: float, q: float, base: float | None = None) -> Float:
    """Return multiples of `q`: uniform in the logarithm over [lower, upper], rounded. `base` changes nothing."""
    _ignore_base(base)
    return loguniform(lower, upper).quantized(q)


@refuse_unknown()
def randint(lower: int, upper: int) -> Integer:
    """Return integers, each of [lower, upper) equally likely."""
    return _not_empty(Integer(lower, upper).uniform())


@refuse_unknown()
def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Return the multiples of `q` in [lower, upper], both ends included, each equally likely."""
    return Integer(lower, upper).uniform().quantized(q)


@refuse_unknown()
def lograndint(lower: int, upper: int, base: float | None = None) -> Integer:
    """Return integers of [lower, upper), uniform in their logarithm, rounded down; lower at least 1.

    `base` has no effect.
    """
    _ignore_base(base)
    return _not_empty(Integer(lower, upper).loguniform())


@refuse_unknown()
def qlograndint(lower: int, upper: int, q: int = 1, base: float | None = None) -> Integer:
    """Return the multiples of `q` in [lower, upper], both ends included, lower at least 1.

    The weight of a multiple is the log mass of the numbers of [lower, upper] that round to it. `base` changes nothing.
    """
    _ignore_base(base)
    return Integer(lower, upper).loguniform().quantized(q)


@refuse_unknown()
def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """Return real numbers, normal with `mean` and standard deviation `sd`."""
    return Float().normal(mean, sd)


@refuse_unknown()
def qrandn(mean: float, sd: float, q: float) -> Float:
    """Return multiples of `q`: normal numbers, rounded."""
    return randn(mean, sd).quantized(q)


@refuse_unknown()
def choice(categories: Sequence[Any], *more: Any) -> Categorical:
    """Return one of `categories`, each equally likely; repeat an option to weigh it."""
    _refuse_more("choice", categories, more)
    return Categorical(categories).uniform()


@refuse_unknown()
def sample_from(function: Callable[..., Any]) -> Function:
    """Return a value computed from the rest of the config: `sample_from(lambda config: config["width"] * 2)`.

    The function may also take no argument. Other computed values may be read, in any order.
    """
    return Function(function)


@refuse_unknown()
def grid_search(values: Iterable[Any], *more: Any) -> dict[str, list[Any]]:
    """Return a grid variable: every value is tried, crossed with all other grid variables.

    It is the plain dict `{"grid_search": [...]}`, so that a YAML or JSON file can say the same.
    """
    _refuse_more("grid_search", values, more)
    return {"grid_search": _options("grid_search", values)}


# --- as JSON ---------------------------------------------------------------------------------------------------------

_SAMPLERS: dict[str, Any] = {
    kind.__name__: kind for kind in (Uniform, LogUniform, Normal, LogNormal, Beta, Weighted, Grid, Quantized)
}


def to_json(node: Any, text_of: Callable[[Any], str] = repr) -> Any:
    """Return a space as JSON values, infinities and all; what is more than a plain value is a list, its kind first."""
    kind = type(node)
    if node is None or kind in (bool, int, float, str):
        return node
    if kind in (Float, Integer, Categorical, Function):
        parts = () if kind is Function else node.categories if kind is Categorical else (node.lower, node.upper)
        return [kind.__name__, *(to_json(part, text_of) for part in (node.sampler, *parts))]
    if isinstance(node, Sampler):
        return [kind.__name__, *map(to_json, vars(node).values())]
    if kind in (list, tuple):
        return [kind.__name__, *(to_json(one, text_of) for one in node)]
    if isinstance(node, Mapping):
        return ["dict", *([to_json(key, text_of), to_json(value, text_of)] for key, value in node.items())]
    return ["object", text_of(node)]


def from_json(data: Any, object_of: Callable[[str], Any], computed: Any) -> Any:
    """Return the space that `to_json` was given, with something made of the text of each object, and `computed` for a
    value that a function computes."""
    if not isinstance(data, list):
        return data
    kind, *parts = data
    if kind == "object":
        return object_of(parts[0])
    if kind == "Function":
        return computed
    if kind == "dict":
        parts = [["tuple", *part] for part in parts]
    items = [from_json(part, object_of, computed) for part in parts]
    if kind in ("list", "tuple", "dict"):
        return items if kind == "list" else tuple(items) if kind == "tuple" else dict(items)
    if kind in _SAMPLERS:
        return _SAMPLERS[kind](*items)
    sampler, *items = items
    domain = Categorical(items) if kind == "Categorical" else {"Float": Float, "Integer": Integer}[kind](*items)
    domain.sampler = sampler
    return domain


# --- checks ----------------------------------------------------------------------------------------------------------


def is_same(a: Any, b: Any) -> bool:
    """Whether two values are one option: equal and both or neither a bool; arrays compare as a whole."""
    if a is b:
        return True
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    try:
        return bool(a == b)
    except (ValueError, TypeError):  # arrays answer with an array, some objects refuse to be compared
        return bool(np.array_equal(a, b))


def _ignore_base(base: Any) -> None:
    """Warn of an argument that Tune has too, where it changes nothing either."""
    if base is not None:
        message = "base= changes nothing: a log-uniform distribution is the same in every base. Leave it out."
        warnings.warn(message, DeprecationWarning, stacklevel=4)


def _number(name: str, value: Any) -> float:
    if not is_number(value, is_finite=False) or value != value:
        is_huge = is_whole(value)
        _checks.refuse(name, value, f"a number{' that a float holds' if is_huge else ''}", _unquoted(value))
    # numpy scalars become plain numbers; an int stays one, so that messages show what was typed
    return value.item() if isinstance(value, np.generic) else value  # type: ignore[no-any-return]


def _unquoted(value: Any) -> str:
    """Return a hint for a text that reads as a number: YAML gives "1e-4" as text."""
    if not isinstance(value, str):
        return ""
    try:
        return f"Write {float(value)!r}, without quotes."
    except ValueError:
        return ""


def _whole(name: str, value: Any) -> int:
    number = _number(name, value)
    if not math.isfinite(number) or number != int(number):
        _checks.refuse(name, value, "a whole number")
    if abs(number) > _LARGEST_INT:
        raise SpaceError(f"{name} is {value!r}; integers beyond 2**63 - 1 cannot be drawn.")
    return int(number)


def _not_empty(domain: Integer) -> Integer:
    if domain.lower >= domain.upper:
        raise SpaceError(
            f"no integer in [{domain.lower}, {domain.upper}): the upper bound is exclusive. "
            f"Write {domain.upper + 1} to include {domain.upper}."
        )
    return domain


def _refuse_more(what: str, first: Any, more: tuple[Any, ...]) -> None:
    if more:
        given = f"{first!r}, {', '.join(map(repr, more))}"
        raise SpaceError(f"{what}({given}): expected one list of values: {what}([{given}]).")


def _options(what: str, values: Any) -> list[Any]:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping, Set, Domain)):
        raise SpaceError(f"{what}({values!r}): expected a list of values, for instance {what}([1, 2, 3]).")
    options = list(values)
    if not options:
        raise SpaceError(f"{what}([]): an empty list leaves nothing to choose; give at least one value.")
    return options


def _takes_config(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # some builtins have no signature
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
        names = ", ".join(p.name for p in required)
        raise SpaceError(
            f"sample_from got a function that requires ({names}); it is called with the config alone, or with nothing."
        )
    return bool(positional)
