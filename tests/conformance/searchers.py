"""The contract of every searcher, as tests: subclass `SearcherContract`, implement `make`, and pytest runs them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from searchers import EXHAUSTED, NOT_NOW, Searcher, choice, loguniform, qrandint, sample_from, uniform
from searchers.base import Signal

SPACE: dict[str, Any] = {
    "lr": loguniform(1e-4, 1e-1),
    "model": {"width": qrandint(8, 64, 8), "kind": choice(["mlp", "conv"])},
    "momentum": uniform(0.0, 0.9),
    "double": sample_from(lambda config: config["model"]["width"] * 2),
    "epochs": 3,
}
NUM_SAMPLES = 24


def loss_of(config: Mapping[str, Any]) -> float:
    return float(math.log10(config["lr"]) ** 2 + config["model"]["width"] / 64 + config["momentum"])


def is_inside(config: Mapping[str, Any]) -> bool:
    """Whether a config is one of `SPACE`, as plain Python values."""
    return (
        {"lr", "model", "momentum", "double", "epochs"} <= config.keys()
        and type(config["lr"]) is float
        and 1e-4 <= config["lr"] <= 1e-1
        and type(config["model"]["width"]) is int
        and config["model"]["width"] in range(8, 65, 8)
        and config["model"]["kind"] in ("mlp", "conv")
        and 0.0 <= config["momentum"] <= 0.9
        and config["double"] == config["model"]["width"] * 2
        and config["epochs"] == 3
    )


class Recorder(Searcher):
    """Answer from a list, then with a config that names the trial, and write down what is heard."""

    def __init__(self, answers=(), metric="loss", mode="min") -> None:
        super().__init__(metric, mode)
        self.answers = list(answers)
        self.heard: list[tuple[Any, ...]] = []

    def suggest(self, trial_id):
        return self.answers.pop(0) if self.answers else {"id": trial_id}

    def suggestion_state(self, trial_id):
        return {"of": trial_id}

    def retell(self, trial_id, config, state):
        self.heard.append(("retell", trial_id, config, state))

    def on_trial_result(self, trial_id, result):
        self.heard.append(("result", trial_id, dict(result)))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.heard.append(("end", trial_id, result, error))

    def observe(self, config, result):
        self.heard.append(("observe", config, dict(result)))


class Session:
    """Drive a searcher as the engine does, three trials at a time, and keep the record that a restart is told."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.record: list[tuple[str, str, Any, Any]] = []
        self.configs: list[dict[str, Any]] = []
        self.open: list[str] = []

    def ask(self) -> dict[str, Any] | Signal:
        trial_id = f"t_{len(self.configs):05d}"
        answer = self.searcher.suggest(trial_id)
        if not isinstance(answer, Signal):
            state = json.loads(json.dumps(self.searcher.suggestion_state(trial_id)))
            self.record.append(("ask", trial_id, json.loads(json.dumps(answer)), state))
            self.configs.append(answer)
            self.open.append(trial_id)
        return answer

    def end(self, which: int) -> None:
        trial_id = self.open.pop(which)
        number = int(trial_id.rpartition("_")[2])
        result = {"loss": loss_of(self.configs[number]), "training_iteration": 1}
        outcome: tuple[dict[str, Any] | None, bool] = (result, False)
        if number % 7 == 3:
            outcome = (None, True)
        elif number % 7 == 5:
            outcome = ({"loss": math.nan, "training_iteration": 1}, False)
        self.searcher.on_trial_result(trial_id, result)
        self.record.append(("result", trial_id, result, None))
        self.searcher.on_trial_complete(trial_id, *outcome)
        self.record.append(("end", trial_id, *outcome))

    def run(self, num_trials: int) -> None:
        while len(self.configs) < num_trials:
            answer = self.ask() if len(self.open) < 3 else NOT_NOW
            if answer is EXHAUSTED:
                return
            if answer is NOT_NOW or len(self.open) == 3:
                self.end(len(self.configs) * 5 % len(self.open))

    def tell_again(self, searcher: Searcher, num_entries: int) -> Session:
        """Return the session of a new searcher that was told the first entries of this one's record."""
        session = Session(searcher)
        for entry in self.record[:num_entries]:
            match entry:
                case ("ask", trial_id, config, state):
                    searcher.retell(trial_id, config, state)
                    session.configs.append(config)
                    session.open.append(trial_id)
                case ("result", trial_id, result, _):
                    searcher.on_trial_result(trial_id, result)
                case ("end", trial_id, result, error):
                    searcher.on_trial_complete(trial_id, result, error)
                    session.open.remove(trial_id)
            session.record.append(entry)
        return session


_ended: dict[Any, Session] = {}


