"""Programs as trainables: scripts in forks, commands as children, what they are given, how they end."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.errors import ConfigError, TrialsFailed
from sweep.results.analysis import ExperimentAnalysis

SCRIPT = """\
import argparse, json, os, sys
import part

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--fast", action="store_true")
given = parser.parse_args()

class Model:
    pass

def main():
    import pickle
    pickle.loads(pickle.dumps(Model()))
    directory = os.environ["SWEEP_CHECKPOINT_DIR"]
    state = os.path.join(directory, "state.json")
    begin = json.load(open(state))["step"] if os.path.exists(state) else 0
    open("model.txt", "w").write(str(given.lr))
    for step in range(begin, given.steps):
        json.dump({"step": step + 1}, open(state, "w"))
        print(f"epoch {step}: loss {given.lr * 10 / (step + 1):.3f}")
    print("file", __file__, "path", sys.path[0], "part", part.NAME)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "part.py").write_text("NAME = 'beside'\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def ran(program: Any, **given: Any) -> ExperimentAnalysis:
    options: dict[str, Any] = {"metric": "loss", "mode": "min", "name": "s", "verbose": 0, "seed": 0} | given
    return sweep.run(program, **options)


def output_of(analysis: ExperimentAnalysis, number: int = 0) -> str:
    trial = analysis.trials[number]
    return Path(analysis.experiment_path, trial.trial_id, "output.log").read_text()


def test_a_script_is_swept_as_it_is_in_directories_of_its_own(place: Path) -> None:
    analysis = ran(
        sweep.Program("train.py"), config={"lr": sweep.grid_search([0.1, 0.2]), "fast": sweep.grid_search([True])}
    )
    assert [trial.last_result["loss"] for trial in analysis.trials] == [0.333, 0.667]
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [3, 3]
    assert analysis.trials[0].last_result["epoch"] == 2
    assert not (place / "model.txt").exists()
    for trial, lr in zip(analysis.trials, ("0.1", "0.2"), strict=True):
        directory = Path(analysis.experiment_path, trial.trial_id)
        assert (directory / "work" / "model.txt").read_text() == lr
        assert (directory / "command.txt").read_text() == f"python train.py --lr={lr} --fast\n"
    said = output_of(analysis)
    where = os.path.realpath(Path(analysis.experiment_path, analysis.trials[0].trial_id, "work"))
    assert f"path {where} part beside" in said
    assert "/train.py path" in said


def test_the_same_script_as_a_child_process_gives_the_same(place: Path) -> None:
    program = sweep.Program([sys.executable, "train.py", "--lr", "{lr}"], fresh=True)
    analysis = ran(program, config={"lr": sweep.grid_search([0.1, 0.2])})
    assert [trial.last_result["loss"] for trial in analysis.trials] == [0.333, 0.667]
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [3, 3]


@pytest.mark.parametrize("how", [{"engine": "inline"}, {"start_method": "spawn"}], ids=["inline", "spawn"])
def test_a_script_runs_where_there_is_no_fork(place: Path, how: dict[str, Any]) -> None:
    analysis = ran(sweep.Program("train.py"), config={"lr": 0.1}, **how)
    assert analysis.trials[0].last_result["loss"] == 0.333
    assert os.getcwd() == str(place)


def test_what_a_program_saves_comes_with_its_reports_and_a_failed_trial_goes_on_from_it(place: Path) -> None:
    script = SCRIPT.replace("        print(f", "        if begin == 0 and step == 2: sys.exit(7)\n        print(f")
    (place / "train.py").write_text(script)
    analysis = ran(sweep.Program("train.py"), config={"steps": 4}, max_failures=1)
    trial = analysis.trials[0]
    assert trial.status == "TERMINATED"
    # The state of step 3 was saved, and not reported: it went on from that of the last report.
    assert [round(one["loss"], 3) for one in analysis.trial_dataframes[trial.trial_id].to_dict("records")] == [
        1.0,
        0.5,
        0.333,
        0.25,
    ]
    assert trial.last_result["training_iteration"] == 4


def test_a_script_that_ends_itself_past_threads_that_hang_has_finished(place: Path) -> None:
    hang = "import os, threading, time\nthreading.Thread(target=time.sleep, args=[600]).start()\n"
    (place / "left.py").write_text(hang + "print('loss: 3')\nprint('loss: 2', end='')\nos._exit(0)\n")
    analysis = ran(sweep.Program("left.py"))
    assert analysis.trials[0].status == "TERMINATED"
    assert analysis.trials[0].last_result["loss"] == 2
    (place / "left.py").write_text(hang + "if not os.fork():\n    os._exit(0)\nprint('loss: 3')\nos._exit(5)\n")
    with pytest.raises(TrialsFailed, match="exit code 5"):
        ran(sweep.Program("left.py"), name="t")
    (place / "left.py").write_text(hang + "os._exit(0)\n")
    with pytest.raises(TrialsFailed, match="without a value of 'loss'"):
        ran(sweep.Program("left.py"), name="u")


def test_a_program_that_ends_with_a_status_fails_with_its_last_lines(place: Path) -> None:
    (place / "train.py").write_text("import sys\nprint('all went wrong', file=sys.stderr)\nsys.exit(3)\n")
    with pytest.raises(TrialsFailed, match="train ended with status 3: all went wrong"):
        ran(sweep.Program("train.py"))


def test_a_program_without_the_metric_fails_and_says_what_it_gave(place: Path) -> None:
    with pytest.raises(TrialsFailed, match=r"without a value of 'acc'\. It gave 'loss' \(text\)"):
        ran(sweep.Program("train.py"), metric="acc")


def test_a_shell_script_gets_its_values_intact_and_its_variables(place: Path) -> None:
    text = '#!/bin/sh\nprintf "%s\\n" "$1" > got; echo \'{"loss": 1.5}\'; echo \'{"loss": 0.5}\' >> $SWEEP_REPORT\n'
    (place / "run.sh").write_text(text)
    (place / "run.sh").chmod(0o755)
    odd = "a b'c\"d $HOME\n-x"
    analysis = ran(sweep.Program(["./run.sh", "{word}"]), config={"word": odd})
    directory = Path(analysis.experiment_path, analysis.trials[0].trial_id)
    assert (directory / "work" / "got").read_text().startswith(odd + "\n")
    assert json.loads((directory / "config.json").read_text()) == {"word": odd}
    assert shlex.split((directory / "command.txt").read_text()) == ["./run.sh", odd]
    assert analysis.trials[0].last_result["loss"] in (0.5, 1.5)


def test_workers_are_started_as_one_group_of_which_the_first_is_read(place: Path) -> None:
    text = "import os, sys\nprint('loss', os.environ['RANK'], flush=True)\nopen('rank' + os.environ['RANK'], 'w')\n"
    (place / "ddp.py").write_text(text.replace("'loss'", "'loss:'"))
    analysis = ran(sweep.Program("ddp.py", workers=2))
    directory = Path(analysis.experiment_path, analysis.trials[0].trial_id, "work")
    assert analysis.trials[0].last_result["loss"] == 0
    assert (directory / "rank1").exists()
    assert analysis.trials[0].last_result["training_iteration"] == 1


def test_a_rank_that_fails_ends_its_group(place: Path) -> None:
    text = "import os, sys, time\nsys.exit(4) if os.environ['RANK'] == '1' else time.sleep(600)\n"
    (place / "ddp.py").write_text(text)
    with pytest.raises(TrialsFailed, match="rank 1 of 2 ended with status 4"):
        ran(sweep.Program("ddp.py", workers=2))


def test_nothing_of_a_stopped_command_is_left(place: Path) -> None:
    text = "trap '' TERM\nsleep 1000 & echo $! > pid\necho loss: 1\nsleep 1000\n"
    (place / "run.sh").write_text(text)
    analysis = ran(sweep.Program(["sh", "run.sh"]), stop={"training_iteration": 1})
    assert analysis.trials[0].last_result["loss"] == 1
    pid = int(Path(analysis.experiment_path, analysis.trials[0].trial_id, "work", "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("trian.py", r"no program 'trian.py'.*Did you mean 'train.py'"),
        ("trian", r"no program 'trian'"),
        (["trian.py"], r"no program 'trian.py'.*Did you mean 'train.py'"),
        (["./data.txt"], r"is not executable"),
        ([], r"command is empty"),
        ([sys.executable, "nowhere.py"], r"no file .*nowhere.py"),
        ("python train.py --lr 1", r"Expected a script, or a list such as \['python', 'train.py'"),
    ],
)
def test_a_program_that_cannot_be_run_is_refused_before_anything_starts(place: Path, command: Any, said: str) -> None:
    (place / "data.txt").write_text("")
    with pytest.raises(ConfigError, match=said):
        sweep.Program(command)


def test_each_trial_has_its_own_config_file_and_the_users_stays_as_it_is(place: Path) -> None:
    (place / "conf.yaml").write_text("lr: 0.1 # the rate\n")
    (place / "conf.py").write_text("print('loss:', open('conf.yaml').read().split()[1])\n")
    program = sweep.Program("conf.py", config_file="conf.yaml")
    analysis = ran(program, config={"lr": sweep.grid_search([0.2, 0.3])})
    assert [trial.last_result["loss"] for trial in analysis.trials] == [0.2, 0.3]
    assert (place / "conf.yaml").read_text() == "lr: 0.1 # the rate\n"
    with pytest.raises(ConfigError, match=r"has no key 'lrr'. Did you mean 'lr'"):
        ran(program, config={"lrr": 1}, name="t")


def test_a_config_file_may_be_toml(place: Path) -> None:
    (place / "conf.toml").write_text("lr = 0.1\n")
    (place / "conf.py").write_text("print('loss:', open('conf.toml').read().split()[2])\n")
    analysis = ran(sweep.Program("conf.py", config_file="conf.toml"), config={"lr": 0.2})
    assert analysis.trials[0].last_result["loss"] == 0.2


def test_a_script_that_was_edited_is_read_anew_by_the_next_run(place: Path) -> None:
    program = sweep.Program("train.py")
    ran(program, config={"lr": 0.1})
    (place / "train.py").write_text(SCRIPT.replace('"--lr"', '"--rate", dest="lr"'))
    assert ran(program, config={"rate": 0.2}, name="t").trials[0].last_result["loss"] == 0.667


def test_experiments_beside_the_script_are_not_shown_in_each_other(place: Path) -> None:
    ran(sweep.Program("train.py"), storage_path=".")
    analysis = ran(sweep.Program("train.py"), storage_path=".", name="t")
    shown = Path(analysis.experiment_path, analysis.trials[0].trial_id, "work").iterdir()
    assert sorted(path.name for path in shown if path.name != "__pycache__") == ["model.txt", "part.py", "train.py"]


def test_only_a_trial_that_came_to_its_end_says_that_it_gave_the_metric_once(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = {"config": {"lr": sweep.grid_search([0.2, 0.1])}, "scheduler": "asha", "verbose": 1, "mode": "max"}
    ran(sweep.Program("train.py"), stop={"training_iteration": 1}, **many)
    (place / "once.py").write_text("print('loss: 1')\n")
    assert "at its end" not in "".join(capsys.readouterr())
    ran(sweep.Program("once.py"), scheduler="asha", verbose=1, name="t")
    assert "".join(capsys.readouterr()).count("gave the metric once, at its end") == 1


def test_what_stands_around_a_program_may_name_its_config_file(place: Path) -> None:
    (place / "conf.yaml").write_text("lr: 0.1\n")
    program = sweep.Program(
        ["sh", "-c", "cat up"],
        config_file="conf.yaml",
        setup=["sh", "-c", "sed s/lr/loss/ $0 > tmp; mv tmp up; sleep 1000", "{config_file}"],
        ready=["test", "-e", "up"],
        teardown=["cp", "{config_file}", "down"],
    )
    analysis = ran(program, config={"lr": 0.2})
    directory = Path(analysis.experiment_path, analysis.trials[0].trial_id, "work")
    assert analysis.trials[0].last_result["loss"] == 0.2
    assert (directory / "down").read_text() == "lr: 0.2\n"


def test_a_script_in_a_fork_is_given_a_port_and_its_last_line_needs_no_end(place: Path) -> None:
    text = (
        "import os, sys\nopen('port', 'w').write(sys.argv[1] + os.environ['MASTER_PORT'])\nprint('loss: 3', end='')\n"
    )
    (place / "port.py").write_text(text)
    analysis = ran(sweep.Program(["port.py", "{port}"]))
    port = Path(analysis.experiment_path, analysis.trials[0].trial_id, "work", "port").read_text()
    assert analysis.trials[0].last_result["loss"] == 3
    assert 1024 < int(port[: len(port) // 2]) == int(port[len(port) // 2 :])


def test_a_file_of_the_users_is_copied_first_however_many_others_were_written(place: Path) -> None:
    (place / "model.txt").write_text("mine")
    text = "for i in range(1001):\n    open(str(i), 'w').close()\nopen('model.txt', 'w').write('theirs')\n"
    (place / "many.py").write_text(f"{text}print('loss: 1')\n")
    ran(sweep.Program("many.py"))
    assert (place / "model.txt").read_text() == "mine"


def test_of_a_table_that_a_script_adds_to_only_what_it_adds_counts(place: Path) -> None:
    (place / "results.csv").write_text("lr,loss\n1,0.001\n")
    (place / "add.py").write_text(
        "import argparse; parser = argparse.ArgumentParser(); parser.add_argument('--lr')\n"
        "with open('results.csv', 'a') as file: file.write(parser.parse_args().lr + ',0.5\\n')\n"
    )
    (trial,) = ran(sweep.Program("add.py"), config={"lr": 2}).trials
    assert (trial.last_result["loss"], trial.last_result["training_iteration"]) == (0.5, 1)
    assert (place / "results.csv").read_text() == "lr,loss\n1,0.001\n"


def test_a_file_of_the_users_is_copied_before_torch_writes_it_whenever_it_was_imported(place: Path) -> None:
    (place / "model.pth").write_text("mine")
    (place / "torch").mkdir()
    (place / "torch" / "__init__.py").write_text("from torch.serialization import save\nimport torch.more\n")
    (place / "torch" / "more.py").write_text("")
    text = "import os\ndef save(obj, f):\n    os.system(f'echo theirs > {f}')\n"  # as torch: where no hook sees it
    (place / "torch" / "serialization.py").write_text(text)
    (place / "save.py").write_text("import torch\ntorch.save(1, 'model.pth')\nprint('loss: 1')\n")
    analysis = ran(sweep.Program("save.py"))
    saved = Path(analysis.experiment_path, analysis.trials[0].trial_id, "work", "model.pth")
    assert (saved.read_text(), (place / "model.pth").read_text()) == ("theirs\n", "mine")


def test_a_report_that_came_with_time_takes_no_file_that_the_script_is_writing(place: Path) -> None:
    (place / "slow.py").write_text(
        "import os, sys, time\n"
        "path = os.path.join(os.environ['SWEEP_CHECKPOINT_DIR'], 'state')\n"
        "if os.path.exists(path): sys.exit(print('state', open(path).read()[-3:]))\n"
        "print('loss: 1')\n"
        "with open(path, 'w') as file:\n"
        "    for _ in range(12): print('.' * 99, file=file, flush=True), time.sleep(0.05)\n"
        "    file.write('end')\n"
        "sys.exit(1)\n"
    )
    assert "state end" in output_of(ran(sweep.Program("slow.py"), max_failures=1))


def test_an_unknown_parameter_is_refused_with_the_nearest_name(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"no parameter 'lrr'.*did you mean 'lr'"):
        ran(sweep.Program("train.py"), config={"lrr": 0.1})


def test_what_two_trials_write_in_one_directory_is_named_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"lr": sweep.grid_search([0.1, 0.2, 0.3])}
    ran(sweep.Program("train.py", isolate=False), config=config, verbose=1)
    said = capsys.readouterr()
    assert (said.out + said.err).count(f"have written the same file: {place / 'model.txt'}") == 1


def test_a_server_under_test_is_started_awaited_and_ended(place: Path) -> None:
    (place / "server.sh").write_text("sleep 0.3; echo 3 > up; sleep 1000 & echo $! > server_pid; wait")
    (place / "client.sh").write_text("echo score: $(cat up)")
    program = sweep.Program(
        ["sh", "client.sh"],
        setup=["sh", "server.sh"],
        ready=["test", "-e", "up"],
        teardown=["sh", "-c", "echo over > down"],
    )
    analysis = ran(program, metric="score")
    directory = Path(analysis.experiment_path, analysis.trials[0].trial_id, "work")
    assert analysis.trials[0].last_result["score"] == 3
    assert (directory / "down").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((directory / "server_pid").read_text()), 0)


LOGS_THEN_SAVES = """\
import json, os
directory = os.environ["SWEEP_CHECKPOINT_DIR"]
state = os.path.join(directory, "state.json")
begin = json.load(open(state)) if os.path.exists(state) else 1
for epoch in range(begin, 6):
    for half in range(2):
        print(f"epoch {epoch}: loss {1 / (2 * epoch + half):.6f}")
        if epoch == 3 and half == 0 and begin == 1:
            raise SystemExit(7)
    json.dump(epoch + 1, open(state, "w"))
"""


def test_a_step_that_was_reported_and_not_saved_is_not_reported_again(place: Path) -> None:
    (place / "train.py").write_text(LOGS_THEN_SAVES)
    analysis = ran(sweep.Program("train.py"), max_failures=1)
    (trial,) = analysis.trials
    frame = analysis.trial_dataframes[trial.trial_id]
    assert frame["epoch"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert frame["loss"].tolist() == [round(1 / number, 6) for number in range(2, 12)]
    assert frame["training_iteration"].tolist() == list(range(1, 11))


def test_steps_that_begin_anew_with_each_epoch_are_all_reported(place: Path) -> None:
    (place / "train.py").write_text(LOGS_THEN_SAVES.replace("epoch {epoch}:", "step {half}:"))
    analysis = ran(sweep.Program("train.py"), max_failures=1)
    frame = analysis.trial_dataframes[analysis.trials[0].trial_id]
    assert frame["step"].tolist()[-4:] == [0, 1, 0, 1]


def test_what_a_server_that_does_not_get_ready_has_left_is_torn_down(place: Path) -> None:
    program = sweep.Program(
        ["sh", "-c", "echo score: 1"],
        setup=["sh", "-c", "exit 3"],
        ready=["test", "-e", "up"],
        teardown=["sh", "-c", "echo over > down"],
        isolate=False,
    )
    with pytest.raises(TrialsFailed, match="setup ended with status 3"):
        ran(program, metric="score")
    assert (place / "down").exists()


@pytest.mark.slow
def test_population_based_training_continues_programs_from_the_checkpoints_of_others(place: Path) -> None:
    scheduler = sweep.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": sweep.uniform(0.1, 1)},
        quantile_fraction=0.5,
        synch=True,
    )
    analysis = ran(
        sweep.Program("train.py"),
        config={"lr": sweep.uniform(0.1, 1), "steps": 8},
        num_samples=2,
        scheduler=scheduler,
        resources_per_trial={"cpu": 0.5},
    )
    assert all(trial.last_result["training_iteration"] == 8 for trial in analysis.trials)
    assert analysis.trials[0].config["lr"] != analysis.trials[1].config["lr"]
    for trial in analysis.trials:
        assert analysis.trial_dataframes[trial.trial_id]["epoch"].tolist()[-1] == 7
    assert "attempt 2" in output_of(analysis)
