"""Refuse a keyword that a function or a constructor does not have, and say what was meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from searchers.errors import UnknownArgument, closest, nearest

F = TypeVar("F", bound=Callable[..., Any])

# What other libraries call a parameter -> whose word it is, our names for it, and what else there is to know.
WORDS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "n_trials": ("Optuna", ("num_samples",), ""),
    "direction": ("Optuna", ("mode",), "'min' or 'max'"),
    "directions": ("Optuna", ("mode",), "a list of 'min' and 'max'"),
    "objective": ("Optuna", ("metric",), "the key that trials report"),
    "timeout": ("Optuna", ("time_budget_s",), "in seconds"),
    "n_jobs": ("Optuna", ("max_concurrent_trials",), "None: as many as fit"),
    "study_name": ("Optuna", ("name",), "the experiment's directory"),
    "storage": ("Optuna", ("storage_path",), "a directory, or a URI such as s3://bucket/sweeps"),
    "sampler": ("Optuna", ("search_alg",), "a searcher, or a name such as 'tpe'"),
    "pruner": ("Optuna", ("scheduler",), "a scheduler, or a name such as 'asha'"),
    "load_if_exists": ("Optuna", ("resume",), "resume=True, with the same name"),
    "n_startup_trials": ("Optuna", ("num_startup_trials", "n_initial_points", "random_search_steps"), ""),
    "max_evals": ("Hyperopt", ("num_samples",), ""),
    "n_iter": ("scikit-learn", ("num_samples",), ""),
    "param_grid": ("scikit-learn", ("config", "param_space"), "with sweep.grid_search([...]) for each list"),
    "param_distributions": ("scikit-learn", ("config", "param_space"), "with sweep.choice([...]) and the like"),
    "random_state": ("scikit-learn", ("seed",), ""),
    "count": ("W&B", ("num_samples",), ""),
    "run_cap": ("W&B", ("num_samples",), ""),
    "method": ("W&B", ("search_alg",), "a searcher, or a name such as 'random', 'grid' and 'gp'"),
    "parameters": ("W&B", ("config", "param_space"), "a dict with domains such as sweep.uniform(0, 1)"),
    "early_terminate": ("W&B", ("scheduler",), "a scheduler, or a name such as 'asha'"),
    "goal": ("W&B", ("mode",), "'min' or 'max'"),
    "project": ("W&B", ("name",), "the project that W&B shows is an argument of WandbLoggerCallback"),
    "params": ("Hydra", ("config", "param_space"), "a dict with domains such as sweep.uniform(0, 1)"),
    "space": ("Hyperopt", ("config", "param_space"), "a dict with domains such as sweep.uniform(0, 1)"),
    "low": ("Optuna", ("lower",), ""),
    "high": ("Optuna", ("upper",), ""),
    "step": ("Optuna", ("q",), ""),
    "choices": ("Optuna", ("categories",), ""),
}


def refuse_unknown(
    hints: Mapping[str, str] | None = None,
    *,
    who: str | None = None,
    also: Collection[str] = (),
    unlisted: Collection[str] = (),
    error: type[Exception] = UnknownArgument,
) -> Callable[[F], F]:
    """Return a decorator of classes and functions that refuse unknown keywords with `error`.

    A class is changed in place and stays itself: its signature, pickles and copies are what they were. A subclass with
    an `__init__` of its own takes what it likes; what it hands on and this class does not have is refused in the name
    of this class.

    Args:
        hints: what to say to names that may be expected here, see `meant`; read when it is needed.
        who: is named in the message; None: the function or the class.
        also, unlisted: what something with `**keywords` takes in them; without both it takes anything. Messages do not
            list the second.
    """

    def decorate(thing: F) -> F:
        kind: Any = thing if isinstance(thing, type) else None
        function: Any = thing if kind is None else kind.__init__
        parameters = inspect.signature(function).parameters.values()
        if not (also or unlisted) and any(one.kind is one.VAR_KEYWORD for one in parameters):
            return thing
        named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
        known = frozenset(named.union(also, unlisted) - {"self"})

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            if not known.issuperset(given):
                name = function.__qualname__
                if kind is not None:  # a subclass that has no `__init__` of its own is what the caller knows
                    called: Any = type(args[0])
                    name = (called if called.__init__ is checked else kind).__name__
                raise error(unknown_argument(who or name, set(given) - known, known.difference(unlisted), hints or {}))
            return function(*args, **given)

        if kind is None:
            guarded: F = checked  # type: ignore[assignment]
            return guarded
        kind.__init__ = checked
        return thing

    return decorate


def unknown_argument(who: str, given: Collection[str], known: Collection[str], hints: Mapping[str, str]) -> str:
    """Return the message for one of `given` that is not known."""
    name = min(name for name in given if name not in known)
    return f"{who} has no parameter {name!r}. {meant(name, known, hints)}"


def taken_by(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some keywords that a function of the user's takes, such as a hook written for fewer of them."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return dict(given)
    names = {one.name for one in parameters}
    return {name: value for name, value in given.items() if name in names}


def meant(name: str, known: Collection[str], hints: Mapping[str, str] | None = None) -> str:
    """Return what `name` probably meant, as the tail of an error message.

    Args:
        known: the names that there are.
        hints: what to say to names that are not there but may be expected; they win over the words of other libraries,
            and those over a similar name.

    Example:
        >>> meant("n_trials", ["max_concurrent_trials", "num_samples"])
        "Optuna's n_trials is num_samples here."
    """
    hints = hints or {}
    if name in hints:
        return hints[name]
    if name in WORDS:
        source, ours, remark = WORDS[name]
        for our in ours:
            if our in known or our in hints:
                also = f": {remark}" if remark else ""
                return f"{source}'s {name} is {our} here{also}." + ("" if our in known else f" {hints[our]}")
    close = closest(name, [*known, *hints], cutoff=0.75)
    if close and close not in known:
        return f"Did you mean {close!r}? {hints[close]}"
    return nearest(name, known) if known else "It takes none."
