"""What a follower reads of a record: everything once and in order, in whatever pieces."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from made_experiment import MadeExperiment

from sweep.core.messages import Hook
from sweep.core.trial import CheckpointRef
from sweep.record.access import open_for_following
from sweep.record.following import (
    Began,
    Exited,
    Notified,
    Report,
    Started,
    config_of,
    has_news,
    last_report,
    read_rows,
)
from sweep.record.journal import Journal
from sweep.record.schema import last_seq


@pytest.fixture
def made(tmp_path: Path) -> MadeExperiment:
    found = MadeExperiment(tmp_path)
    trial = found.trial({"lr": 1})
    source = ["abcde_00009/checkpoint_000002", 2, 2, 1.0]
    found.event("Tick", at=0.5, commands=[["Start", trial, 2, None, {"lr": 2}, {}, source]])
    found.start(trial)
    found.report(trial, {"loss": 1})
    failed = [["Notify", "trial_recover", trial, 3, "starts again after: E"], ["Start", trial, 3, None, {"lr": 3}]]
    found.event("Exited", trial, {"exit": {"kind": "FAILED", "error": "E"}}, 3.0, failed)
    found.commit()
    return found


def test_everything_is_read_once_and_in_order_in_whatever_pieces(made: MadeExperiment) -> None:
    trial = "abcde_00000"
    Journal(made.root / "sweep.db").close()  # of this version
    with closing(open_for_following(made.root / "sweep.db")) as db:
        last = last_seq(db)
        lines, upto = read_rows(db, 0, last, 1000, with_reports=True)
        assert upto == last == made.seq
        rows = [line.row for line in lines]
        assert rows[0] == Began(trial, 2, {"lr": 2}, CheckpointRef("abcde_00009/checkpoint_000002", 2, 2, 1.0))
        assert rows[1] == Started(trial, 1)
        assert isinstance(rows[2], Report)
        assert rows[2].metrics()["loss"] == 1
        assert rows[3:] == [
            Exited(trial, "E"),
            Notified(Hook.RETRY, trial, 3, "starts again after: E"),
            Began(trial, 3, {"lr": 3}, None),
        ]
        assert [line.seq for line in lines] == [2, 3, 4, 5, 5, 5]
        for most in (1, 2, 3):
            found, at = [], 0
            while at < last:
                piece, at = read_rows(db, at, last, most, with_reports=True)
                found += piece
            assert found == lines
        without, _ = read_rows(db, 0, last, 1000, with_reports=False)
        assert without == [line for line in lines if not isinstance(line.row, Report)]
    made.close()


def test_what_is_news_and_what_is_known_of_a_trial(made: MadeExperiment) -> None:
    trial = "abcde_00000"
    Journal(made.root / "sweep.db").close()  # of this version
    with closing(open_for_following(made.root / "sweep.db")) as db:
        assert has_news(db, 0, with_reports=True)
        assert has_news(db, 3, with_reports=True)
        assert not has_news(db, 4, with_reports=True)
        assert has_news(db, 4, with_reports=False)
        assert not has_news(db, 5, with_reports=False)
        assert config_of(db, trial) == {"lr": 1}
        assert config_of(db, "nobody") == {}
        assert last_report(db, trial, 4) is None
        report = last_report(db, trial, 5)
        assert report is not None
        assert report["loss"] == 1
    made.close()
