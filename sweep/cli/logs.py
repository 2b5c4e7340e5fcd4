"""`sweep logs`: print what a trial printed, also while it does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from sweep.cli.inspect import storage_option
from sweep.errors import ConfigError
from sweep.store.layout import rank_output, rank_outputs
from sweep.store.reader import find_experiment

__all__ = ["logs", "print_log"]

_POLL_S = 0.2


@click.command(short_help="Print what a trial printed.")
@click.argument("name")
@click.argument("trial")
@click.option("--follow", "-f", is_flag=True, help="Go on printing until the trial ends.")
@click.option("--rank", type=click.IntRange(min=0), metavar="NUMBER", help="Of a training group: only this worker.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines.")
@storage_option
def logs(name: str, trial: str, follow: bool, rank: int | None, tail: int | None, storage: str | None) -> None:
    """Print what a trial wrote to standard output and standard error, of all its attempts. TRIAL is its number or id.

    Of a training group it prints what each worker wrote, one after another; with --follow what rank 0 writes.

    \b
    Examples:
      sweep logs digits 17 --tail 50
      sweep logs digits 17 -f
      sweep logs digits 17 --rank 1
    """
    reader = find_experiment(name, storage)
    row = reader.trial(trial)
    path = reader.layout.output(row.trial_id)
    ranks = [Path(one) for one in rank_outputs(str(path.parent))]
    if rank is not None or (ranks and follow):
        path = Path(rank_output(str(path.parent), rank or 0))
    paths = [path] if path.exists() or follow else [] if rank is not None else ranks
    if not paths:
        found = f"; there are {', '.join(one.name for one in ranks)}" if ranks else ""
        raise ConfigError(
            f"trial {row.trial_id} has printed nothing: {path} is not there{found}. It is {row.status}"
            + (f": {row.reason}." if row.reason else ".")
        )

    def has_ended() -> bool:
        return reader.trial(row.trial_id).is_ended

    def write(chunk: bytes) -> None:
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()

    for one in paths:
        if len(paths) > 1:
            write(f"==> {one.name} <==\n".encode())
        print_log(one, write, tail=tail, has_ended=has_ended if follow else None)


def print_log(
    path: Path,
    write: Callable[[bytes], None],
    *,
    tail: int | None = None,
    has_ended: Callable[[], bool] | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Write the content of a log, and with `has_ended` what is added until that is true.

    Args:
        tail: begin with that many last lines.
        wait: how to pass the time between two looks.
    """
    if path.exists():
        with path.open("rb") as file:
            if tail is not None:
                _skip_to_tail(file, tail)
            for chunk in _chunks(file):
                write(chunk)
            position = file.tell()
    else:
        position = 0
    while has_ended is not None:
        is_over = has_ended()  # asked first: what was printed before the end is there now
        if path.exists():
            with path.open("rb") as file:
                file.seek(position)
                for chunk in _chunks(file):
                    write(chunk)
                position = file.tell()
        if is_over:
            return
        wait(_POLL_S)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(1 << 16):
        yield chunk


def _skip_to_tail(file: BinaryIO, lines: int) -> None:
    """Go to where the last `lines` lines begin, reading backwards so that a large log costs nothing."""
    end = position = file.seek(0, 2)
    newlines = 0
    while position > 0:
        start = max(0, position - (1 << 16))
        file.seek(start)
        block = file.read(position - start)
        for index in range(len(block) - 1, -1, -1):
            if block[index] == 0x0A and start + index != end - 1:
                newlines += 1
                if newlines == lines:
                    file.seek(start + index + 1)
                    return
        position = start
    file.seek(end if lines == 0 else 0)
