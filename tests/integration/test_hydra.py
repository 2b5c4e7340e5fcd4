"""The plugin of Hydra: apps as people write them, run by Hydra's own command line with `hydra/sweeper=sweep`."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import sweep

omegaconf = pytest.importorskip("omegaconf")
pytest.importorskip("hydra")
pytestmark = pytest.mark.slow

HEAD = """
import json, os, sys, time
from pathlib import Path
import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
"""
# Each job leaves a line in `jobs.jsonl`, so that a test sees what ran, how often and where.
APP = (
    HEAD
    + """
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    job = HydraConfig.get()
    if OmegaConf.is_missing(job.job, "num"):  # run alone
        sys.exit(0)
    with open("jobs.jsonl", "a") as file:
        print(json.dumps([job.job.num, job.job.id, job.runtime.output_dir, cfg.lr, cfg.opt.name]), file=file)
    time.sleep(cfg.sleep)
    if cfg.opt.name == cfg.fails:
        raise RuntimeError("too steep")
    return (cfg.lr - 0.03) ** 2 + cfg.opt.extra


if __name__ == "__main__":
    main()
"""
)
CONFIGS = {
    "config.yaml": "defaults: [{opt: adam}, _self_]\nlr: 0.1\nsleep: 0\nfails: none\ntext: null\nunused: {a: 1}\n",
    "opt/adam.yaml": "name: adam\nextra: 0\n",
    "opt/sgd.yaml": "name: sgd\nextra: 1\n",
}
QUIET = "+hydra.sweeper.verbose=0"


@pytest.fixture
def app(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes an app and its configs into an empty directory."""

    def write(text: str = APP, configs: Mapping[str, str] = CONFIGS) -> Path:
        for name, content in configs.items():
            path = tmp_path / "conf" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        path = tmp_path / "app.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def start(app: Path, *overrides: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(app), "-m", "hydra/sweeper=sweep", *overrides]
    return subprocess.Popen(
        command, cwd=app.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    )


def run(app: Path, *overrides: str, code: int = 0, **more: Any) -> str:
    """Sweep an app to its end, and return what was printed."""
    process = start(app, *overrides, **more)
    printed, _ = process.communicate(timeout=100)
    assert process.returncode == code, printed
    return printed


def jobs(app: Path) -> list[Any]:
    path = app.parent / "jobs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def sweep_directories(app: Path) -> list[Path]:
    return sorted((app.parent / "multirun").glob("*/*"))


def trials(app: Path) -> list[Any]:
    (database,) = (app.parent / "sweep_results").glob("*/sweep.db")
    return sweep.ExperimentAnalysis(str(database.parent)).trials


def results(app: Path) -> Any:
    (path,) = (app.parent / "multirun").glob("*/*/optimization_results.yaml")
    return omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.load(path))


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# --- ranges ---


def domain_of(text: str, *, is_grid: bool = False) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from hydra_plugins.hydra_sweep_sweeper import _domain

    return _domain(OverridesParser.create().parse_override(text), is_grid)[0]


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("x=1,2.5,null", sweep.choice([1, 2.5, "null"])),
        ("x=choice(adam,sgd)", sweep.choice(["adam", "sgd"])),
        ("x=choice(true,false)", sweep.choice([True, False])),
        ("x='a,b',c d", sweep.choice(["'a,b'", r"c\ d"])),
        ("x=[1,2],[3]", sweep.choice(["[1,2]", "[3]"])),
        ("x={a:1},{a:2}", sweep.choice(["{a:1}", "{a:2}"])),
        ("x=sort(3,1,2)", sweep.choice([1, 2, 3])),
        ("x=range(1,6)", sweep.randint(1, 6)),
        ("x=range(1,6,2)", sweep.choice([1, 3, 5])),
        ("x=range(0,1,0.25)", sweep.choice([0.0, 0.25, 0.5, 0.75])),
        ("x=interval(0,1)", sweep.uniform(0.0, 1.0)),
        ("x=int(interval(1,8))", sweep.randint(1, 9)),
        ("x=tag(log,interval(1e-5,1e-1))", sweep.loguniform(1e-5, 1e-1)),
        ("x=tag(log,int(interval(1,64)))", sweep.lograndint(1, 65)),
        ("x=tag(kind,interval(0,2))", sweep.uniform(0.0, 2.0)),
    ],
)
def test_each_range_of_hydras_grammar_has_its_domain(text, domain):
    assert repr(domain_of(text)) == repr(domain)


