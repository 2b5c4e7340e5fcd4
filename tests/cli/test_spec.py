"""Spec files: W&B's form, all mistakes at once with their lines, and one line for what is no YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

import searchers
from sweep.cli.main import main
from sweep.cli.ranges import DISTRIBUTIONS, space_of
from sweep.cli.spec import read_spec
from sweep.core.config import FailureConfig
from sweep.errors import ConfigError

GOOD = """\
program: train.py:train
method: tpe
name: accepted
project: accepted
entity: and ignored
metric: {name: loss, goal: minimize, target: 0.02}
parameters:
  lr:     {distribution: log_uniform_values, min: 1.0e-5, max: 0.1}
  bs:     {values: [16, 32, 64]}
  epochs: {value: 27}
  mom:    {min: 0.0, max: 0.99}
  depth:  {min: 1, max: 5}
  net:
    parameters:
      width: {distribution: q_uniform, min: 16, max: 64, q: 16}
early_terminate: {type: hyperband, max_iter: 27, s: 2, eta: 3, strict: true}
run_cap: 50
resources_per_trial: {cpu: 1, gpu: 0.5, memory: 4G}
concurrency: 4
seed: 0
budget: {time: 2h, trial_time: 30m}
failures: {retries: 1, nan: error}
"""


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "train.py").write_text("def train(config):\n    pass\n")
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


def test_a_complete_spec_becomes_an_order(tmp_path: Path) -> None:
    arguments = read_spec(write(tmp_path, GOOD))
    assert arguments.target == f"{tmp_path / 'train.py'}:train"
    assert arguments.given == {
        "metric": "loss",
        "mode": "min",
        "search_alg": "tpe",
        "name": "accepted",
        "num_samples": 50,
        "max_concurrent_trials": 4,
        "seed": 0,
        "time_budget_s": 7200.0,
        "trial_timeout_s": 1800.0,
        "max_failures": 1,
        "failure_config": FailureConfig(nan="error"),
        "resources_per_trial": {"cpu": 1, "gpu": 0.5, "memory": "4G"},
        "scheduler": "asha",
    }
    assert arguments.scheduler_options == {
        "grace_period": 3.0,
        "max_t": 27,
        "reduction_factor": 3,
        "stop_last_trials": True,
    }
    kwargs = arguments.run_kwargs()
    assert {name: repr(domain) for name, domain in kwargs["config"].items()} == {
        name: repr(domain)
        for name, domain in {
            "lr": searchers.loguniform(1e-5, 0.1),
            "bs": searchers.choice([16, 32, 64]),
            "epochs": 27,
            "mom": searchers.uniform(0.0, 0.99),
            "depth": searchers.randint(1, 6),
            "net": {"width": searchers.quniform(16, 64, 16)},
        }.items()
    }
    assert kwargs["stop"]("t", {"loss": 0.01})
    assert not kwargs["stop"]("t", {"loss": 0.03, "time_total_s": 10})


def test_all_mistakes_are_listed_at_once_with_their_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
program: train.py:train
methd: tpe
method: tpee
metric: {nam: loss, goal: minimise}
parameters:
  lr: {min: 1.0, max: 0}
  x: {distribution: log_uniform_value, min: 1, max: 2}
  y: {distribution: log_uniform_values, min: 0, max: 2}
  z: 3
  w:
    values: []
  v: {min: a, max: 2}
  u: {vale: 1}
  n:
    parameters:
      deep: {min: 1}
run_cap: many
concurrency: -1
resources_per_trial: {cpus: 1}
budget: {time: soon}
early_terminate: {type: median, min_iter: 0}
failures: {retry: 2, max_node_losses: many}
""",
    )
    with pytest.raises(ConfigError) as caught:
        read_spec(path)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("mistakes:")
    told = "\n".join(lines)
    for expected in (
        "line 2: methd: unknown key 'methd'. Did you mean 'method'?",
        "line 3: method: unknown method 'tpee'. Did you mean 'tpe'?",
        "line 4: metric.nam: unknown key 'nam'. Did you mean 'name'?",
        "line 4: metric: 'name' is missing.",
        "line 4: metric.goal: found 'minimise'; expected 'minimize' or 'maximize'.",
        "line 6: parameters.lr: lower=1.0 is above upper=0",
        "line 7: parameters.x: unknown distribution 'log_uniform_value'. Did you mean 'log_uniform_values'?",
        "line 8: parameters.y: ",
        "line 9: parameters.z: expected a name and value, values, or min and max.",
        "line 10: parameters.w: expected a list of at least one value.",
        "line 12: parameters.v: lower is 'a'; expected a number",
        "line 13: parameters.u: expected value, values, or min and max, found vale.",
        "line 16: parameters.n.parameters.deep: expected value, values, or min and max, found min.",
        "line 17: run_cap: num_samples is 'many'; expected a whole number of at least 1, or -1 for no limit.",
        "line 18: concurrency: max_concurrent_trials is -1; ",
        "line 19: resources_per_trial: unknown resource 'cpus'",
        "line 20: budget.time: 'soon' is no span of time",
        "line 21: early_terminate: type is 'median'; expected 'asha' or 'hyperband'.",
        "line 22: failures.retry: unknown key 'retry'. Did you mean 'retry_on'?",
        "line 22: failures.max_node_losses: ",
    ):
        assert expected in told
    numbers = [int(line.split()[1].rstrip(":")) for line in lines[1:]]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program: train.py", r"plain program, which is not supported yet; expected FILE\.py:FUNCTION"),
        ("program: train.py:train\ncommand: [python, train.py]", "2: command: plain programs are not supported"),
        ("program: train.py:train\nparameters: {x: {min: null, max: 3}}", "expected value, values, or min and max"),
        ("program: nowhere.py:f", "there is no file nowhere.py beside"),
        ("parameters: {}", "'program' is missing"),
        ("program: train.py:train\nearly_terminate: {type: asha}", "also give metric"),
    ],
)
def test_incomplete_files_and_plain_programs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_spec(write(tmp_path, text))


