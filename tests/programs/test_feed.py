"""What becomes a report of what a program logs and prints: sources, steps, copies."""

from __future__ import annotations

from typing import Any

from sweep.programs.feed import Feed


class Told:
    """Keeps the reports of a feed."""

    def __init__(self, metric: str = "loss", **how: Any) -> None:
        self.reports: list[dict[str, Any]] = []
        self.feed = Feed(metric, lambda values, is_late: self.reports.append(values), **how)

    def scalar(self, step: int, source: str = "tensorboard", **values: Any) -> None:
        self.feed.take(values, step, source, is_whole=False)


def test_a_dict_with_the_metric_is_a_report_at_once_with_the_latest_of_all_others() -> None:
    told = Told()
    told.feed.take({"lr": 0.1}, None, "wandb")
    assert told.reports == []
    told.feed.take({"loss": 2.0, "epoch": 0}, None, "wandb")
    assert told.reports == [{"lr": 0.1, "loss": 2.0, "epoch": 0}]


def test_scalars_of_a_step_are_one_report_made_when_it_has_what_the_step_before_had() -> None:
    told = Told()
    told.scalar(0, loss=2.0)
    told.scalar(0, acc=0.5)
    assert told.reports == []  # nobody knows yet what a step consists of
    told.scalar(1, loss=1.0)
    assert told.reports == [{"step": 0, "loss": 2.0, "acc": 0.5}]
    told.scalar(1, acc=0.6)
    assert told.reports[1:] == [{"step": 1, "loss": 1.0, "acc": 0.6}]


def test_a_file_that_repeats_the_step_that_is_being_collected_is_not_read_any_more() -> None:
    for is_whole in (True, False):
        told = Told()
        told.scalar(0, loss=2.0)
        told.feed.take({"loss": 2.0}, 0, "/runs/events.out.tfevents.1", is_whole=is_whole)
        assert told.reports == [{"step": 0, "loss": 2.0}]
        told.scalar(1, loss=1.0)
        assert told.reports[1:] == [{"step": 1, "loss": 1.0}]


def test_the_first_step_is_complete_after_some_silence() -> None:
    told = Told()
    told.scalar(0, loss=2.0)
    told.feed.tick()
    assert told.reports == []
    assert told.feed.deadline is not None
    told.feed.deadline = 0.0
    told.feed.tick()
    assert told.reports == [{"step": 0, "loss": 2.0}]
    assert told.feed.deadline is None


def test_values_of_batches_are_no_reports_and_their_latest_rides_along() -> None:
    told = Told("val loss")
    for epoch in range(2):
        for batch in range(3):
            told.feed.line(f"train loss: {epoch}.{batch}")
        told.feed.line(f"epoch {epoch}: val loss: {2 - epoch}")
    told.feed.end()
    assert [(report["val loss"], report["train loss"], report["epoch"]) for report in told.reports] == [
        (2.0, 0.2, 0),
        (1.0, 1.2, 1),
    ]


def test_a_better_source_takes_over_and_the_worse_one_is_not_asked_any_more() -> None:
    told = Told()
    told.feed.line("loss: 3.0")
    told.feed.end()
    told.feed.take({"loss": 2.0}, 1, "wandb")
    told.feed.line("loss: 2.0")
    told.feed.end()
    assert [report["loss"] for report in told.reports] == [3.0, 2.0]


def test_what_is_printed_and_logged_is_reported_once_where_a_library_is_in_use() -> None:
    told = Told(has_library=lambda: True)
    for value in (3.0, 2.0):
        told.feed.line(f"loss: {value}")
        told.feed.take({"loss": value}, None, "wandb")
    told.feed.end()
    assert [report["loss"] for report in told.reports] == [3.0, 2.0]


def test_what_is_only_printed_is_reported_although_a_library_is_in_use() -> None:
    told = Told(has_library=lambda: True)
    for value in (3.0, 2.0, 1.0):
        told.feed.line(f"loss: {value}")
    told.feed.end()
    assert [report["loss"] for report in told.reports] == [3.0, 2.0, 1.0]


def test_a_metric_is_found_under_a_name_that_is_spelt_a_little_differently() -> None:
    told = Told("val_loss")
    told.feed.take({"val/loss": 1.0}, None, "wandb")
    assert told.reports == [{"val_loss": 1.0}]


def test_what_is_no_number_is_no_value_of_the_metric() -> None:
    told = Told()
    told.feed.take({"loss": "low"}, None, "wandb")
    told.feed.take({"loss": True}, None, "wandb")
    assert told.reports == []
    told.feed.take({"loss": float("nan")}, None, "wandb")
    assert len(told.reports) == 1


def test_without_a_metric_whatever_comes_is_reported_and_a_flood_of_prints_is_not() -> None:
    told = Told("")
    told.feed.take({"a": 1}, None, "wandb")
    told.feed.take({"a": 2}, None, "wandb")
    assert told.reports == [{"a": 1}, {"a": 2}]
    flood = Told("")
    for number in range(1000):
        flood.feed.line(f"loss: {number}")
    assert 1 <= len(flood.reports) < 100


