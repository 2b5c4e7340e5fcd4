"""An option of the command line that takes a name out of a table of the code."""

from __future__ import annotations

import importlib
from typing import Any

import click


class NamedOption(click.Option):
    """An option whose help lists the names of a table, which is imported only when the help is shown.

    Args:
        table: `module:attribute` of a mapping, or of anything else that names come out of; `{names}` in `help` stands
            for them.
    """

    def __init__(self, *declarations: Any, table: str, **others: Any) -> None:
        super().__init__(*declarations, **others)
        self._table = table

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the line of the help."""
        module, _, attribute = self._table.partition(":")
        record = super().get_help_record(ctx)
        if record is None:
            return None
        option, text = record
        return option, text.replace("{names}", ", ".join(getattr(importlib.import_module(module), attribute)))
