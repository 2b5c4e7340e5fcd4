"""Write the page with the help text of every command: `python tests/help_page.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

PATH = Path(__file__).parents[1] / "docs" / "reference" / "cli-help.md"
HEAD = """# Help texts of the `sweep` command

What `sweep COMMAND --help` prints; `python tests/help_page.py` writes this page. [The `sweep` command](cli.md)
says more about each.
"""


def help_page() -> str:
    """The whole page: a section for each command, in the order of `sweep --help`."""
    from sweep.cli.main import sweep

    whole = click.Context(sweep, info_name="sweep", terminal_width=100, **sweep.context_settings)
    parts = [HEAD, f"```text\n{whole.get_help()}\n```\n"]
    for name in sweep.list_commands(whole):
        command = sweep.get_command(whole, name)
        assert command is not None
        text = click.Context(command, whole, info_name=name).get_help()
        parts.append(f"## `sweep {name}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":  # a process of its own, as a command keeps the help option that it had first
    sys.path.insert(0, str(PATH.parents[2]))
    Path(*sys.argv[1:] or [PATH]).write_text(help_page(), encoding="utf-8")