def test_lists_are_grids_for_the_grid_search_and_intervals_are_refused_there():
    from hydra.errors import CompactHydraException

    assert domain_of("x=range(1,4)", is_grid=True) == {"grid_search": [1, 2, 3]}
    with pytest.raises(CompactHydraException, match="no grid can be made of an interval"):
        domain_of("x=interval(0,1)", is_grid=True)


# --- a sweep ---


def test_a_sweep_has_the_directories_of_a_multirun_and_prints_the_best_job_as_a_command(app):
    path = app()
    overrides = ["lr=tag(log,interval(1e-3,1e-1))", "opt=adam,sgd", "text=the text", "hydra.sweeper.n_trials=8"]
    printed = run(path, *overrides, "hydra.sweeper.seed=1", QUIET)

    ran = jobs(path)
    assert sorted(number for number, *_ in ran) == list(range(8))
    assert {lr for *_, lr, _ in ran} == {trial.config["lr"] for trial in trials(path)}
    (directory,) = sweep_directories(path)
    assert all(one[1:3] == [f"app_{one[0]}", str(directory / str(one[0]))] for one in ran)
    for number in range(8):
        assert {"app.log", ".hydra"} == {one.name for one in (directory / str(number)).iterdir()}
        assert (directory / str(number) / ".hydra" / "overrides.yaml").read_text().startswith("- text=the text\n- lr=")
    assert (directory / "multirun.yaml").exists()

    best = min(((lr - 0.03) ** 2 + (name == "sgd"), lr, name) for *_, lr, name in ran)
    assert results(path) == {"name": "sweep", "best_value": best[0], "best_params": {"lr": best[1], "opt": best[2]}}
    command = shlex.split(printed.splitlines()[-1])
    assert command == ["python", str(path), "text=the text", f"lr={best[1]}", f"opt={best[2]}"]
    subprocess.run([sys.executable, *command[1:]], cwd=path.parent, check=True)


def test_lists_alone_are_run_as_hydra_runs_them(app):
    path = app()
    overrides = ["lr=0.1,0.03", "opt=glob(*)", "text='a,b',c d,null", "+new=[1],[2,x]", "~unused.a", "++unused.c=3"]
    run(path, *overrides, QUIET)
    (swept,) = sweep_directories(path)
    ran = [path.parent / "multirun" / "theirs" / str(number) for number in range(24)]
    command = [sys.executable, str(path), "-m", *overrides, "hydra.sweep.dir=multirun/theirs"]
    subprocess.run(command, cwd=path.parent, check=True, stdout=subprocess.DEVNULL)
    texts = [
        sorted((one / ".hydra" / "config.yaml").read_text() for one in found) for found in (swept.glob("[0-9]*"), ran)
    ]
    assert len(texts[0]) == 24
    assert texts[0] == texts[1]


def test_ranges_may_stand_in_the_config_and_the_command_line_wins(app):
    params = "hydra:\n  sweeper:\n    params: {lr: 'interval(0.5, 0.6)', opt: 'adam,sgd'}\n    n_trials: 4\n"
    defaults = "defaults: [{opt: adam}, {override hydra/sweeper: sweep}, _self_]\n"
    text = CONFIGS["config.yaml"].partition("\n")[2]
    path = app(configs={**CONFIGS, "config.yaml": defaults + text + params})
    run(path, "opt=sgd", QUIET)
    assert len(jobs(path)) == 4
    assert all(0.5 <= lr < 0.6 and name == "sgd" for *_, lr, name in jobs(path))


def test_several_returned_values_are_several_objectives(app):
    path = app(APP.replace("return (", "return cfg.lr, ("))
    run(path, "lr=0.01,0.03,0.05", "hydra.sweeper.direction=[minimize,minimize]", QUIET)
    assert results(path)["solutions"] == [
        {"params": {"lr": 0.01}, "values": [0.01, pytest.approx(0.0004)]},
        {"params": {"lr": 0.03}, "values": [0.03, 0]},
    ]


def test_a_returned_dict_is_reported_and_one_of_its_keys_is_the_metric(app):
    path = app(APP.replace("return ", "return {'acc': cfg.lr, 'size': 3} #"))
    run(path, "lr=0.01,0.03,0.05", "hydra.sweeper.metric=acc", "hydra.sweeper.direction=maximize", QUIET)
    assert results(path)["best_params"] == {"lr": 0.05}
    assert all(trial.last_result["size"] == 3 for trial in trials(path))


