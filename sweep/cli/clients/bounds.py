"""What holds agents to their place: one storage, one directory of scripts, a budget."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweep.errors import ConfigError, ExperimentError
from sweep.record.layout import DATABASE
from sweep.record.reader import ExperimentReader, list_experiments


@dataclass
class Bounds:
    """A storage and a directory of scripts, both without links in their paths, and what may be spent.

    Attributes:
        programs: None: no script is run, and nothing is changed.
        most_trials, most_s: budget of all sweeps in the storage together: trials, and seconds of driving.
    """

    storage: Path
    programs: Path | None = None
    most_trials: int | None = None
    most_s: float | None = None

    def experiments(self) -> list[Path]:
        """Return the directories of the sweeps in the storage; not what is linked into it."""
        return [path for path in list_experiments(self.storage) if (path / DATABASE).resolve() == path / DATABASE]

    def reader(self, name: str) -> ExperimentReader:
        known = [path.name for path in self.experiments()]
        if name not in known:
            raise ExperimentError(f"there is no sweep {name!r}. Known: {', '.join(known[-20:]) or 'none'}.")
        return ExperimentReader(self.storage / name)

    def script(self, program: str) -> str:
        path = ((self.programs or self.storage) / program).resolve()
        is_inside = self.programs is not None and path.is_relative_to(self.programs)
        if not is_inside or path.suffix != ".py" or not path.is_file():
            raise ConfigError(f"{program!r} is no script below {self.programs}; see `programs`. Nothing was done.")
        return str(path)

    def afford(self, changed: ExperimentReader | None, trials: int | None, seconds: float | None) -> None:
        """Refuse a sweep of so many trials and seconds that would, with all others, go beyond the budget."""
        for most, asked, what in ((self.most_trials, trials, "trials"), (self.most_s, seconds, "time")):
            if most is None:
                continue
            if asked is None or asked < 0:
                raise ConfigError(f"there is a budget, so say how much this may take: give {what}. Nothing was done.")
            taken = 0.0
            for reader in map(ExperimentReader, self.experiments()):
                if changed is None or reader.root != changed.root:
                    is_time, plan = what == "time", reader.plan()
                    made = reader.driven_s() if is_time else len(reader.trials())
                    planned = plan.time_budget_s if is_time else plan.num_trials
                    taken += made if reader.state() == "ended" else max(made, most if planned is None else planned)
            if taken + asked > most:
                left = f"{max(0, most - taken):g} of {most:g} {'trials' if what == 'trials' else 's'} are left"
                raise ConfigError(f"beyond the budget: {left}, and it would take {asked:g}. Nothing was done.")
