"""A population's history, replayed by one trial: the chain of a policy file, and where exactly the config changes."""

from __future__ import annotations

import json
import math
import random

import pytest
from conformance.schedulers import Told
from core.test_fuzz import NODES, Checker, WildEngine
from sweep_run import given_configs

from searchers.space import grid_search
from sweep.core.messages import CloneTrial, PauseTrial, ResumeTrial
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Resources
from sweep.core.sweep import Sweep
from sweep.core.trial import CheckpointRef, Status
from sweep.engines.simulator import Point
from sweep.errors import ConfigError, SweepError
from sweep.launch.drive import drive
from sweep.schedulers.pbt_policy import change_points
from sweep.schedulers.pbt_replay import PopulationBasedTrainingReplay
from sweep.simulation.virtual import simulate

TRIAL = "abcde_00000"


def line(target, source, at, old, new, target_at=99):
    return [target, source, target_at, at, old, new]


# As Ray Tune writes it: the original tags. Trial 2 took from 1 at 4, which had taken from 0 at 2.
CHAIN = [
    line("1_x=9", "0_x=1", 2, {"x": 1}, {"x": 2}),
    line("2_x=8", "1_x=9", 4, {"x": 2}, {"x": 3}),
]


def written(tmp_path, lines, text=None):
    path = tmp_path / "pbt_policy_abcde_00002.txt"
    path.write_text(text if text is not None else "".join(json.dumps(one) + "\n" for one in lines))
    return path


def told_of(path):
    told = Told(PopulationBasedTrainingReplay(path), 1)
    told.put(0, config={"x": 1})
    return told


# --- the chain -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (CHAIN, ({"x": 1}, [(2, {"x": 2}), (4, {"x": 3})])),
        (CHAIN[:1], ({"x": 1}, [(2, {"x": 2})])),
        # What the trial did before it gave itself up for one without a history is forgotten.
        ([*CHAIN, line("2_x=8", "5_x=7", 6, {"x": 7}, {"x": 6})], ({"x": 7}, [(6, {"x": 6})])),
        # A trial may take from the one that once took from it.
        (
            [*CHAIN, line("1_x=9", "2_x=8", 6, {"x": 3}, {"x": 4})],
            ({"x": 1}, [(2, {"x": 2}), (4, {"x": 3}), (6, {"x": 4})]),
        ),
        # Tags of trials that were changed before.
        (
            [
                line("1_x=9", "0_x=1", 2, {"x": 1}, {"x": 2}),
                line("2_x=8@perturbed[x=5]", "1_x=9@perturbed[x=2]", 4, {"x": 2}, {"x": 3}),
            ],
            ({"x": 1}, [(2, {"x": 2}), (4, {"x": 3})]),
        ),
    ],
)
def test_the_way_to_the_last_line_is_followed_back_through_the_sources(lines, expected):
    assert change_points([tuple(one) for one in lines]) == expected


def test_what_our_own_population_writes_is_read(tmp_path):
    exploit = line("1_x=9", "0_x=1", 2, {"x": 1, "f": math.sqrt}, {"x": 2, "f": math.sqrt})
    scheduler = PopulationBasedTrainingReplay(written(tmp_path, [], json.dumps(exploit, default=repr) + "\n"))
    told = scheduler.complete_config({"f": math.sqrt}, 0)
    assert told == {"x": 1, "f": math.sqrt}
    assert told["f"] is math.sqrt  # JSON cannot hold it


# --- in virtual time -------------------------------------------------------------------------------------------------


def adder(every):
    """Return a curve that adds x at each of eight steps; the total tells which config ran at which step."""

    def curve(config, count, state):
        total = state or 0.0
        for step in range(count + 1, 9):
            total += config["x"] * 10**step
            yield Point(1.0, {"total": total, "x": config["x"]}, bool(every) and step % every == 0, total)

    return curve


def replayed(path, *, every=1, **arguments):
    found = simulate(
        adder(every), metric="total", mode="max", scheduler=PopulationBasedTrainingReplay(path), **arguments
    )
    (trial,) = found.trials
    assert trial.status is Status.TERMINATED
    return trial, [(one.metrics["training_iteration"], one.metrics["x"]) for one in found.arrivals], found.notices


EXACT = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 3), (8, 3)]


@pytest.mark.parametrize("kind", ["saves with every report", "saves on demand"])
def test_the_config_changes_at_the_change_points_and_no_step_is_lost(tmp_path, kind):
    on_demand = kind == "saves on demand"
    trial, reports, notices = replayed(written(tmp_path, CHAIN), every=not on_demand, can_save_on_demand=on_demand)
    assert reports == EXACT
    assert trial.last_result["total"] == 333322110.0
    assert trial.config == {"x": 3}
    assert trial.attempt == 3
    assert (trial.failures, trial.losses, notices) == (0, 0, [])


