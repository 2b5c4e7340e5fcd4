"""`sweep run`: start a sweep of a script, a command, a Python function or a spec file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from searchers import SEARCHERS
from sweep.cli.arguments import RunArguments, parse_seconds
from sweep.cli.options import named_option, storage_option
from sweep.cli.programs import ProgramCommand, dry_run, ranges_in
from sweep.cli.running.carrying import carried_options, carry_out, note
from sweep.cli.running.cluster import cluster_options, join
from sweep.errors import ConfigError
from sweep.launch.target import import_trainable, split_target
from sweep.programs.program import Program
from sweep.schedulers import SCHEDULERS

span_option = partial(
    click.option, metavar="SPAN", callback=lambda ctx, parameter, text: None if text is None else parse_seconds(text)
)
_SPECS = (".yaml", ".yml", ".json")
_OF_PROGRAMS = ("isolate", "fresh", "workers", "config_file", "pattern")


# An option whose value is a parameter of `sweep.run` bears that parameter's name.
@click.command(cls=ProgramCommand, short_help="Start a sweep of a script, a command, a function or a spec file.")
@click.argument("target", metavar="SCRIPT.py|SCRIPT.py:FUNCTION|SPEC.yaml", required=False)
@click.argument("ranges", nargs=-1, metavar="[PARAMETER=RANGE]... [-- COMMAND...]")
@click.option("--metric", help="What is optimised: a key that trials report, or a path such as eval/acc.")
@click.option("--goal", type=click.Choice(["minimize", "maximize"]), help="Which way --metric is better.")
@click.option("--minimize", metavar="METRIC", help="Short for --metric METRIC --goal minimize.")
@click.option("--maximize", metavar="METRIC", help="Short for --metric METRIC --goal maximize.")
@click.option("--trials", "num_samples", type=int, help="How many; -1: no limit.  [default: 10, a grid once]")
@span_option("--time", "time_budget_s", help="End after this long: 90s, 30m, 2h.")
@span_option("--trial-time", "trial_timeout_s", help="Stop a trial that has run for so long.")
@span_option("--report-time", "report_timeout_s", help="Kill a trial that reports nothing for so long.")
@click.option("--concurrency", "max_concurrent_trials", type=click.IntRange(min=1), help="Trials at a time, at most.")
@click.option("--cpus", type=float, help="CPUs per trial.  [default: 1]")
@click.option("--gpus", type=float, help="GPUs per trial; a share such as 0.5 is possible.")
@click.option("--mem", metavar="BYTES", help="Memory per trial, such as 4G.")
@named_option("--searcher", "search_alg", names=SEARCHERS, help="{names}.  [default: random]")
@named_option("--scheduler", names=SCHEDULERS, help="{names}.  [default: fifo]")
@click.option("--max-t", "--max-epochs", "max_t", type=float, help="Reports after which the scheduler ends a trial.")
@click.option("--grace", type=float, help="Reports before the scheduler may stop a trial.")
@click.option("--seed", type=click.IntRange(min=0), help="Makes the search repeatable.")
@click.option("--name", help="Directory of the sweep.  [default: FUNCTION_<date_time>]")
@storage_option("storage_path")
@click.option("--retries", "max_failures", type=click.IntRange(min=-1), help="Starts of a failed trial; -1: no limit.")
@cluster_options
@click.option("--isolate/--no-isolate", default=None, help="Each trial of a program in a directory of its own.")
@click.option("--fresh", is_flag=True, default=None, help="Give a script an interpreter of its own.")
@click.option("--workers", type=click.IntRange(min=1), help="Copies of a program that one trial starts as a group.")
@click.option("--config-file", metavar="FILE", help="Each trial gets a copy with its values, in place of arguments.")
@click.option("--pattern", metavar="REGEX", help="Of lines with a metric: groups key and value, perhaps step.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Run one trial and print its metrics; see `sweep plan`, too.")
@click.option("--resume", is_flag=True, help="Continue the sweep --name if it exists.")
@carried_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    is_dry: bool,
    resume: bool,
    quiet: bool,
    is_wordy: bool,
    as_json: bool,
    conditions: Sequence[str],
    junit: Path | None,
    **options: Any,
) -> int:
    """Start a sweep and stay with it: Ctrl-C once saves and stops, twice kills; both can be resumed.

    SCRIPT.py is run as it is, once for each trial, with parameters as its arguments; what it logs or prints are its
    metrics. So is any command behind --, with ranges in braces. SCRIPT.py:FUNCTION is a function of one config that
    calls sweep.report, a sweep.Trainable class, or a trainer such as TorchTrainer(...), whose parameters are called
    train_loop_config.lr. A spec file is a W&B sweep YAML; options and ranges given here win over it.

    \b
    Ranges:
      'lr=loguniform(1e-5,1e-1)'          'dropout=uniform(0,0.5)'
      'width=int(loguniform(16,512))'     'opt=choice(adam,sgd)'
      'lr=tag(log,interval(1e-5,1e-1))'   'depth=range(1,6)'
      'net.width=randint(8,64)'           bs=16,32,64   epochs=10
    A list with commas is crossed under --searcher grid and drawn from otherwise.
    Quote parentheses, as here.

    \b
    Examples:
      sweep run train.py 'lr=loguniform(1e-5,1e-1)' bs=16,32,64 --minimize loss --trials 50
      sweep run --minimize loss -- torchrun --nproc-per-node 2 train.py --lr '{loguniform(1e-5,1e-1)}'
      sweep run train.py lr=0.1 --dry-run
      sweep run train.py:train 'lr=uniform(0,1)' --maximize acc --searcher tpe --scheduler asha --max-epochs 27
      sweep run train.py:train lr=0.1,0.01 act=relu,gelu --minimize loss --searcher grid
      sweep run spec.yaml --time 2h --concurrency 4

    Exit codes: 0 all done, 1 no trial succeeded, 2 bad usage or spec, 3 some trials failed, 4 the best trial is not as
    required, 130 interrupted.
    """
    say = None if quiet or as_json else note
    trainable, kwargs = asked_for(ctx, say, **options)
    if resume and "name" not in kwargs:
        raise ConfigError("--resume continues a sweep by its name; also give --name, or use `sweep resume NAME`.")
    if conditions and not kwargs.get("metric"):
        raise ConfigError("--require says how good the best trial must be: also give --minimize or --maximize METRIC.")
    kwargs["resume"] = "AUTO" if resume else None
    if is_dry and isinstance(trainable, Program):
        return dry_run(trainable, kwargs["config"], kwargs, as_json=as_json)
    if is_dry:
        raise ConfigError("--dry-run is for programs; `sweep plan` says what other sweeps would do.")
    shown: Any = {"quiet": quiet, "is_wordy": is_wordy, "as_json": as_json, "conditions": conditions, "junit": junit}
    return carry_out(trainable, kwargs, **shown)


def asked_for(
    ctx: click.Context,
    say: Callable[[str], None] | None,
    *,
    target: str | None,
    ranges: Sequence[str],
    engine: str | None,
    address: str | None,
    hosts: str | None,
    cluster: Mapping[str, Any],
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """Return the trainable and the arguments of `sweep.run` that a command line means; `say` is given notes."""
    arguments = _arguments(target, ranges, options, ctx.meta.get("command", []))
    on = join(engine, address, hosts, cluster, arguments.cluster)
    for text in arguments.notes:
        if say is not None:
            say(text)
    kwargs = arguments.run_kwargs() | on
    if arguments.program is not None:
        return Program(**arguments.program), kwargs
    return import_trainable(arguments.target, say), kwargs


def _arguments(
    target: str | None, ranges: Sequence[str], options: dict[str, Any], command: Sequence[str]
) -> RunArguments:
    if command and target is not None and "=" in target:  # the command stands behind --
        ranges, target = (target, *ranges), None
    words, inner = ranges_in(command)
    if others := [word for word in ranges if "=" not in word and "~" not in word]:
        raise ConfigError(
            f"{others[0]!r} is no parameter; expected NAME=RANGE. The command of a trial, or what all its runs are "
            f"given, stand behind --: sweep run -- {target} {' '.join(others)}"
        )
    arguments = _target_arguments(target, words)
    arguments.ranges, given = (*inner, *ranges), arguments.given
    about = _taken(options, **{name: name for name in _OF_PROGRAMS})
    if about and arguments.program is None:
        raise ConfigError(f"--{', --'.join(about).replace('_', '-')}: for programs; {arguments.target} is a function.")
    if arguments.program is not None:
        arguments.program = {**arguments.program, **about}
    goals = [(metric, mode) for mode in ("min", "max") if (metric := options.pop(f"{mode}imize")) is not None]
    goal = options.pop("goal")
    if len(goals) > 1 or (goals and (options["metric"] or goal)):
        raise ConfigError("give the metric once: --minimize METRIC, --maximize METRIC, or --metric METRIC --goal GOAL.")
    options["metric"], options["mode"] = goals[0] if goals else (options["metric"] or None, goal and goal[:3])
    if options["scheduler"] not in (None, given.get("scheduler")):
        arguments.scheduler_options = {}
    arguments.scheduler_options |= _taken(options, max_t="max_t", grace="grace_period")
    if amounts := _taken(options, cpus="cpu", gpus="gpu", mem="memory"):
        given["resources_per_trial"] = {"cpu": 1.0} | given.get("resources_per_trial", {}) | amounts
    given |= {name: value for name, value in options.items() if value is not None}
    if target is not None and target.lower().endswith(_SPECS) and given.get("search_alg") == "grid":
        arguments.run_cap = given.pop("num_samples", arguments.run_cap)  # trials, as W&B's agents count them
    return arguments


def _taken(options: dict[str, Any], **names: str) -> dict[str, Any]:
    """Take options out that were given, under other names."""
    values = {name: options.pop(option) for option, name in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def _target_arguments(target: str | None, words: Sequence[str]) -> RunArguments:
    """Return what is swept: a spec file, a function, a script with fixed arguments, or a command."""
    if target is None:
        if not words:
            raise ConfigError("say what is swept: SCRIPT.py, SCRIPT.py:FUNCTION, SPEC.yaml, or a command behind --.")
        return RunArguments(target="", program={"command": words})
    parts, is_spec = split_target(target), target.lower().endswith(_SPECS)
    if words and (is_spec or parts is not None):
        raise ConfigError(f"{target} takes no words behind --: they are a script's fixed arguments, or a command.")
    if is_spec:
        from sweep.cli.spec import read_spec

        return read_spec(Path(target))
    if parts is None:
        return RunArguments(target="", program={"command": [target, *words]})
    return RunArguments(target=f"{Path(parts[0]).expanduser().absolute()}:{parts[1]}")