def test_a_job_that_returns_nothing_can_be_swept_when_nothing_is_optimised(app):
    path = app(APP.replace("return ", "None #"))
    assert "Best" not in run(path, "lr=0.01,0.03", "hydra.sweeper.direction=null", QUIET)
    assert [trial.status for trial in trials(path)] == ["TERMINATED"] * 2
    assert "reported" in run(path, "lr=0.01,0.03,0.04,0.05", "hydra.sweeper.storage_path=other", QUIET, code=1)


def test_a_scheduler_acts_on_what_a_job_reports(app):
    body = "for epoch in range(9):\n        sweep.report(loss=cfg.lr + 1 / (epoch + 1))\n    return None #"
    path = app("import sweep\n" + APP.replace("return ", body))
    scheduler = ["hydra.sweeper.scheduler=asha", "hydra.sweeper.scheduler_options={max_t: 9, grace_period: 1}"]
    run(path, "lr=range(9)", "hydra.sweeper.metric=loss", *scheduler, QUIET)
    steps = [trial.last_result["training_iteration"] for trial in trials(path)]
    assert max(steps) == 9
    assert min(steps) < 9


def test_each_job_sees_its_own_gpu(app):
    body = "print(os.environ['CUDA_VISIBLE_DEVICES'], file=open(f'{cfg.lr}', 'w'))\n    return "
    path = app("import sweep\nsweep.init(num_cpus=4, num_gpus=2)\n" + APP.replace("return ", body))
    run(path, "lr=1,2,3,4", "sleep=0.5", "hydra.sweeper.resources_per_trial.gpu=1", QUIET)
    assert {(path.parent / str(number)).read_text().strip() for number in (1, 2, 3, 4)} == {"0", "1"}


# --- what an app has ---


def test_jobs_have_the_classes_resolvers_and_schemas_of_the_app_and_its_neighbours(app):
    text = (
        HEAD
        + """
from dataclasses import dataclass, field
from hydra.core.config_store import ConfigStore
import neighbour
OmegaConf.register_new_resolver("twice", lambda x: 2 * x)

class Net:
    def __init__(self, width): self.width = width

@dataclass
class Config:
    net: dict = field(default_factory=lambda: {"_target_": "__main__.Net", "width": "${twice:${width}}"})
    width: int = 1

ConfigStore.instance().store(name="config", node=Config)

@hydra.main(version_base=None, config_name="config")
def main(cfg: Config):
    net = hydra.utils.instantiate(cfg.net)
    assert type(net) is Net and OmegaConf.get_type(cfg) is Config, (type(net), OmegaConf.get_type(cfg))
    assert sys.modules["__main__"].Net is Net
    return neighbour.doubled(net.width)

if __name__ == "__main__":
    main()
"""
    )
    path = app(text, {})
    (path.parent / "neighbour.py").write_text("def doubled(x):\n    return 2 * x\n")
    run(path, "width=3,4", QUIET)
    assert results(path) == {"name": "sweep", "best_value": 12, "best_params": {"width": 3}}
    run(path, "width=a,4", "hydra.sweeper.storage_path=other", QUIET, code=1)  # as the schema says


def test_an_app_in_a_package_is_swept_as_a_module(app):
    path = app()
    package = path.parent / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    path.rename(package / "train.py")
    (path.parent / "conf").rename(package / "conf")
    command = [sys.executable, "-m", "pack.train", "-m", "hydra/sweeper=sweep", "lr=0.1,0.03", QUIET]
    ended = subprocess.run(command, cwd=path.parent, capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "\tpython -m pack.train lr=0.03", ended


def test_a_job_may_change_into_its_directory_and_has_its_variables(app):
    body = "Path(os.environ['MARK']).touch()\n    assert '-m' in sys.argv\n    return "
    path = app(APP.replace("return ", body))
    run(
        path,
        "lr=0.1,0.03",
        "hydra.job.chdir=true",
        "+hydra.job.env_set={MARK: mark}",
        "hydra.sweep.subdir=lr-${lr}",
        QUIET,
    )
    (directory,) = sweep_directories(path)
    assert {one.parent.name for one in directory.glob("*/mark")} == {"lr-0.1", "lr-0.03"}


def test_an_app_that_is_not_swept_does_not_import_sweep(app):
    path = app(APP.replace("return ", "assert 'sweep' not in sys.modules\n    return "))
    subprocess.run([sys.executable, str(path), "-m", "lr=1,2"], cwd=path.parent, check=True)


# --- ends ---


def test_other_jobs_go_on_when_one_fails_and_the_end_says_so(app):
    path = app()
    printed = run(path, "lr=0.03,0.1", "opt=adam,sgd", "fails=sgd", QUIET, code=1)
    assert "TrialsFailed: 2 of 4 trials failed" in printed
    assert "RuntimeError: too steep" in printed
    assert "Traceback" not in printed
    assert len(jobs(path)) == 4
    assert results(path)["best_params"] == {"lr": 0.03, "opt": "adam"}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["lr=interval(0,1)", "opt=adm,sgd"], "Could not find 'opt/adm'"),
        (["lr=interval(0,1)", "rl=1,2"], "rl"),
        (["lr=interval(0,1)", "hydra.sweeper.search_alg=tpee"], "Did you mean 'tpe'?"),
        (["lr=interval(0,1)", "hydra.sweeper.scheduler=ash"], "Did you mean 'asha'?"),
        (["lr=interval(0,1)", "hydra.sweeper.direction=up"], "expected 'min' or 'max'"),
        (["lr=interval(0,1)", "hydra.sweeper.n_trials=many"], "num_samples"),
        (["lr=interval(0,1)", "hydra.sweeper.resume=true"], "hydra.sweeper.name"),
        (["lr=interval(0,1)", "+hydra.sweeper.nname=x"], "Did you mean 'name'?"),
        (["lr=interval(1,0)"], "lower=1.0 is above upper=0.0"),
    ],
)
def test_mistakes_are_said_before_the_first_job_without_a_traceback(app, overrides, said):
    path = app()
    printed = run(path, *overrides, code=1)
    assert said in printed
    assert "Traceback" not in printed
    assert not jobs(path)


