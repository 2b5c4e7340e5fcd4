"""Spec files: W&B's form, all mistakes at once with their lines, and one line for what is no YAML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import searchers
from sweep.cli.main import main
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
    assert (kwargs["num_samples"], arguments.program, arguments.notes) == (50, None, [])
    assert {name: repr(domain) for name, domain in kwargs["config"].items()} == {
        name: repr(domain)
        for name, domain in {
            "lr": searchers.loguniform(1e-5, 0.1),
            "bs": searchers.choice([16, 32, 64]),
            "epochs": 27,
            "mom": searchers.uniform(0.0, 0.99),
            "depth": searchers.randint(1, 6),
            "net": {"width": searchers.qrandint(16, 64, 16)},
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
        (
            "program: train.py:train\ncommand: [python, train.py]",
            "1: program: train.py:train is a function, and command",
        ),
        ("program: train.py:train\nworkers: 2", "1: program: train.py:train is a function, and workers of a program"),
        ("program: train.py:train\nparameters: {x: {min: null, max: 3}}", "expected value, values, or min and max"),
        ("program: nowhere.py:f", "there is no file nowhere.py beside"),
        ("program: trian.py", "1: program: there is no program trian.py beside.* Did you mean 'train.py'?"),
        ("program: trian.py\ncommand: [python, '${program}']", "there is no program trian.py beside"),
        ("command: ['${interpreter}', '${program}', '${args}']", "'program' is missing"),
        ("parameters: {}", "'program' is missing"),
        ("program: train.py\nparameters: 0", "2: parameters: expected keys with values"),
        ("program: train.py\nstart_with: [1]", "2: start_with: points_to_evaluate holds 1; expected dicts"),
        (f"program: {'x' * 500}", "there is no program xxx"),
        ("program: train.py\nmethod: grid\nparameters: {x: {min: 0, max: 999999999}}", "method grid tries every step"),
        ("command: python 'train.py", "1: command: No closing quotation"),
        ("program: train.py\ncommand: []", "2: command: found \\[\\]; expected a list of words"),
        ("program: train.py:train\nearly_terminate: {type: asha}", "also give metric"),
        ("program: train.py:train\nmetric: {name: x}\nearly_terminate: hyperband", "3: early_terminate: found 'hyperb"),
    ],
)
def test_incomplete_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_spec(write(tmp_path, text))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", {"command": ["HERE/train.py"]}),
        (
            "command: ['${env}', '${interpreter}', '${program}', '${args}', --epochs, 10, ~]",
            {"command": ["PYTHON", "HERE/train.py", "${args}", "--epochs", "10"]},
        ),
        ("command: torchrun --tag 'a b' ${program} ${args_no_hyphens}", {
            "command": ["torchrun", "--tag", "a b", "HERE/train.py", "${args_no_hyphens}"]
        }),
        ("command: [python, train.py, --lr, '{lr}']", {"command": ["python", "train.py", "--lr", "{lr}"]}),
        # values that no macro passes are read from wandb.config
        ("command: [python, '${program}', fit]", {"command": ["python", "HERE/train.py", "fit"], "closed": True}),
    ],
)  # fmt: skip
def test_a_plain_program_and_a_command_are_handed_on(tmp_path: Path, command: str, words: dict[str, Any]) -> None:
    arguments = read_spec(write(tmp_path, f"program: train.py\n{command}\nparameters: {{lr: {{value: 1}}}}\n"))
    text = repr(arguments.program).replace(str(tmp_path.resolve()), "HERE").replace(sys.executable, "PYTHON")
    assert (arguments.target, text) == ("", repr(words))


def test_a_program_is_beside_the_file_or_else_in_the_working_directory_or_is_a_module(tmp_path, monkeypatch):
    (tmp_path / "sweeps").mkdir()
    path = tmp_path / "sweeps" / "s.yaml"
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    path.write_text("program: src/train.py\nconfig_file: src/train.py\n")
    assert read_spec(path).program == {"config_file": "src/train.py", "command": ["src/train.py"]}
    path.write_text("program: src/train.py:train\n")
    assert read_spec(path).target == f"{(tmp_path / 'src' / 'train.py').resolve()}:train"
    path.write_text("program: pkg.train\ncommand: [python, -m, '${program}', '${args}']\n")
    assert read_spec(path).program == {"command": ["python", "-m", "pkg.train", "${args}"]}
    path.write_text("command: [deepspeed, train.py, '${args}']\n")
    assert read_spec(path).program == {"command": ["deepspeed", "train.py", "${args}"]}


def test_options_of_a_program_are_checked_and_handed_on(tmp_path: Path) -> None:
    own = """\
program: train.py
workers: 2
isolate: true
fresh: false
resume: [--resume, "{checkpoint_dir}/last.pt"]
setup: [./server, --port, 80]
ready: http://localhost:80
teardown: [./stop]
report: {stdout: '(?P<key>\\w+) is (?P<value>\\S+)'}
"""
    assert read_spec(write(tmp_path, own)).program == {
        "command": [str((tmp_path / "train.py").resolve())],
        "workers": 2,
        "isolate": True,
        "fresh": False,
        "resume": ["--resume", "{checkpoint_dir}/last.pt"],
        "setup": ["./server", "--port", 80],
        "ready": "http://localhost:80",
        "teardown": ["./stop"],
        "pattern": r"(?P<key>\w+) is (?P<value>\S+)",
    }
    wrong = "program: train.py\nworkers: 0\nisolate: 1\nresume: --resume\nready: {a: 1}\nreport: {stdout: '('}\n"
    with pytest.raises(ConfigError) as caught:
        read_spec(write(tmp_path, wrong + "setup: a b\nreport_time: 5\nconfig_file: no.yaml\nbudget: {tome: 3}\n"))
    for expected in (
        "has 8 mistakes:",
        "line 2: workers: found 0; expected a whole number of at least 1.",
        "line 3: isolate: found 1; expected true or false.",
        "line 4: resume: found '--resume'; expected a list of words: there is no shell.",
        "line 5: ready: found {'a': 1}; expected a URL, or a list of words",
        "line 6: report.stdout: '(' is no regular expression: ",
        "line 7: setup: found 'a b'; expected a list of words",
        "line 9: config_file: there is no file no.yaml beside the spec",
        "line 10: budget.tome: unknown key 'tome'. Did you mean 'time'?",
    ):
        assert expected in str(caught.value)


def test_what_only_the_service_knows_is_named_once_and_a_slip_is_a_mistake(tmp_path: Path) -> None:
    text = """\
