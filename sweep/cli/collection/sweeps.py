"""Sweeps beside each other, as files, from elsewhere, and gone: `sweep compare`, `export`, `import`, `rm`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from sweep.checkpoints.store import discard_in
from sweep.cli.options import (
    complete_name,
    goal_option,
    metric_option,
    name_argument,
    names_argument,
    storage_option,
    where_option,
)
from sweep.cli.tables import FILES, emit, json_option, names, print_rows, writable, write_file
from sweep.core.literals import json_text
from sweep.core.results import without_index
from sweep.display.formats import clean, duration
from sweep.errors import ConfigError, ExperimentError
from sweep.foreign.record import record_foreign
from sweep.foreign.sources import read_foreign
from sweep.page.comparison import best_so_far, what_differs
from sweep.page.subject import Subject
from sweep.record.files import first_free
from sweep.record.layout import CHECKPOINT_PATTERN, DATABASE, RECORD_MARK, REMOTE_NOTE
from sweep.record.lock import DriverLock
from sweep.record.reader import ExperimentReader, find_experiment
from sweep.record.rows import TrialRow
from sweep.results.analysis import ExperimentAnalysis
from sweep.results.frames import STYLES
from sweep.results.winners import best_by_last, objectives_front, shown_counts
from sweep.storage.location import parse_storage
from sweep.storage.shared import home_of


@click.command(short_help="Compare sweeps: winners, progress, what differs.")
@names_argument
@metric_option
@goal_option
@json_option()
@where_option
def compare(readers: list[ExperimentReader], metric: str | None, mode: str | None, as_json: bool) -> None:
    """Compare sweeps: the winner of each by last reports, the best value after as many trials and after as much time,
    and what differs in what was asked for and in the winners' parameters. `sweep html A B` draws it.

    \b
    Examples:
      sweep compare before after
      sweep compare before after --metric acc --goal maximize --json
    """
    names = [reader.root.name for reader in readers]
    keys = names if len(set(names)) == len(names) else [str(reader.root) for reader in readers]
    subjects = {key: Subject(reader, metric, mode) for key, reader in zip(keys, readers, strict=True)}
    if len(subjects) < 2:
        raise ConfigError(f"only {keys[0]} is named; name another sweep to compare it with.")
    stands = [{"name": name, **_stand(subject)} for name, subject in subjects.items()]
    progress = [(unit, limit, dict(zip(subjects, best, strict=True))) for unit, limit, best in best_so_far(subjects)]
    different = {key: dict(zip(subjects, values, strict=True)) for key, values in what_differs(subjects).items()}
    objectives = ", ".join(f"{stand['name']} by {stand['objective'] or 'no metric'}" for stand in stands)
    note = f"not judged by the same: {objectives}. Values are not compared; --metric and --goal choose one"
    note = note if len({stand["objective"] for stand in stands}) > 1 else ""
    if as_json:
        facts = {"experiments": stands, "progress": [{unit: limit, "best": best} for unit, limit, best in progress]}
        emit(json_text(facts | {"differences": different, "note": note or None}) + "\n")
        return
    shown = [{"": stand["name"], **stand, "driven": _span(stand["driven_s"])} for stand in stands]
    print_rows(shown, ["", "state", "trials", "objective", "best", "winner", "driven"], "table")
    after = [(f"{limit:.0f} trials" if unit == "trials" else _span(limit), best) for unit, limit, best in progress]
    _print_beside("best after", after)
    _print_beside("what differs", different.items())
    if note:
        click.echo(f"note: {clean(note)}", err=True)


def _stand(subject: Subject) -> dict[str, Any]:
    reader, best = subject.reader, subject.best()
    return {
        "state": reader.state(),
        "trials": len(reader.trials()),
        "objective": subject.objective or None,
        "best": best.value if best else f"Pareto set of {len(subject.front())}" if subject.objectives else None,
        "winner": best and f"{best.row.number:05d}",
        "config": best and without_index(best.row.config),
        "driven_s": reader.driven_s(),
    }


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 60 else duration(seconds)


def _print_beside(title: str, found: Iterable[tuple[str, dict[str, Any]]]) -> None:
    if rows := [{title: key, **values} for key, values in found]:
        click.echo("")
        print_rows(rows, list(rows[0]), "table")


@click.command(short_help="Write the trials, or every report, to a file.")
@name_argument
@click.option("--output", "-o", metavar="FILE", required=True, callback=writable, help=f"Where to: {', '.join(FILES)}.")
@click.option("--style", type=click.Choice(STYLES), default="sweep", show_default=True, help="Whose columns it has.")
@click.option("--history", is_flag=True, help="A row for each report, not only the last of each trial.")
@metric_option
@json_option()
@where_option
def export(reader: ExperimentReader, output: str, style: str, history: bool, metric: str | None, as_json: bool) -> None:
    """Write one row per trial to a file, with its last report and its config: as the dataframes of `sweep` in Python
    have it, as Optuna's `study.trials_dataframe()`, as `get_dataframe()` of Ray Tune, or as W&B's export of runs.

    \b
    Examples:
      sweep export digits -o trials.parquet
      sweep export digits -o trials.csv --style wandb
      sweep export digits -o reports.csv --history
    """
    if history and (style != "sweep" or metric is not None):
        raise ConfigError("--history writes every report with the columns of sweep; leave --style and --metric out.")
    analysis, path = ExperimentAnalysis(reader.root), Path(output).expanduser().absolute()
    frame = analysis.history(config=True) if history else analysis.dataframe(metric, style=style, full=True)
    write_file(path, output, frame)
    facts = {"path": str(path), "rows": len(frame), "columns": len(frame.columns)}
    said = f"wrote {len(frame)} rows and {len(frame.columns)} columns to {clean(path)}"
    emit((json_text(facts) if as_json else said) + "\n")


@click.command("import", short_help="Record what W&B, Optuna or Ray Tune tried.")
@click.argument("source", metavar="FILE|DIRECTORY|URL")
@click.option("--name", help="What it is called here.  [default: what it is called there]")
@click.option("--metric", metavar="A,B,...", callback=names, help="What was optimised; of Optuna what its values are.")
@click.option("--goal", type=click.Choice(["minimize", "maximize"]), help="Which way --metric is better.")
@click.option("--parameters", metavar="A,B,...", callback=names, help="Of W&B: which columns are parameters.")
@click.option("--study", metavar="NAME", help="Of Optuna: which study, where there are several.")
@json_option()
@storage_option()
def import_(
    source: str,
    name: str | None,
    metric: list[str],
    goal: str | None,
    parameters: list[str],
    study: str | None,
    as_json: bool,
    storage: str | None,
) -> None:
    """Record trials of another tool as a sweep, which all commands can look at, `simulate` can replay under other
    schedulers, and `warm_start=` can learn from. It cannot be resumed: there is nothing to run.

    It takes W&B's export of runs (CSV), a storage of Optuna (a database, its URL, a journal) and the directory of an
    experiment of Ray Tune. Nothing is changed there, and no pickle is loaded.

    \b
    Examples:
      sweep import runs.csv --metric val_loss --goal minimize
      sweep import sqlite:///study.db --study digits --name before
      sweep import ray_results/train_2026-11-21 --goal minimize
    """
    found = read_foreign(source, metric, goal and goal[:3], parameters, study)
    reader = ExperimentReader(record_foreign(found, source, name=name, storage=storage))
    params = list(dict.fromkeys(key for row in reader.trials() for key in row.config))
    facts = {"experiment": reader.name, "tool": found.tool, "path": str(reader.root), "trials": len(reader.trials())}
    said = f"{reader.name}: {len(reader.trials())} trials of {found.tool} ({shown_counts(reader)})"
    told = (
        f"parameters: {', '.join(params)}; optimised: {', '.join(name for name, _ in reader.objectives) or 'not known'}"
    )
    facts |= {"parameters": params, "metric": found.metric}
    emit((json_text(facts) if as_json else f"{clean(said)}\n{clean(told)}") + "\n")


@click.command(short_help="Delete sweeps, or only their checkpoints.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_name)
@click.option("--checkpoints", "only", is_flag=True, help="Delete only the checkpoints; everything reported is kept.")
@click.option("--keep-best", is_flag=True, help="With --checkpoints: keep those of the best trial, or Pareto set.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option("Print it as a JSON list; needs --yes.")
@storage_option()
def rm(names: tuple[str, ...], only: bool, keep_best: bool, yes: bool, as_json: bool, storage: str | None) -> None:
    """Delete sweeps for good, with all their files: what that is is said first, and asked. A sweep that runs is not
    deleted, nor what is no sweep, nor where a symbolic link leads. With --checkpoints a sweep that has not ended can
    still be resumed: its trials begin anew.

    \b
    Examples:
      sweep rm digits
      sweep rm digits --checkpoints --keep-best
      sweep rm old1 old2 --yes
    """
    if keep_best and not only:
        raise ConfigError("--keep-best belongs to --checkpoints.")
    doomed: list[tuple[ExperimentReader, list[str]]] = []
    rows: list[dict[str, object]] = []
    readers = [_deletable(name, storage) for name in names]
    for reader in {reader.root.resolve(): reader for reader in readers}.values():  # one may be named twice
        kept = _best(reader) if keep_best else set()
        found = [path for row in reader.trials() if row.trial_id not in kept for path in _checkpoints(reader, row)]
        sizes = [_size(reader.root / path) for path in found] if only else [_size(reader.root)]
        files, size = (sum(column) for column in zip((0, 0), *sizes, strict=True))
        going = sum(not row.is_ended for row in reader.trials())
        stands = {"name": reader.root.name, "state": reader.state(), "unfinished": going, "checkpoints": len(found)}
        rows.append(stands | {"files": files, "bytes": size, "path": str(reader.root)})
        doomed.append((reader, found))
    print_rows(rows, list(rows[0]), "json" if as_json else "table")
    if not yes and (as_json or not sys.stdin.isatty()):
        raise ConfigError("nothing was deleted: nobody can be asked here. Give --yes to delete without asking.")
    what = "these checkpoints" if only else "these sweeps with all their files"
    yes or click.confirm(f"Delete {what} for good?", abort=True)
    for reader, found in doomed:
        lock = DriverLock(reader.layout.lock)  # no driver begins meanwhile
        try:
            for path in found if only else ():
                discard_in(reader.root, path)
            if not only:
                _delete(reader.root.resolve())  # a `..` in it may lead through what is renamed
        finally:
            lock.release()


def _deletable(name: str, storage: str | None) -> ExperimentReader:
    """Return an experiment that lies where it is named, in a directory of this machine, and does not run."""
    if "://" in name or parse_storage(storage).remote is not None:
        raise ConfigError(f"{name} lies elsewhere; delete it with the tools of that storage.")
    reader = find_experiment(name, storage)
    root, driver = reader.root, reader.driver()
    if root.is_symlink() or (root / REMOTE_NOTE).exists():
        what = f"a link to {root.resolve()}" if root.is_symlink() else "the local copy of what lies elsewhere"
        raise ConfigError(f"{root} is {what}, which is not deleted from here.")
    if driver is not None and driver.is_alive is not False:
        where = f"pid {driver.pid} on {driver.host or 'this machine'}"
        raise ExperimentError(f"{name} runs, or may ({where}); nothing was deleted. End it there: sweep cancel {name}")
    return reader


def _best(reader: ExperimentReader) -> set[str]:
    best = best_by_last(reader, reader.metric, reader.mode)
    found = {row.trial_id for row, _ in objectives_front(reader)} or {best.row.trial_id if best else ""}
    if found == {""}:
        raise ConfigError(f"{reader.name} has no best trial whose checkpoints could be kept. Leave --keep-best out.")
    return found


def _checkpoints(reader: ExperimentReader, row: TrialRow) -> list[str]:
    names = sorted(path.name for path in reader.layout.trial(row.trial_id).glob("checkpoint_*"))
    return [f"{row.trial_id}/{name}" for name in names if CHECKPOINT_PATTERN.match(name)]


def _size(place: Path) -> tuple[int, int]:
    """Return how many files are below a directory, and how many bytes; links are not followed."""
    sizes = [os.lstat(os.path.join(top, name)).st_size for top, _, names in os.walk(place) for name in names]
    return len(sizes), sum(sizes)


def _delete(root: Path) -> None:
    """Delete an experiment: by one rename it is gone, and a kill afterwards leaves no half of it under its name."""
    try:
        if (root / RECORD_MARK).exists():
            shutil.rmtree(home_of(root), ignore_errors=True)  # where its record is worked on
        os.rename(root, aside := Path(first_free(str(root.with_name(f".deleted-{root.name}")))))
        (aside / DATABASE).unlink()  # from here on it is no experiment
        shutil.rmtree(aside)
    except OSError as error:
        raise ExperimentError(f"{root} could not be deleted: {error.strerror} ({error.filename}).") from error