def test_a_function_that_saves_seldom_changes_at_its_next_checkpoint(tmp_path):
    _, reports, _ = replayed(written(tmp_path, CHAIN), every=3)
    assert reports == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 3), (8, 3)]


def test_what_never_saves_keeps_its_config_and_that_is_said_once(tmp_path):
    _, reports, notices = replayed(written(tmp_path, CHAIN), every=0)
    assert reports == [(step, 1) for step in range(1, 9)]
    (notice,) = notices
    assert "cannot change the config of a trial that never saved" in notice
    assert "change points of the policy: 2, 4." in notice


@pytest.mark.parametrize(
    ("lines", "xs", "num_attempts"),
    [
        ([CHAIN[0], line("2_x=8", "1_x=9", 2, {"x": 2}, {"x": 5})], [1, 1, 5, 5, 5, 5, 5, 5], 2),
        ([line("1_x=9", "0_x=1", 0, {"x": 1}, {"x": 2}), CHAIN[1]], [2, 2, 2, 2, 3, 3, 3, 3], 2),
    ],
    ids=["two changes at one iteration are one", "it begins with a change before the first step"],
)
def test_changes_without_a_step_between_them_cost_no_attempt(tmp_path, lines, xs, num_attempts):
    trial, reports, _ = replayed(written(tmp_path, lines))
    assert [x for _, x in reports] == xs
    assert trial.attempt == num_attempts


def test_the_policy_is_laid_over_the_given_config(tmp_path):
    lines = [
        line("1", "0", 2, {"x": 1, "net": {"w": 1, "1": "a"}, "t": [1, 2]}, {"x": 2, "net": {"w": 2, "1": "a"}}),
    ]
    config = {"x": 7, "net": {"d": 5, 1: "a"}, "more": "kept", "t": (1, 2)}
    trial, reports, notices = replayed(written(tmp_path, lines), config=config)
    assert reports[:3] == [(1, 1), (2, 1), (3, 2)]
    assert trial.config == {"x": 2, "net": {"w": 2, "d": 5, 1: "a"}, "more": "kept", "t": (1, 2)}
    assert notices == ["the policy replaces what config gives as x."]


@pytest.mark.parametrize("more", [{"num_samples": 2}, {"config": {"y": grid_search([1, 2])}}])
def test_a_second_trial_is_an_error_that_says_what_to_do(tmp_path, more):
    with pytest.raises(SweepError, match=r"a second trial was added to a replay.*num_samples=1") as error:
        replayed(written(tmp_path, CHAIN), **more)
    assert isinstance(error.value.__cause__, ConfigError)


def test_a_trial_that_a_person_lets_run_again_is_no_second_one(tmp_path):
    told = told_of(written(tmp_path, CHAIN))
    told.scheduler.on_trial_add(told.trials[TRIAL])
    assert told.report(0) == ()


# --- decisions -------------------------------------------------------------------------------------------------------


def saved_at(count):
    return CheckpointRef(f"{TRIAL}/checkpoint_{count:06d}", count, count)


def test_from_a_checkpoint_that_is_there_it_continues_at_once_and_otherwise_it_is_paused(tmp_path):
    path = written(tmp_path, CHAIN)
    told = told_of(path)
    told.put(0, checkpoint=saved_at(1))
    assert told.report(0) == ()
    pause = PauseTrial(TRIAL, "changes its config as the policy did at training_iteration=2")
    assert told.report(0) == [pause]
    told.put(0, checkpoint=saved_at(2))
    assert told.report(0) == [CloneTrial(TRIAL, TRIAL, {"x": 2})]  # a step late: it goes back to the checkpoint
    told.put(0, config={"x": 2}, count=2)
    assert told.report(0) == ()
    told.put(0, config={"x": 1}, count=2)
    assert told.report(0) == [CloneTrial(TRIAL, TRIAL, {"x": 2})]  # whoever changed it back
    told.put(0, config={"x": 2})
    assert told.report(0) == [PauseTrial(TRIAL, "changes its config as the policy did at training_iteration=4")]


def test_what_is_paused_at_a_change_point_continues_with_the_next_config(tmp_path):
    told = told_of(written(tmp_path, CHAIN))
    for ref, config, expected in [
        (None, {"x": 1}, ResumeTrial(TRIAL)),
        (saved_at(1), {"x": 1}, ResumeTrial(TRIAL)),
        (saved_at(2), {"x": 1}, CloneTrial(TRIAL, TRIAL, {"x": 2})),
        (saved_at(3), {"x": 2}, ResumeTrial(TRIAL)),
        (saved_at(4), {"x": 2}, CloneTrial(TRIAL, TRIAL, {"x": 3})),
        (saved_at(9), {"x": 3}, ResumeTrial(TRIAL)),
    ]:
        told.put(0, status=Status.PAUSED, checkpoint=ref, config=config)
        assert told.scheduler.on_idle(told.trials) == [expected]
    told.put(0, checkpoint=saved_at(4), config={"x": 2}, is_by_person=True)
    assert told.scheduler.on_idle(told.trials) == []


