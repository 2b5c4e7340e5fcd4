"""Run the contract of `conformance/searchers.py` on every searcher."""

from __future__ import annotations

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
)


class TestRandomSearch(SearcherContract):
    has_end = True

    def make(self) -> Searcher:
        return RandomSearch()


class TestGridSearch(SearcherContract):
    has_end = True

    def make(self) -> Searcher:
        return GridSearch()


class TestBasicVariantGenerator(SearcherContract):
    has_end = True

    def make(self) -> Searcher:
        return BasicVariantGenerator(max_concurrent=3)


class TestBOHB(SearcherContract):
    def make(self) -> Searcher:
        return BOHBSearch(budgets=[1], bohb_config={"random_fraction": 0.2})


class TestLimitedBOHB(SearcherContract):
    def make(self) -> Searcher:
        return ConcurrencyLimiter(BOHBSearch(), max_concurrent=3)


class TestTpe(SearcherContract):
    def make(self) -> Searcher:
        return OptunaSearch()


class TestCmaEs(SearcherContract):
    def make(self) -> Searcher:
        return OptunaSearch(sampler="cmaes")


class TestQmc(SearcherContract):
    def make(self) -> Searcher:
        return OptunaSearch(sampler="qmc")


class TestNsga2(SearcherContract):
    def make(self) -> Searcher:
        return OptunaSearch(sampler="nsgaii")


class TestNsga3(SearcherContract):
    def make(self) -> Searcher:
        return OptunaSearch(sampler="nsgaiii")


class TestOptunaRandom(SearcherContract):
    def make(self) -> Searcher:
        return OptunaSearch(sampler="random")


class TestLimitedRandomSearch(SearcherContract):
    has_end = True

    def make(self) -> Searcher:
        return ConcurrencyLimiter(RandomSearch(), max_concurrent=3)


class TestBatchesOfTpe(SearcherContract):
    def make(self) -> Searcher:
        return ConcurrencyLimiter(OptunaSearch(), max_concurrent=3, batch=True)


class TestRepeatedTpe(SearcherContract):
    def make(self) -> Searcher:
        return Repeater(OptunaSearch(), repeat=3)


class TestLimitedRepeatedRandomSearch(SearcherContract):
    has_end = True

    def make(self) -> Searcher:
        return ConcurrencyLimiter(Repeater(RandomSearch(), repeat=2, set_index=False), max_concurrent=4)
