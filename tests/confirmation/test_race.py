"""A race drops who cannot win any more, whatever order its trials end in, and goes on where it was."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from searchers.errors import SearchError, SearchExhausted, SearchWaits
from sweep.confirmation import REPEATS
from sweep.confirmation.race import Race, of_mean, standing, t_tail

NAN = math.nan
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "confirm.py"


def raced(rows: list[list[float]], repeats: int = 5) -> tuple[list[int], dict[int, int], bool]:
    now = standing([dict(enumerate(row)) for row in rows], repeats)
    return now.alive, now.dropped, now.is_over


@pytest.mark.slow
def test_tails_and_intervals_of_students_t_are_those_of_scipy():
    from scipy import stats

    for df in range(1, 13):
        for t in (-1.5, 0.0, 0.3, 2.0, 12.0):
            assert t_tail(t, df) == pytest.approx(stats.t.sf(t, df), abs=1e-12)
    values = [1.0, 2.0, 4.0, 3.5]
    known = stats.ttest_1samp(values, 0.0)
    bounds = known.confidence_interval(0.95)
    assert of_mean(values) == pytest.approx((2.625, bounds.low, bounds.high, known.pvalue), rel=1e-9)
    assert of_mean([0.0, 0.0]) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[], []], ([0, 1], {}, False)),
        ([[1.0, 1.1], [9.0, 9.1]], ([0, 1], {}, False)),  # nobody is dropped after two
        ([[1.0, 1.1, 0.9], [9.0, 9.1, 8.8]], ([0], {1: 3}, True)),
        ([[1.0, 1.1, 0.9], [9.0, 9.1, 8.8], [1.1, 0.9, 1.0]], ([0, 2], {1: 3}, False)),
        ([[1.0, NAN, 0.9], [9.0, 9.1, 8.8]], ([1], {0: 2}, True)),
        ([[NAN], [9.0, 9.1]], ([1], {0: 1}, False)),  # who is left has three runs all the same
        ([[NAN], [NAN]], ([], {0: 1, 1: 1}, True)),
        ([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0]], ([0, 2], {1: 3}, True)),  # a tie that nothing breaks
        ([[1.0, 1.2, 1.0]], ([0], {}, False)),  # alone it runs for its interval
        ([[1.0, 1.2, 1.0, 1.3, 1.1]], ([0], {}, True)),
    ],
)
def test_who_is_left_and_after_which_repeat_others_were_dropped(rows, expected):
    assert raced(rows) == expected


def test_a_difference_that_all_pairs_share_is_seen_through_noise_that_configs_have_in_common():
    noise = [3.0, -5.0, 8.0]
    rows = [[base + shared + own for shared, own in zip(noise, (0.01, -0.01, 0.0), strict=True)] for base in (0.0, 0.5)]
    rows[1][0] += 0.02
    assert raced(rows)[:2] == ([0], {1: 3})


def value(config: dict[str, Any], repeat: int) -> float:
    return config["x"] * 0.05 + 0.1 * math.sin(100 * config["x"] + 7 * repeat)


def play(race: Race, told: list[Any], stop_after: int | None = None) -> list[Any]:
    """Run trials one at a time, and note each; `told` come first, from the record."""
    done = []
    for trial_id, config, state, result in told:
        race.retell(trial_id, config, state)
        race.on_trial_complete(trial_id, result)
        done.append((trial_id, config, state, result))
    while stop_after is None or len(done) < stop_after:
        trial_id = f"{len(done):05d}"
        config = race.suggest(trial_id)
        if not isinstance(config, dict):
            return done
        state = race.suggestion_state(trial_id)
        result = {"value": value(config, state["repeat"])}
        race.on_trial_complete(trial_id, result)
        done.append((trial_id, config, state, result))
    return done


def race_of(configs: dict[int, Any], repeats: int, mode: str = "min", **more: Any) -> Race:
    race = Race(configs, repeats, **more)
    assert race.set_search_properties("value", mode, {})
    return race


def new_race() -> Race:
    return race_of({n: {"x": n, "seed": 3} for n in range(5)}, 9, seeds={("seed",): 3})


@pytest.mark.parametrize("killed_after", [0, 1, 7, 15, 16, 18])
def test_a_race_that_is_told_its_record_goes_on_as_if_it_had_never_stopped(killed_after):
    whole = play(new_race(), [])
    assert 15 < len(whole) < 45
    again, new = new_race(), new_race()
    assert play(again, whole[:killed_after]) == play(new, []) == whole
    assert [again.seeded_as(one) for one, *_ in whole] == [new.seeded_as(one) for one, *_ in whole]
    assert [new.seeded_as(one) for one in ("00000", "00004", "00005", "99999")] == ["00000", "00000", "00005", "99999"]


def test_all_configs_of_a_repeat_have_the_same_seed_and_repeats_have_others():
    seeds = [(state["repeat"], config["seed"]) for _, config, state, _ in play(new_race(), [])]
    assert set(seeds) == {(repeat, 4 + repeat) for repeat in range(max(seeds)[0] + 1)}


def test_three_repeats_begin_at_once_and_the_fourth_when_all_have_ended():
    race, names = race_of({7: {}, 8: {}}, 5, "max"), []
    for _ in range(6):
        names.append(race.ask()[0])
    with pytest.raises(SearchWaits):
        race.ask()
    for place, name in enumerate(names):
        race.tell(name, {"value": [0.5, 0.6, 0.7, 0.5, 0.6, 0.75][place]})
    assert race.suggestion_state(race.ask()[0])["repeat"] == 3
    assert race.standing().alive == [0, 1]


def test_in_mode_max_the_highest_wins_and_what_is_no_finite_number_has_failed():
    race = race_of({1: {}, 2: {}, 3: {}}, 3, "max")
    worth = {1: [0.1, 0.2, 0.15], 2: [0.9, 0.8, 0.85], 3: [math.inf, 1.0, 1.0]}
    for _ in range(7):
        trial_id, _ = race.ask()
        state = race.suggestion_state(trial_id)
        race.tell(trial_id, {"value": worth[state["config"]][state["repeat"]]})
    with pytest.raises(SearchExhausted):
        race.ask()
    assert race.standing().dropped == {2: 1}
    assert max(race.runs[2].values()) < min(race.runs[1].values())


def test_one_repeat_is_refused():
    with pytest.raises(SearchError, match="repeats"):
        Race({1: {}}, 1)


@pytest.fixture(scope="module")
def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_of_confirm", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["steps", "random", "random, half of the noise in common", "level"])
def test_the_truly_best_of_five_close_configs_is_picked_with_few_of_the_runs_of_plain_repeats(benchmark, name):
    right, worse, runs, fewest, often = benchmark.compared(1000, REPEATS, seed=7, **benchmark.FAMILIES[name])
    assert right >= 0.95
    assert worse <= 0.05
    assert often >= right
    assert runs <= 0.6 * min(fewest, REPEATS) * benchmark.CONFIGS


@pytest.mark.slow
def test_the_benchmark_counts_the_runs_that_a_race_makes(benchmark):
    for task, _ in benchmark.tasks(40, seed=3):
        race, made = race_of({n: {} for n in range(5)}, 12), 0
        while not race.standing().is_over:
            trial_id, _ = race.ask()
            state = race.suggestion_state(trial_id)
            race.tell(trial_id, {"value": task[state["config"], state["repeat"]]})
            made += 1
        now = race.standing()
        assert made == sum(now.dropped.get(one, now.rounds) for one in range(5))