def test_a_sweep_that_was_killed_goes_on_and_runs_nothing_twice_that_had_ended(app):
    path = app()
    overrides = [
        "lr=interval(0,1)",
        "opt=adam,sgd",
        "sleep=0.2",
        "hydra.sweeper.n_trials=12",
        "hydra.sweeper.name=mine",
    ]
    process = start(path, *overrides)
    wait_for(lambda: len(jobs(path)) >= 6)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ended = {trial.number for trial in trials(path) if trial.status == "TERMINATED"}
    assert 0 < len(ended) < 12

    assert "already" in run(path, *overrides, code=1)
    run(path, *overrides, "hydra.sweeper.resume=true")
    numbers = [number for number, *_ in jobs(path)]
    assert set(numbers) == set(range(12))
    assert all(numbers.count(number) == 1 for number in ended)
    homes = {Path(where).parent for _, _, where, *_ in jobs(path)}
    assert len(homes) == 1
    assert (homes.pop() / "optimization_results.yaml").exists()


def test_ctrl_c_ends_a_sweep_in_order_and_the_command_line_continues_it(app):
    path = app()
    process = start(path, "lr=interval(0,1)", "sleep=0.3", "hydra.sweeper.n_trials=8", "hydra.sweeper.name=mine")
    wait_for(lambda: len(jobs(path)) >= 3)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert "resume" in printed
    assert "Traceback" not in printed
    code = "import sys; from sweep.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "resume", "mine"]
    subprocess.run(command, cwd=path.parent, check=True, stdout=subprocess.DEVNULL, timeout=100)
    assert {number for number, *_ in jobs(path)} == set(range(8))


def test_two_sweeps_beside_each_other_in_one_directory_do_not_meet(app):
    path = app()
    overrides = ["lr=0.1,0.2,0.3", "sleep=0.2", QUIET]
    processes = [start(path, *overrides, f"hydra.sweep.dir=multirun/{name}/x") for name in "ab"]
    for process in processes:
        printed, _ = process.communicate(timeout=100)
        assert process.returncode == 0, printed
    assert len({where for _, _, where, *_ in jobs(path)}) == 6
    assert len(list((path.parent / "sweep_results").glob("*/sweep.db"))) == 2


def test_a_config_for_hydras_optuna_sweeper_works_unchanged(app):
    settings = "direction: maximize\n    n_trials: 4\n    n_jobs: 1\n    study_name: mine\n    storage: null\n"
    sampler = (
        "    sampler: {_target_: optuna.samplers.RandomSampler, seed: 3}\n    params: {lr: 'interval(0.5, 0.6)'}\n"
    )
    defaults = "defaults: [{opt: adam}, {override hydra/sweeper: optuna}, _self_]\n"
    text = defaults + CONFIGS["config.yaml"].partition("\n")[2] + f"hydra:\n  sweeper:\n    {settings}{sampler}"
    path = app(configs={**CONFIGS, "config.yaml": text})
    assert "searcher optuna (RandomSampler)" in run(path)
    assert {number for number, *_ in jobs(path)} == {0, 1, 2, 3}
    assert results(path)["best_params"]["lr"] == max(lr for *_, lr, _ in jobs(path))