NINE = ", ".join(["*{}"] * 9)
BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{NINE.replace('{}', f'a{i - 1}')}]\n" for i in range(1, 12))
HEAD = "program: train.py:train\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "\tmethod: tpe\n", "2:1: not valid YAML: found character '\\t'"),
        (HEAD + "method: tpe\nmethod: gp\n", '3:1: not valid YAML: found duplicate key "method"'),
        (HEAD + "metric: {name: a\nrun_cap: 3\n", "3:8: not valid YAML: expected ',' or '}', but got ':' (while"),
        (HEAD + "name: *a\n", "2:7: not valid YAML: found undefined alias"),
        (HEAD + "name: !!python/object:os.system x\n", "2:7: not valid YAML: could not determine a constructor"),
        (HEAD + f"parameters: {{x: {{value: {'1' * 5000}}}}}\n", " not valid YAML: Exceeds the limit"),
        ("[1, 2]\n", "1:1: expected keys such as program, method and parameters, found [1, 2]."),
        ("", "1:1: expected keys such as program, method and parameters, found None."),
        ("a: " + "[" * 5000 + "]" * 5000, " it holds itself, or is nested too deep."),
        (BOMB, "more than 10000 values"),
        ("a: &a [*a]\n", " it holds itself, or is nested too deep."),
        (b"program: tr\xe4in.py:t\n", " can't decode byte 0xe4 "),
        (b"a: b\nc: \0\0", "unacceptable character #x0000"),
    ],
)
def test_a_malformed_spec_is_one_line_and_no_traceback(tmp_path, monkeypatch, capsys, text, said):
    (tmp_path / "spec.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["run", "spec.yaml"])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("error: spec.yaml:")
    assert said in err


def test_dates_stay_texts_and_aliases_are_understood(tmp_path: Path) -> None:
    text = HEAD + "parameters: {day: {value: 2026-01-02}, x: &v {min: 0.0, max: 1.0}, y: *v, z: {<<: *v, max: 2.0}}\n"
    space = read_spec(write(tmp_path, text)).run_kwargs()["config"]
    x, z = repr(searchers.uniform(0.0, 1.0)), repr(searchers.uniform(0.0, 2.0))
    assert {name: repr(domain) for name, domain in space.items()} == {"day": "'2026-01-02'", "x": x, "y": x, "z": z}


def test_the_grid_crosses_values_and_whole_numbers_and_refuses_ranges_without_steps() -> None:
    space, _ = space_of({"a": {"values": [1, 2]}, "b": {"min": 1, "max": 3}, "c": {"value": 7}}, is_grid=True)
    assert space == {"a": searchers.grid_search([1, 2]), "b": searchers.grid_search([1, 2, 3]), "c": 7}
    ((where, what),) = space_of({"a": {"min": 0.0, "max": 1.0}}, is_grid=True)[1]
    assert (where, what.partition(",")[0]) == (("a",), "method grid needs values")


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_every_distribution_can_be_written(kind: str) -> None:
    numbers = {"min": 1, "max": 4, "q": 1, "mu": 0, "sigma": 1, "value": 3, "values": [1]}
    given = {name: numbers[name] for name in DISTRIBUTIONS[kind][0]}
    space, mistakes = space_of({"x": {"distribution": kind, **given}})
    assert space
    assert not mistakes
    ((_, what),) = space_of({"x": {"distribution": kind, "value": 1, "values": [1]}})[1]
    assert what.startswith(f"{kind} takes ")


def test_the_sweep_file_of_the_page_for_users_of_wandb_runs_after_its_one_change(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "come-from-wandb-sweeps.md"
    text = page.read_text(encoding="utf-8")
    before = text.partition("```text\n")[2].partition("```")[0]
    after = text.partition("```yaml\n")[2].partition("```")[0]
    assert after == before.replace("train.py", "train.py:train")
    arguments = read_spec(write(tmp_path, after))
    given = arguments.given
    assert (given["search_alg"], given["scheduler"], given["num_samples"]) == ("gp", "asha", 50)
    assert arguments.scheduler_options["grace_period"] == 3
    for name in ("inv_log_uniform", "inv_log_uniform_values", "beta", "q_log_uniform"):
        with pytest.raises(ConfigError, match=f"unknown distribution '{name}'"):
            read_spec(write(tmp_path, after.replace("log_uniform_values", name)))


def test_the_spec_of_the_reference_has_no_mistake_and_can_be_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    arguments = read_spec(write(tmp_path, page.partition("```yaml\n")[2].partition("```")[0]))
    kwargs = arguments.run_kwargs()
    assert kwargs["config"]["net"]["dropout"] is not None
    assert isinstance(kwargs["search_alg"], searchers.OptunaSearch)
    assert kwargs["num_samples"] == 50