def test_the_number_on_the_last_line_counts_where_nothing_else_was_given() -> None:
    told = Told("seconds")
    told.feed.line("done")
    told.feed.line("12.5")
    told.feed.end()
    assert told.reports == [{"seconds": 12.5}]


def test_the_error_of_a_program_without_the_metric_names_what_it_gave_and_its_last_lines() -> None:
    told = Told("accuracy")
    told.feed.line("epoch 1: loss 0.5")
    told.feed.take({"f1": 0.2}, None, "wandb")
    told.feed.line("goodbye")
    said = told.feed.why_nothing()
    assert "'loss' (text)" in said
    assert "'f1' (wandb)" in said
    assert "goodbye" in said


def test_a_progress_bar_counts_at_its_end_and_once() -> None:
    told = Told()
    for epoch in range(2):
        for done in (10, 50, 100, 100):
            loss = 200 - 100 * epoch - done
            told.feed.line(f"Epoch {epoch}: {done}%|###| {done}/100 [00:01<00:00, 9.9it/s, loss={loss}]")
    told.feed.end()
    assert [report["loss"] for report in told.reports] == [100, 0]


def test_bars_too_fast_to_be_seen_on_their_way_count_once_each() -> None:
    told = Told()
    for epoch in range(3):
        told.feed.line(f"Epoch {epoch}:   0%|   | 0/3 [00:00<?, ?it/s]")
        for _ in range(2):
            told.feed.line(f"Epoch {epoch}: 100%|###| 3/3 [00:00<00:00, 99it/s, loss={3 - epoch}]")
    told.feed.end()
    assert [report["loss"] for report in told.reports] == [3, 2, 1]


def test_a_bar_over_batches_inside_does_not_make_that_over_epochs_count_twice() -> None:
    told = Told()
    for epoch in range(3):
        for _ in range(2):
            told.feed.line(f"epochs: {epoch * 33}%|## | {epoch}/3 [00:00<00:00, 3.98epoch/s, loss={3 - epoch}]")
            told.feed.line("batches:   0%|   | 0/7 [00:00<?, ?batch/s]")
    told.feed.end()
    assert [report["loss"] for report in told.reports] == [3, 2, 1]


def test_what_keras_adds_at_the_end_of_an_epoch_counts() -> None:
    for metric in ("loss", "val_loss"):
        told = Told(metric)
        for epoch in (1, 2, 3):
            told.feed.line(f"Epoch {epoch}/3")
            for batch in (1, 10):
                told.feed.line(f"{batch}/10 ━━━━ 0s 2ms/step - loss: 0.5")
            told.feed.line(f"10/10 ━━━━ 0s 2ms/step - loss: 0.5 - val_loss: 0.{epoch}")
        told.feed.end()
        assert [report["epoch"] for report in told.reports] == [1, 2, 3]
    assert [report["val_loss"] for report in told.reports] == [0.1, 0.2, 0.3]


def test_what_is_given_whole_completes_what_came_before_of_its_step() -> None:
    told = Told()
    for step in (1, 2):
        told.feed.take({"loss": 1 / step}, None, "wandb", is_whole=False)  # commit=False
        told.feed.take({"acc": step / 4}, None, "wandb")
        assert told.reports[step - 1 :] == [{"loss": 1 / step, "acc": step / 4}]
    told.feed.take({"loss": 0.1}, 3, "wandb", is_whole=False)
    told.feed.take({"acc": 1.0}, 4, "wandb")
    assert told.reports[2:] == [{"loss": 0.1, "acc": 0.5, "step": 3}]


def test_of_two_libraries_the_first_that_gives_the_metric_makes_the_reports() -> None:
    told = Told()
    for epoch in range(3):
        told.feed.take({"loss": 3.0 - epoch}, None, "wandb")
        told.feed.take({"loss": 3.0 - epoch, "lr": 0.1}, epoch, "tensorboard", is_whole=False)
    told.feed.end()
    assert [report["loss"] for report in told.reports] == [3.0, 2.0, 1.0]
    assert told.reports[-1]["lr"] == 0.1


def test_scalars_with_a_loggers_own_step_are_one_step() -> None:
    told = Told()
    for name in ("loss", "acc"):
        told.feed.take({name: 0.5, "trainer/global_step": 10}, None, "wandb", is_whole=False)
    told.feed.end()
    assert told.reports == [{"loss": 0.5, "acc": 0.5, "trainer/global_step": 10}]


def test_a_step_that_a_logger_names_in_its_own_way_counts_steps() -> None:
    told = Told()
    told.feed.take({"loss": 1.0, "trainer/global_step": 10.0}, None, "wandb")
    assert told.reports == [{"loss": 1.0, "trainer/global_step": 10}]
