"""The lines of population based training's policy files: which trial was cloned by which, with what config."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweep.core.literals import evaluated_params, format_vars

GLOBAL_FILE = "pbt_global.txt"

# target tag, source tag, target iteration, source iteration, source config, new config
PolicyLine = tuple[str, str, int, int, dict[str, Any], dict[str, Any]]
_PERTURBED = "@perturbed["


def policy_file(trial_id: str) -> str:
    """Return the name of a trial's policy file, in the experiment's directory."""
    return f"pbt_policy_{trial_id}.txt"


def perturbed_tag(tag: str, config: Mapping[str, Any], changed: Iterable[str]) -> str:
    """Return `<tag>@perturbed[lr=0.1000]`: the name of a trial that continues with a changed config."""
    return f"{tag}{_PERTURBED}{format_vars(evaluated_params(config, tuple(changed)))}]"


def read_policy(text: str) -> list[PolicyLine]:
    """Return the lines of a policy file, oldest first; a last line that was cut off is left out.

    Raises:
        ValueError: another line is no JSON list of two tags, two iterations, the source's config and the new one.
    """
    lines = text.split("\n")
    found: list[PolicyLine] = []
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            if i == len(lines) - 1:
                break  # the driver died while it wrote
            raise
        kinds = [type(one) for one in values[:2] + values[3:]] if isinstance(values, list) else []
        if len(values) != 6 or kinds != [str, str, int, dict, dict] or values[3] < 0:
            raise ValueError(
                f"line {i + 1} of a policy file is {line!r:.200}; expected a JSON list of six values: two tags, two "
                "iterations, the source's config and the new one."
            )
        found.append(tuple(values))
    return found


def change_points(lines: Sequence[PolicyLine]) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """Return the config that the way to the last of some lines began with, and what it became at which iteration.

    A line says that a trial gave itself up for another. What the trial did before does not count then; what the other
    one did does, and the file holds that in the lines before: its own are replaced by the other's at each exploit.
    """
    first: dict[str, Any] = {}
    changes: list[tuple[int, dict[str, Any]]] = []
    wanted = ""
    for target, source, _, iteration, old_config, new_config in reversed(lines):
        if changes and _original_tag(target) != wanted:
            break  # a trial without a file was the source; here are lines of what was given up
        wanted, first = _original_tag(source), old_config
        changes.append((iteration, new_config))
    return first, changes[::-1]


def _original_tag(tag: str) -> str:
    return tag.partition(_PERTURBED)[0]
