"""Turn a nested space into configs: decide its leaves, cross its grids, compute dependent values; paths and tags."""

from __future__ import annotations

import math
import warnings
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchers.base import Config, keyed_rng
from searchers.errors import SpaceError, nearest
from searchers.space import Categorical, Domain, Function, is_same

Path = tuple[str | int, ...]
"""Where a leaf lies: keys of dicts and indexes of lists, outermost first."""

Decide = Callable[[Path, Domain], Any]
"""Answers a domain's value; for a `Categorical` the index of the chosen option, for a grid the index of the value."""

# --- paths -----------------------------------------------------------------------------------------------------------


def path_name(path: Path) -> str:
    """Return a path as one name, `model/layers/0`."""
    for key in path:
        if isinstance(key, str) and "/" in key:
            raise SpaceError(f"the key {key!r} of the space holds a '/', which separates nested keys; rename it.")
        if not isinstance(key, (str, int)):
            raise SpaceError(f"the key {key!r} of the space is a {type(key).__name__}; expected a string.")
    return "/".join(map(str, path))


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested config with one level of keys, joined with `/`; lists stay whole, empty dicts disappear."""
    return {path_name(path): value for path, value in _dict_leaves(config, ())}


def unflatten(config: Mapping[str, Any]) -> Config:
    """Return the nested config whose `flatten` is `config`."""
    nested: Config = {}
    for name, value in config.items():
        *groups, last = name.split("/")
        node = nested
        for group in groups:
            node = node.setdefault(group, {})
            if not isinstance(node, dict):
                raise SpaceError(f"{name!r} needs {group!r} to be a group, but it is a value as well; rename one.")
        if isinstance(node.get(last), dict) and not isinstance(value, dict):
            raise SpaceError(f"{name!r} is a value and a group of others as well; rename one.")
        node[last] = value
    return nested


def _dict_leaves(node: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _dict_leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _order(key: Any) -> tuple[int, Any]:
    """Sort indexes before names and names before anything else, so that mixed keys have an order."""
    if isinstance(key, int):
        return (0, key)
    return (1, key) if isinstance(key, str) else (2, repr(key))


# --- looking into a space --------------------------------------------------------------------------------------------

_PLAIN = frozenset({bool, float, int, str, type(None)})  # most leaves: told at a tenth of the time


def grid_values(node: Any) -> list[Any] | None:
    """Return the values of a grid variable, in any of its forms; None when `node` is no grid."""
    if type(node) in _PLAIN:
        return None
    if isinstance(node, Categorical) and node.is_grid():
        return node.categories
    if isinstance(node, dict) and set(node) == {"grid_search"}:
        values = node["grid_search"]
        if not isinstance(values, (list, tuple)) or not values:
            raise SpaceError(f"grid_search has {values!r}; expected a list of at least one value.")
        return list(values)
    return None


def walk(space: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf of a nested space with its path, sorted by path; domains and whole grids are leaves.

    Options of a choice are not entered: which of them exists is not decided.
    """
    if type(space) in _PLAIN or isinstance(space, Domain) or grid_values(space) is not None:
        yield path, space
    elif isinstance(space, Mapping):
        for key in sorted(space, key=_order):
            yield from walk(space[key], (*path, key))
    elif isinstance(space, (list, tuple)):
        for index, item in enumerate(space):
            yield from walk(item, (*path, index))
    else:
        yield path, space


def has_domains(space: Any) -> bool:
    """Whether anything in `space` is still to be decided."""
    return any(isinstance(leaf, Domain) or grid_values(leaf) is not None for _, leaf in walk(space))


def check_space(space: Any) -> Mapping[str, Any]:
    """Return `space` if it is a dict whose grids can be crossed."""
    if not isinstance(space, Mapping):
        raise SpaceError(f"the search space is a {type(space).__name__}; expected a dict of names and domains.")
    for path, leaf in _everywhere(space, ()):
        if isinstance(leaf, Categorical) and not leaf.is_grid():
            for inner, one in walk(list(leaf.categories), path):
                if grid_values(one) is not None:
                    where = f"{_shown(inner)} is a grid_search inside a choice ({_shown(path)})"
                    raise SpaceError(f"{where}, which cannot be crossed. Use choice there, or grid_search outside.")
    return space