project: p
entity: me
description: mine
program: train.py
method: custom
name: "lr/wd: a sweep?"
controller: {type: local}
job: a/b/c:v0
metric: {name: loss, impute: worst}
parameters: {x: {min: 0.0, max: 1.0, q: 0.1, note: dropout}}
"""
    arguments = read_spec(path := write(tmp_path, text))
    assert arguments.given["name"] == "lr_wd: a sweep_"
    unused = "method: custom, controller, job, metric.impute, parameters.x.note, parameters.x.q"
    assert arguments.notes == [f"{path}: without effect here: {unused}."]
    slips = text.replace("controller", "comand").replace("note:", "distributon:")
    with pytest.raises(ConfigError) as caught:
        read_spec(write(tmp_path, slips))
    assert "line 7: comand: unknown key 'comand'. Did you mean 'command'?" in str(caught.value)
    assert "line 10: parameters.x: unknown key 'distributon'. Did you mean 'distribution'?" in str(caught.value)


@pytest.mark.parametrize(("method", "total"), [("grid", 4), ("random", 4)])
def test_run_cap_bounds_a_grid_as_it_bounds_samples(tmp_path: Path, method: str, total: int) -> None:
    text = f"program: train.py:train\nmethod: {method}\nrun_cap: 4\nparameters: {{x: {{values: [1, 2, 3, 4, 5, 6]}}}}\n"
    kwargs = read_spec(write(tmp_path, text)).run_kwargs()
    found = kwargs.get("search_alg")
    searcher = searchers.create_searcher(found) if isinstance(found, str) else found
    searcher.set_search_properties("loss", "min", kwargs["config"], num_samples=kwargs["num_samples"])
    assert searcher.num_trials(kwargs["num_samples"]) == total


def test_numbers_that_w_and_b_reads_as_texts_are_numbers(tmp_path: Path) -> None:
    text = """\
program: train.py
metric: {name: loss, target: "1e-3", goal: Minimize}
early_terminate: {type: hyperband, max_iter: "27", s: 2.0, eta: "3"}
run_cap: "5"
parameters: {lr: {distribution: log_uniform_values, min: "1e-5", max: '1e-1'}, n: {min: "1", max: "3"}}
"""
    arguments = read_spec(write(tmp_path, text))
    assert (arguments.goal_value, arguments.run_cap, arguments.scheduler_options["grace_period"]) == (1e-3, 5, 3.0)
    config = arguments.run_kwargs()["config"]
    assert repr(config) == repr({"lr": searchers.loguniform(1e-5, 1e-1), "n": searchers.randint(1, 4)})


def test_ranges_of_the_command_line_replace_names_with_dots(tmp_path: Path) -> None:
    text = "program: train.py\nparameters: {trainer.lr: {value: 1}, net: {parameters: {width: {value: 2}}}}\n"
    arguments = read_spec(write(tmp_path, text))
    arguments.ranges = ["trainer.lr=3", "net.width=4"]
    assert arguments.run_kwargs()["config"] == {"trainer.lr": 3, "net": {"width": 4}}


def test_json_with_tabs_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    write(tmp_path, "")
    path = tmp_path / "spec.json"
    path.write_text('{\n\t"program": "train.py",\n\t"parameters": {"x":\t{"value": "a\\tb"}}\n}', encoding="utf-8-sig")
    assert read_spec(path).parameters == {"x": {"value": "a\tb"}}


NINE = ", ".join(["*{}"] * 9)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{NINE.replace('{}', f'a{i - 1}')}], y{i}: 1}}\n" for i in range(1, 12)
)
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
        ("a: " + "[" * 600 + "]" * 600, " it holds itself, or is nested too deep."),
        (BOMB, "more than 10000 values"),
        (MERGES, "more than 10000 values"),
        (HEAD + "---\nprogram: b.py\n", "2:1: not valid YAML: but found another document"),
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


def test_the_sweep_file_of_the_page_for_users_of_wandb_is_read_as_it_is(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "come-from-wandb-sweeps.md"
    text = page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    arguments = read_spec(write(tmp_path, text))
    given = arguments.given
    assert (given["search_alg"], given["scheduler"], arguments.run_cap) == ("gp", "asha", 50)
    assert arguments.scheduler_options["grace_period"] == 3
    program = str((tmp_path / "train.py").resolve())
    assert arguments.program == {"command": [sys.executable, program, "${args}"]}


def test_the_spec_of_the_reference_has_no_mistake_and_can_be_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    arguments = read_spec(write(tmp_path, page.partition("```yaml\n")[2].partition("```")[0]))
    kwargs = arguments.run_kwargs()
    assert kwargs["config"]["net"]["dropout"] is not None
    assert isinstance(kwargs["search_alg"], searchers.OptunaSearch)
    assert kwargs["num_samples"] == 50
