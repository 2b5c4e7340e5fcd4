"""The one reader of the recorded facts: what it leaves out when it is asked to."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import sweep
from sweep.core.messages import Exited, Reported, Started, Suggested
from sweep.record.db import open_for_reading
from sweep.record.encoding import Opaque
from sweep.record.facts import read_facts


class Odd:
    pass


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    def train(config):
        for i in range(3):
            sweep.report({"loss": i})

    analysis = sweep.run(
        train,
        config={"x": sweep.uniform(0, 1), "array": np.arange(3), "odd": Odd},
        num_samples=3,
        stop={"training_iteration": 2},
        storage_path=tmp_path_factory.mktemp("storage"),
        engine="inline",
        verbose=0,
    )
    return Path(analysis.experiment_path) / "sweep.db"


def test_the_record_comes_whole_and_in_parts_that_fit_together(record):
    whole = list(read_facts(record))
    assert [fact.seq for fact in whole] == list(range(1, len(whole) + 1))
    assert [fact.seq for fact in read_facts(record, after=3, before=8)] == [4, 5, 6, 7]
    with closing(open_for_reading(record)) as connection:
        assert [fact.seq for fact in read_facts(connection, after=5)] == [fact.seq for fact in whole[5:]]
    assert all(fact.wall > 1e9 and fact.at < 1e9 for fact in whole)


def test_a_trial_kinds_of_events_and_all_but_plain_reports_can_be_asked_for(record):
    whole = list(read_facts(record))
    trial_id = next(fact.event.trial_id for fact in whole if isinstance(fact.event, Reported))
    of_one = list(read_facts(record, trial_id=trial_id))
    assert {fact.event.trial_id for fact in of_one} == {trial_id}
    ends = list(read_facts(record, kinds=(Started, Exited)))
    assert [type(fact.event) for fact in ends].count(Exited) == 3
    assert {type(fact.event) for fact in ends} == {Started, Exited}
    short = list(read_facts(record, with_results=False))
    reports = [fact for fact in short if isinstance(fact.event, Reported)]
    assert [fact.metrics for fact in reports] == [None] * 3  # the first of each two was answered as usual
    assert all(fact.caused for fact in reports)
    assert [fact.seq for fact in short if fact not in reports] == [
        fact.seq for fact in whole if not isinstance(fact.event, Reported)
    ]


def test_pickled_values_are_loaded_as_far_as_they_are_trusted(record):
    def first(**options):
        fact = next(fact for fact in read_facts(record, kinds=(Suggested,), **options))
        return fact.event.config

    assert first()["odd"] is Odd
    assert isinstance(first(trust=False)["array"], Opaque)
    config = first(trust="arrays")
    assert config["array"].tolist() == [0, 1, 2]
    assert isinstance(config["odd"], Opaque)