def test_the_pause_of_a_person_comes_first(tmp_path):
    told = told_of(written(tmp_path, CHAIN))
    told.report(0)
    told.put(0, checkpoint=saved_at(2), pending=PauseTrial(TRIAL), is_by_person=True)
    assert told.report(0) == ()
    told.put(0, pending=None, is_by_person=False, attempt=2)
    assert told.report(0) == [CloneTrial(TRIAL, TRIAL, {"x": 2})]


@pytest.mark.parametrize("iteration", [None, "two", math.nan])
def test_a_result_without_an_iteration_decides_nothing(tmp_path, iteration):
    told = told_of(written(tmp_path, CHAIN))
    told.report(0)
    assert told.report(0, training_iteration=iteration) == ()


def test_what_the_policy_changes_is_known_and_searchers_that_learn_are_refused(tmp_path):
    lines = [line("1", "0", 2, {"x": 1, "n": {"w": 1}, "y": 0}, {"x": 2, "n": {"w": 5}, "y": 0})]
    scheduler = PopulationBasedTrainingReplay(written(tmp_path, lines))
    assert scheduler.mutated_paths == ("x", "n/w")
    with pytest.raises(ConfigError, match="the scheduler pbt_replay changes configs itself"):
        simulate(adder(1), metric="total", mode="max", scheduler=scheduler, search_alg="tpe")


# --- files that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no change of a config; expected a pbt_policy_<trial>.txt"),
        ("learning rate: 3", "holds no change of a config"),
        ("learning\nrate\n", "is no policy (Expecting value"),
        ('{"x": 1}\n', "is no policy (line 1 of a policy file is"),
        ("[1, 2, 3]\n", "expected a JSON list of six values"),
        ('["a", "b", 1, "two", {}, {}]\n', "line 1 of a policy file"),
        ('["a", "b", 1, -2, {}, {}]\n', "two tags, two iterations"),
        ('["a", "b", 1, true, {}, {}]\n', "line 1 of"),
        ('["a", "b", 1, 2, {}, null]\n', "line 1 of"),
        ('[0, "b", 1, 2, {}, {}]\n', "line 1 of"),
        (b"\xff\xfe\x00", "is no policy"),
        (None, "is no policy"),
    ],
)
def test_a_file_that_is_no_policy_is_an_error_that_names_it(tmp_path, content, words):
    path = tmp_path / "pbt_policy_abcde_00002.txt"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as error:
        PopulationBasedTrainingReplay(path)
    assert words in str(error.value)
    assert "pbt_policy_abcde_00002.txt" in str(error.value)


@pytest.mark.parametrize("given", ["", None, 3, ["a"]])
def test_what_is_no_path_is_an_error(given):
    with pytest.raises(ConfigError, match=r"expected the path of a pbt_policy_<trial>\.txt"):
        PopulationBasedTrainingReplay(given)


def test_a_path_may_begin_with_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path, CHAIN)
    assert PopulationBasedTrainingReplay("~/pbt_policy_abcde_00002.txt").state()[1] == {"x": 1}


# --- with an engine that loses, delays and kills whatever it may -----------------------------------------------------


def test_whatever_happens_to_the_trial_its_sweep_ends_clean(tmp_path):
    path = written(tmp_path, [line("1_x=9", "0_x=1", 1, {}, {"x": 2}), line("2_x=8", "1_x=9", 2, {"x": 2}, {"x": 3})])
    changed = 0
    for seed in range(80):
        rng = random.Random(seed)
        engine = WildEngine(rng, sweep_asks=seed % 3 == 0)
        engine.checkpoints = rng.choice([0, 0.3, 1])
        plan = Plan(num_trials=1, metric="m", mode="min", can_save_on_demand=rng.random() < 0.5, max_failures=2)
        packer = Packer(NODES)
        driven = Sweep(plan, PopulationBasedTrainingReplay(path), packer)
        checker = Checker(driven, packer)
        drive(driven, engine, given_configs([{"y": 1}]), checker, checker, request_of=lambda _: Resources())
        assert driven.done
        assert not packer.holders
        for trial in driven.trials.values():
            assert driven.ending is not None or trial.is_ended or trial.is_by_person, (seed, trial)
            assert trial.config["y"] == 1
            changed += trial.config.get("x") == 3
    assert changed > 10