def _everywhere(space: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of `space`, those within the options of choices and grids too."""
    for inner, leaf in walk(space, path):
        yield inner, leaf
        for index, option in enumerate(_options_of(leaf)):
            yield from _everywhere(option, (*inner, index))


def _options_of(leaf: Any) -> list[Any]:
    return leaf.categories if isinstance(leaf, Categorical) else grid_values(leaf) or []


def fixed_domains(space: Any) -> list[tuple[Path, Domain]]:
    """Return every domain of `space` with its path, those within the options of a choice too, functions excepted."""
    return [
        (path, leaf)
        for path, leaf in _everywhere(space, ())
        if isinstance(leaf, Domain) and not isinstance(leaf, Function)
    ]


def constants_by_name(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants of a space by their flattened names: everything that is no domain and no grid."""
    leaves = ((path, leaf) for path, leaf in walk(space) if not isinstance(leaf, Domain) and grid_values(leaf) is None)
    return {path_name(path): leaf for path, leaf in leaves}


def _shown(path: Path) -> str:
    return "/".join(map(str, path)) or "the space"


def num_points(space: Any) -> int:
    """Return how many points the grids of `space` make, 1 without any; nothing is built.

    A value of a grid that holds grids itself counts as often as they have points.
    """
    return math.prod(_num_values(leaf) for _, leaf in walk(space))


def _num_values(leaf: Any) -> int:
    values = grid_values(leaf)
    if values is None:
        return 1
    is_plain = not any(isinstance(value, (Mapping, list, tuple, Domain)) for value in values)
    return len(values) if is_plain else sum(map(num_points, values))


def refuse_grids(space: Mapping[str, Any], who: str) -> None:
    """Refuse a grid where values are drawn one at a time."""
    for path, leaf in walk(space):
        values = grid_values(leaf)
        if values is not None:
            problem = f"{who} draws values one at a time and cannot cross a grid"
            what = f"{_shown(path)} is a grid_search over {len(values)} values"
            raise SpaceError(f"{what}; {problem}. Use choice instead, or the searcher 'grid'.")


def fresh(value: Any) -> Any:
    """Return a copy of nested dicts, lists and tuples; everything else keeps its identity."""
    return rebuilt(value, fresh)


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a new container with `change` of each item; anything else as it is."""
    if isinstance(value, Mapping):
        return {key: change(one) for key, one in value.items()}
    return _like(value, [change(one) for one in value]) if isinstance(value, (list, tuple)) else value


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Config:
    """Return a new config, or space, with the values of both; where both have one, that of `above`. Dicts are merged,
    but for grids, which are values."""
    merged: Config = fresh(below)
    for key, value in above.items():
        old = merged.get(key)
        is_nested = all(isinstance(one, Mapping) and grid_values(one) is None for one in (old, value))
        merged[key] = merge(old, value) if is_nested else fresh(value)  # type: ignore[arg-type]
    return merged


def _like(node: list[Any] | tuple[Any, ...], items: list[Any]) -> list[Any] | tuple[Any, ...]:
    """Return items as a list, a tuple or a named tuple, as `node` is one."""
    if isinstance(node, list):
        return items
    return type(node)(*items) if hasattr(node, "_fields") else tuple(items)


# --- deciding --------------------------------------------------------------------------------------------------------


def draw_with(rng: np.random.Generator) -> Decide:
    """Return the `Decide` that draws every value from `rng`."""
    return lambda _, domain: domain.draw_index(rng) if isinstance(domain, Categorical) else domain.draw(rng)


def resolve(space: Mapping[str, Any], decide: Decide) -> Config:
    """Return a config: `space` with every domain decided and every computed value computed.

    `decide` is called for the domains in the order of their sorted paths, and only of those that exist: domains within
    an option of a choice when that option was chosen. Their path goes through the index of the option.

    Functions are called once each, when all domains are decided; a value that one of them reads is computed before it
    goes on. A domain that a function returns is decided too.
    """
    config: Config = _Resolution(space, decide).config()
    return config


@dataclass(slots=True)
class _Computed:
    """Stands for a value that a function computes when it is first read."""

    function: Function
    path: Path
    value: Any = None
    is_known: bool = False


class _Resolution:
    """One config on its way: a tree in which `_Computed` stands for what functions compute."""

    def __init__(self, space: Any, decide: Decide) -> None:
        self._decide = decide
        self._computed: list[_Computed] = []
        self._running: list[Path] = []
        self._circle: SpaceError | None = None  # a value is read while it is computed
        self.root = self._build(space, ())

    def _build(self, node: Any, path: Path) -> Any:
        if isinstance(node, Function):
            self._computed.append(_Computed(node, path))
            return self._computed[-1]
        if isinstance(node, Domain) and not isinstance(node, Categorical):
            return self._decide(path, node)
        if options := _options_of(node):
            index = self._decide(path, node if isinstance(node, Categorical) else Categorical(options).grid())
            return self._build(options[index], (*path, index))
        if isinstance(node, Mapping):
            built = {key: self._build(node[key], (*path, key)) for key in sorted(node, key=_order)}
            return {key: built[key] for key in node}
        if isinstance(node, (list, tuple)):
            return _like(node, [self._build(item, (*path, index)) for index, item in enumerate(node)])
        return node

    def config(self) -> Any:
        for computed in self._computed:  # which grows while functions return such as have functions in them
            self._known(computed)
        return self.finished(self.root)

    def _known(self, node: Any) -> Any:
        """Return a part of the tree; it is computed if it was not yet."""
        while isinstance(node, _Computed):
            if not node.is_known:
                node.value, node.is_known = self._build(self._call(node), node.path), True
            node = node.value
        return node

    def seen(self, node: Any) -> Any:
        """Return a part of the tree as functions see it."""
        known = self._known(node)
        return _View(self, known) if isinstance(known, dict) else self.finished(known)

    def finished(self, node: Any) -> Any:
        """Return a part of the tree as it is in the config."""
        return rebuilt(self._known(node), self.finished)

    def _call(self, computed: _Computed) -> Any:
        path = computed.path
        if path in self._running:
            circle = ", ".join(map(_shown, self._running[self._running.index(path) :]))
            advice = "Let each sample_from read only what can be known before it."
            self._circle = SpaceError(f"computed values wait for each other or for themselves: {circle}. {advice}")
            raise self._circle
        self._running.append(path)
        try:
            value = self._unwrapped(computed.function.call(_View(self, self.root)))
        except Exception as error:  # the user's function may raise anything
            if error is self._circle:
                raise
            raised = f"raised {type(error).__name__}: {str(error).rstrip('.')}"
            raise SpaceError(f"sample_from at {_shown(path)} {raised}. It is called with the config.") from error
        finally:
            self._running.pop()
        if any(grid_values(leaf) is not None for _, leaf in _everywhere(value, path)):
            raise SpaceError(f"sample_from at {_shown(path)} returned a grid, which cannot be crossed any more.")
        return value

    def _unwrapped(self, value: Any) -> Any:
        """Return what a function answered without the views it may have been taken from."""
        return self.finished(value.node) if isinstance(value, _View) else rebuilt(value, self._unwrapped)


class _View(Mapping[str, Any]):
    """A config as functions see it: by key and by attribute; `spec.config.a` means `config["a"]`."""

    def __init__(self, resolution: _Resolution, node: dict[str, Any]) -> None:
        self._resolution = resolution
        self.node = node

    def __getitem__(self, key: str) -> Any:
        if key == "config" and self.node is self._resolution.root and key not in self.node:
            return self
        return self._resolution.seen(self.node[key])

    def __contains__(self, key: object) -> bool:
        return key in self.node

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked by copy and pickle before the fields exist
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            hint = nearest(name, map(str, self.node))
            raise AttributeError(f"the config has no {name!r}. {hint}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.node)

    def __len__(self) -> int:
        return len(self.node)

    def __repr__(self) -> str:
        return repr(self._resolution.finished(self.node))


# --- points that the user wants evaluated ----------------------------------------------------------------------------


def check_points(points: Any) -> list[Mapping[str, Any]]:
    """Return `points_to_evaluate` as a list; None is an empty one."""
    if points is None:
        return []
    if isinstance(points, (str, bytes, Mapping)) or not isinstance(points, Sequence):
        raise SpaceError(f"points_to_evaluate is {points!r}; expected a list of configs.")
    for point in points:
        if not isinstance(point, Mapping):
            raise SpaceError(f"points_to_evaluate holds {point!r}; expected dicts such as {{'lr': 0.1}}.")
    return [fresh(point) for point in points]


Put = Callable[[Path, Any, Any], Any]
"""Answers what stands at a path of a space after a value was put on the domain, grid or group of domains there."""


def fill(node: Any, value: Any, put: Put, path: Path = ()) -> Any:
    """Return a space with the values of a point in it: what the point names is decided, the rest is still a space.

    Nested values may be given nested or by name, `{"model/lr": 0.1}`. Constants and functions are replaced; for what
    is to be decided `put` is asked, also where a value can be none of a group, such as a number for a dict of domains.
    """
    if isinstance(node, Domain) or grid_values(node) is not None:
        return fresh(value) if isinstance(node, Function) else put(path, node, value)
    if isinstance(node, Mapping) and isinstance(value, Mapping):
        filled = dict(node)
        for key, one in _taken_apart(value, node).items():
            if key not in node:
                names = nearest(str(key), map(str, node))
                raise SpaceError(f"the point names {_shown((*path, key))!r}, which the space does not have. {names}")
            filled[key] = fill(node[key], one, put, (*path, key))
        return filled
    if isinstance(node, (list, tuple)) and isinstance(value, Mapping) and _are_indexes(value, node):
        items = [fill(one, value[str(i)], put, (*path, i)) if str(i) in value else one for i, one in enumerate(node)]
        return _like(node, items)
    if not has_domains(node):
        return fresh(value)
    if isinstance(node, Mapping):
        return put(path, node, value)
    if not isinstance(value, (list, tuple)) or len(value) != len(node):
        raise SpaceError(f"the point sets {_shown(path)} to {value!r}; expected {len(node)} values.")
    return _like(node, [fill(*pair, put, (*path, i)) for i, pair in enumerate(zip(node, value, strict=True))])


def _taken_apart(point: Mapping[str, Any], space: Mapping[str, Any]) -> Config:
    """Return a point in which names such as `model/lr` are nested, where the space has a group `model`."""
    nested: Config = {}
    for key, value in point.items():
        group, *inner = key.split("/") if isinstance(key, str) and key not in space else [key]
        is_name = bool(inner) and group in space and _leads_inside(space[group], inner)
        nested = merge(nested, unflatten({key: value}) if is_name else {key: value})
    return nested


def _leads_inside(node: Any, keys: Sequence[str]) -> bool:
    """Whether keys go through groups and lists only; that a group lacks the next one is said where it is looked at."""
    if not keys:
        return True
    first, *rest = keys
    if isinstance(node, Categorical):
        return any(isinstance(one, Mapping) and first in one and _leads_inside(one, keys) for one in node.categories)
    if isinstance(node, Mapping) and grid_values(node) is None:
        return first not in node or _leads_inside(node[first], rest)
    is_index = isinstance(node, (list, tuple)) and _are_indexes([first], node)
    return is_index and _leads_inside(node[int(first)], rest)


def _are_indexes(keys: Iterable[Any], items: Sequence[Any]) -> bool:
    return all(isinstance(key, str) and key.isdecimal() and int(key) < len(items) for key in keys)


def option_of(options: Sequence[Any], value: Any) -> int | None:
    """Return the index of the first option for which `value` may stand; None: for none of them."""
    return next((i for i, option in enumerate(options) if matches(option, value, is_partial=True)), None)


def matches(space: Any, value: Any, *, is_partial: bool = False) -> bool:
    """Whether `value` could be a config of `space`: equal constants, values within the domains."""
    options = _options_of(space)
    if options:
        return any(matches(one, value, is_partial=is_partial) for one in options)
    if isinstance(space, Domain):
        return space.is_valid(value)
    if isinstance(space, Mapping) and isinstance(value, Mapping):
        is_whole = is_partial or space.keys() == value.keys()
        is_known = is_whole and value.keys() <= space.keys()
        return is_known and all(matches(space[key], one, is_partial=is_partial) for key, one in value.items())
    if isinstance(space, (list, tuple)) and isinstance(value, (list, tuple)):
        pairs = zip(space, value, strict=False)
        return len(space) == len(value) and all(matches(*pair, is_partial=is_partial) for pair in pairs)
    return is_same(space, value)


# --- suggestions by number -------------------------------------------------------------------------------------------


class Variants:
    """The configs of a space by number: grids crossed, the rest drawn, given points first.

    Config `n` depends on (space, points, seed, n) alone and is computed without those before it. The order: sample 0
    over the whole grid, then sample 1, and so on; among grid variables, sorted by path, the first varies fastest. A
    grid within a value of another grid is crossed where that value is tried. Each point takes the place of one sample.

    Args:
        is_constant: draw random values once per sample rather than once per config.
    """

    def __init__(
        self, space: Mapping[str, Any], points: Sequence[Mapping[str, Any]] = (), *, is_constant: bool = False
    ) -> None:
        self._space = check_space(space)
        self._is_constant = is_constant
        self.num_points = num_points(space)
        self._filled = [fill(space, point, decide_with_warning) for point in points]
        self._ends: list[int] = []  # the number of the first config behind each point
        for filled in self._filled:
            self._ends.append((self._ends[-1] if self._ends else 0) + num_points(filled))

    def count(self, num_samples: int) -> int:
        """Return how many configs `num_samples` samples are. Points are never cut off."""
        from_points = self._ends[-1] if self._ends else 0
        return from_points + max(num_samples - len(self._ends), 0) * self.num_points

    def config(self, number: int, seed: int) -> Config:
        """Return config `number` (0, 1, ...) under `seed`, newly built."""
        space, sample, point = self._locate(number)
        draw = _draw_by_path(seed, sample) if self._is_constant else draw_with(keyed_rng(seed, number))
        grid = _GridPoint(point)
        return resolve(space, lambda path, domain: grid(path, domain) if domain.is_grid() else draw(path, domain))

    def sample_of(self, number: int) -> int:
        """Return how many samples were begun by the configs before config `number`."""
        return self._locate(number - 1)[1] + 1 if number > 0 else 0

    def _locate(self, number: int) -> tuple[Mapping[str, Any], int, int]:
        """Return the space, the number of the sample and the number of the grid point of config `number`."""
        sample = bisect_right(self._ends, number)
        start = self._ends[sample - 1] if sample else 0
        if sample < len(self._ends):
            return self._filled[sample], sample, number - start
        later, point = divmod(number - start, self.num_points)
        return self._space, sample + later, point


def decide_with_warning(path: Path, node: Any, value: Any) -> Any:
    """Take the value of a point; one outside its domain is taken too."""
    options = _options_of(node)
    index = option_of(options, value)
    if index is not None:
        return fill(options[index], value, decide_with_warning, path)
    domain = Categorical(options) if options else node
    if isinstance(domain, Domain) and not domain.is_valid(value):
        outside = f"which is outside {domain.domain_str}; it is used"
        warnings.warn(f"the point sets {_shown(path)} to {value!r}, {outside}.", stacklevel=2)
    return fresh(value)


class _GridPoint:
    """Answers the indexes of one point of the grid, by its number: a number whose digits have the grids as bases.

    Of a grid whose values hold grids, one digit stands for the value and for the point of the grids within it.
    """

    def __init__(self, number: int) -> None:
        self._rest: dict[Path, int] = {(): number}  # what is left of the number, by where the grids lie

    def __call__(self, path: Path, domain: Domain) -> int:
        assert isinstance(domain, Categorical)
        where = next(path[:length] for length in range(len(path), -1, -1) if path[:length] in self._rest)
        base = _num_values(domain)
        self._rest[where], inner = divmod(self._rest[where], base)
        if base == len(domain):  # no value holds a grid
            return inner
        for index, value in enumerate(domain.categories):
            size = num_points(value)
            if inner < size:
                self._rest[path] = inner  # for the grids within this value: their paths go on from here
                return index
            inner -= size
        raise AssertionError("a digit is smaller than its base")


def _draw_by_path(seed: int, sample: int) -> Decide:
    """Return the `Decide` whose answer depends on the path alone, so that domains which exist only at some grid
    points do not change what the others draw."""

    def decide(path: Path, domain: Domain) -> Any:
        key = zlib.crc32(repr(path).encode())
        return draw_with(np.random.default_rng(np.random.SeedSequence([seed, sample, key])))(path, domain)

    return decide
