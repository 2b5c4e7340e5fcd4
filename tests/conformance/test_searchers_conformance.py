"""Run the contract of `conformance/searchers.py` on every searcher."""

from __future__ import annotations

import optuna
import pytest
from conformance.searchers import SearcherContract

from searchers import (
    BasicVariantGenerator,
    BOHBSearch,
    ConcurrencyLimiter,
    GridSearch,
    OptunaSearch,
    RandomSearch,
    Repeater,
    Searcher,
    as_searcher,
)

# Whether `num_samples` ends the search, and how it is made.
SEARCHERS = {
    "RandomSearch": (True, lambda: RandomSearch()),
    "GridSearch": (True, lambda: GridSearch()),
    "BasicVariantGenerator": (True, lambda: BasicVariantGenerator(max_concurrent=3)),
    "BOHB": (False, lambda: BOHBSearch(budgets=[1], bohb_config={"random_fraction": 0.2})),
    "LimitedBOHB": (False, lambda: ConcurrencyLimiter(BOHBSearch(), max_concurrent=3)),
    "Tpe": (False, lambda: OptunaSearch()),
    "CmaEs": (False, lambda: OptunaSearch(sampler="cmaes")),
    "ConstrainedTpe": (False, lambda: OptunaSearch(constraints={"loss": 7})),
    "Qmc": (False, lambda: OptunaSearch(sampler="qmc")),
    "Nsga2": (False, lambda: OptunaSearch(sampler="nsgaii")),
    "Nsga3": (False, lambda: OptunaSearch(sampler="nsgaiii")),
    "OptunaRandom": (False, lambda: OptunaSearch(sampler="random")),
    "ClassOfASampler": (False, lambda: as_searcher(optuna.samplers.TPESampler)),
    "LimitedRandomSearch": (True, lambda: ConcurrencyLimiter(RandomSearch(), max_concurrent=3)),
    "BatchesOfTpe": (False, lambda: ConcurrencyLimiter(OptunaSearch(), max_concurrent=3, batch=True)),
    "RepeatedTpe": (False, lambda: Repeater(OptunaSearch(), repeat=3)),
    "LimitedRepeatedRandomSearch": (
        True,
        lambda: ConcurrencyLimiter(Repeater(RandomSearch(), repeat=2, set_index=False), max_concurrent=4),
    ),
}


@pytest.mark.parametrize("name", SEARCHERS)
class TestEverySearcher(SearcherContract):
    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.has_end, self.build = SEARCHERS[name]

    def make(self) -> Searcher:
        return self.build()