class SearcherContract:
    """What every searcher promises. Implement `make`; set `has_end` where `num_samples` ends the search."""

    space: dict[str, Any] = SPACE
    is_inside = staticmethod(is_inside)
    has_end = False

    def make(self) -> Searcher:
        """Return a new searcher, always built with the same arguments; without space, metric or mode."""
        raise NotImplementedError

    def ready(self, seed: int = 11) -> Searcher:
        searcher = self.make()
        assert searcher.set_search_properties("loss", "min", self.space, num_samples=NUM_SAMPLES, seed=seed)
        return searcher

    def session(self, seed: int = 11) -> Session:
        session = Session(self.ready(seed))
        session.run(NUM_SAMPLES)
        return session

    def ended(self) -> Session:
        """Return a session that is over, for those that only read it: the same for all tests of a searcher."""
        key = (type(self), getattr(self, "build", None))
        if key not in _ended:
            _ended[key] = self.session()
        return _ended[key]

    def test_configs_lie_inside_the_space(self) -> None:
        configs = self.ended().configs
        assert len(configs) == NUM_SAMPLES
        assert all(map(self.is_inside, configs))

    def test_a_config_belongs_to_its_caller(self) -> None:
        searcher = self.ready()
        first = searcher.suggest("a")
        before = json.dumps(first)
        first["model"]["width"] = "spoiled"
        first.clear()
        assert json.dumps(searcher.suggest("a")) == before

    def test_the_same_trial_gets_the_same_answer(self) -> None:
        searcher = self.ready()
        first = searcher.suggest("a")
        other = searcher.suggest("b")
        assert searcher.suggest("a") == first
        assert searcher.suggest("b") == other

    def test_equal_seeds_give_equal_searches(self) -> None:
        assert self.session().configs == self.ended().configs

    def test_other_seeds_give_other_searches(self) -> None:
        assert self.session(4).configs != self.ended().configs

    def test_a_restart_at_any_point_changes_nothing(self) -> None:
        whole = self.ended()
        for num_entries in (1, len(whole.record) // 2, len(whole.record) - 1):
            again = whole.tell_again(self.ready(), num_entries)
            again.run(NUM_SAMPLES)
            assert again.configs == whole.configs

    def test_a_retold_trial_keeps_its_config(self) -> None:
        whole = self.ended()
        again = whole.tell_again(self.ready(), 1)
        assert again.searcher.suggest("t_00000") == whole.configs[0]

    def test_what_is_exhausted_stays_exhausted(self) -> None:
        session = self.session()
        if self.has_end:
            while session.open:
                session.end(0)
            assert [session.searcher.suggest("late"), session.searcher.suggest("later")] == [EXHAUSTED, EXHAUSTED]
        else:
            assert session.searcher.suggest("late") is not EXHAUSTED

    def test_bad_ends_are_survived(self) -> None:
        searcher = self.ready()
        bad = [None, {}, {"loss": math.nan}, {"loss": math.inf}, {"loss": "text"}, {"other": 1}]
        for number, result in enumerate(bad):
            trial_id = f"bad{number}"
            assert not isinstance(searcher.suggest(trial_id), Signal)
            searcher.on_trial_result(trial_id, result or {})
            searcher.on_trial_complete(trial_id, result, error=number == 0)
            searcher.on_trial_complete(trial_id, result)  # a second time: heard before
        assert self.is_inside(searcher.suggest("good"))

    def test_unknown_trials_are_ignored(self) -> None:
        searcher = self.ready()
        searcher.on_trial_result("nobody", {"loss": 1.0, "training_iteration": 1})
        searcher.on_trial_complete("nobody", {"loss": 1.0})
        searcher.on_trial_complete("nobody", None, error=True)
        assert self.is_inside(searcher.suggest("a"))

    def test_the_number_of_trials_is_known_in_advance(self) -> None:
        searcher = self.ready()
        assert searcher.num_trials(NUM_SAMPLES) == NUM_SAMPLES
        assert searcher.num_trials(None) is None

    def test_a_restored_search_goes_on_where_the_saved_one_was(self, tmp_path: Any) -> None:
        def configs(searcher: Searcher, number: int, prefix: str) -> list[Any]:
            found = []
            for n in range(number):
                found.append(searcher.suggest(f"{prefix}{n}"))
                loss = math.nan if n % 5 == 4 else loss_of(found[-1])
                searcher.on_trial_complete(f"{prefix}{n}", {"loss": loss})
            return found

        saved, restored = self.make(), self.make()
        assert saved.set_search_properties("loss", "min", self.space, seed=11)
        configs(saved, 12, "t")
        saved.save(tmp_path / "state")
        restored.restore(str(tmp_path / "state"))
        assert restored.set_search_properties("loss", "min", self.space, seed=99)
        assert configs(restored, 4, "later") == configs(saved, 4, "later")

    def test_a_second_metric_is_a_collision(self) -> None:
        searcher = self.make()
        assert searcher.set_search_properties("loss", "min", self.space)
        assert not searcher.set_search_properties("accuracy", "min", self.space)
        assert not searcher.set_search_properties("loss", "max", self.space)
