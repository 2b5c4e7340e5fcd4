"""Conditions on rows, such as `lr<0.01`: of `--filter`, and of `--require`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from sweep.core.literals import parse_literal
from sweep.display.formats import text
from sweep.errors import ConfigError

if TYPE_CHECKING:
    from sweep.cli.tables import Row, Table

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}


def _parts(condition: str, option: str = "--filter") -> tuple[str, str, str]:
    match = re.fullmatch(rf"\s*(.+?)\s*({'|'.join(_OPERATORS)})\s*(.*?)\s*", condition)
    if match is None:
        raise ConfigError(f"{option} {condition!r} is no condition; expected COLUMN OP VALUE, such as lr<0.01.")
    return match[1], match[2], match[3]


def condition_of(condition: str, table: Table) -> tuple[str, Callable[[Row], bool]]:
    """Return the column of a condition such as `lr<0.01`, and what says whether it holds for a row."""
    name, sign, given = _parts(condition)
    column, compare = table.column(name), _OPERATORS[sign]
    typed, wanted = given.strip("'\""), parse_literal(given)
    if column == "state" and "status" in table.columns and typed.isupper():
        column = "status"  # a word of Tune's
    is_order = compare not in (operator.eq, operator.ne)

    def holds(row: Row) -> bool:
        value = row.get(column)
        if column == "trial" and typed.isdigit():
            return compare(int(value), int(typed))  # type: ignore[arg-type]
        if value is None or wanted is None:
            return not is_order and compare(value, wanted)
        if isinstance(value, (int, float)) and isinstance(wanted, (int, float)):
            return compare(value, wanted)
        is_text = isinstance(value, str)
        is_comparable = not is_order or (is_text and isinstance(wanted, str))
        return is_comparable and compare(text(value), typed if is_text else text(wanted))

    return column, holds


require_option = click.option(
    "--require",
    "conditions",
    multiple=True,
    metavar="'COLUMN OP VALUE'",
    callback=lambda ctx, parameter, given: [one for one in given if _parts(one, "--require")],
    help="Exit with 4 unless this holds for the best trial, such as 'loss<0.1'. May be given again.",
)
"""The command gets them as `conditions`."""
