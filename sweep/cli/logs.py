"""`sweep logs`: print what a trial printed, also while it does."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from sweep.cli.options import name_argument, trial_argument, where_option
from sweep.cli.tables import emit, json_option
from sweep.core.literals import json_text
from sweep.errors import ConfigError
from sweep.record.layout import checked_name, rank_output, rank_outputs
from sweep.record.reader import ExperimentReader
from sweep.worker.output import OUTPUT_NAME

_POLL_S = 0.2


@click.command(short_help="Print what a trial printed.")
@name_argument
@trial_argument()
@click.option("--follow", "-f", is_flag=True, help="Go on printing until the trial ends.")
@click.option("--rank", type=click.IntRange(min=0), metavar="NUMBER", help="Of a training group: only this worker.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines.")
@json_option("Print one JSON object; what the trial printed is under `output`, by file.")
@where_option
def logs(reader: ExperimentReader, trial: str, follow: bool, rank: int | None, tail: int | None, as_json: bool) -> None:
    """Print what a trial wrote to standard output and standard error, of all its attempts. TRIAL is its number or id.

    With log_to_file it prints standard output, then standard error; with --follow each as it comes. Of a training group
    it prints what each worker wrote, one after another; with --follow what rank 0 writes. Of a lane it prints what the
    processes of lanes wrote, which many trials share.

    \b
    Examples:
      sweep logs digits 17 --tail 50
      sweep logs digits 17 -f
      sweep logs digits 17 --rank 1
    """
    if as_json and follow:
        raise ConfigError("--json prints what there is now, and --follow what comes; give one of them.")
    row = reader.trial(trial)
    directory = reader.layout.trial(row.trial_id)
    ranks = [Path(one) for one in rank_outputs(str(directory))]
    if rank is not None or (ranks and follow):
        paths = [Path(rank_output(str(directory), rank or 0))]
    else:
        paths = ranks or _outputs(reader, directory)
    existing = [path for path in paths if path.exists()]
    if not existing and not follow:
        others = f"; there are {', '.join(one.name for one in ranks)}" if ranks else ""
        state = f"{row.state}: {row.reason}" if row.reason else row.state
        raise ConfigError(f"trial {row.trial_id} has printed nothing: {paths[0]} is not there{others}. It is {state}.")
    if as_json:
        facts: dict[str, Any] = {"trial": row.trial_id, "state": row.state, "status": row.status, "output": {}}
        for path in existing:
            lines: list[bytes] = []
            print_logs([path], lines.append, tail=tail)
            facts["output"][path.name] = b"".join(lines).decode(errors="replace")
        emit(json_text(facts) + "\n")
        return

    def write(chunk: bytes) -> None:
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()

    has_ended = (lambda: reader.trial(row.trial_id).is_ended) if follow else None
    print_logs(paths if follow else existing, write, tail=tail, has_ended=has_ended)


def _outputs(reader: ExperimentReader, directory: Path) -> list[Path]:
    """Return the files that may hold a trial's output: those that `log_to_file` names, each once, or the usual one,
    which comes first where an earlier run of the sweep made it; where there is none, those of processes of lanes."""
    usual = directory / OUTPUT_NAME
    named = [directory / checked_name(name) for name in dict.fromkeys(reader.meta.get("log_to_file") or ())]
    own = [usual, *named] if not named or usual.exists() else named
    return own if any(map(Path.exists, own)) else reader.layout.lane_outputs() or own


def print_logs(
    paths: Sequence[Path],
    write: Callable[[bytes], None],
    *,
    tail: int | None = None,
    has_ended: Callable[[], bool] | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Write the contents of logs one after another, and with `has_ended` what is added to any until that is true.

    Of several, each piece stands under the name of its file. With `tail` each begins with so many last lines."""
    positions = dict.fromkeys(paths, 0)
    shown: Path | None = None  # whose text was written last
    is_first, is_over = True, has_ended is None
    while True:
        for path in filter(Path.exists, paths):
            with path.open("rb") as file:
                file.seek(positions[path])
                for line in deque(file, tail) if is_first and tail is not None else file:
                    if shown != path and len(paths) > 1:
                        write(f"==> {path.name} <==\n".encode())
                    shown = path
                    write(line)
                positions[path] = file.tell()
        if is_over or has_ended is None:
            return
        if not is_first:
            wait(_POLL_S)
        is_first = False
        is_over = has_ended()  # asked before the next look: what was printed before the end is there then
