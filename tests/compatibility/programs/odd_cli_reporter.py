"""CLIReporter with chosen columns, given as a list, as a dict and added later."""

import contextlib
import io

from ray import tune
from ray.tune import CLIReporter


def objective(config):
    for i in range(3):
        tune.report(loss=config["a"] * i, acc=i, extra=1)


reporter = CLIReporter(
    metric_columns={"loss": "my loss", "training_iteration": "iters"},
    parameter_columns=["a"],
    max_progress_rows=10,
    max_report_frequency=1,
    sort_by_metric=True,
    metric="loss",
    mode="min",
)
reporter.add_metric_column("acc")
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    tune.run(
        objective,
        config={"a": tune.grid_search([1, 2]), "hidden": 3},
        progress_reporter=reporter,
        resources_per_trial={"cpu": 1},
        verbose=2,
    )
text = printed.getvalue()
assert "my loss" in text and "iters" in text and "acc" in text, text
assert "TERMINATED" in text
assert "extra" not in text.split("Result for")[0]


class TrialTerminationReporter(CLIReporter):
    def __init__(self):
        super().__init__()
        self.num_terminated = 0

    def should_report(self, trials, done=False):
        old = self.num_terminated
        self.num_terminated = len([t for t in trials if t.status == "TERMINATED"])
        return self.num_terminated > old


mine = TrialTerminationReporter()
tune.run(objective, config={"a": tune.grid_search([1, 2])}, progress_reporter=mine)
assert mine.num_terminated == 2
