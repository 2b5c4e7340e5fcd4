"""A storage of Optuna that shows experiments as they are at that moment, and can be read only."""

from __future__ import annotations

import copy
import threading
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from sweep.core.ranking import Objectives
from sweep.record.reader import ExperimentReader
from sweep.results.optuna_study import study_attributes
from sweep.results.optuna_trials import RecordedTrials

_METRICS = "study:metric_names"  # where Optuna keeps the names of a study's objectives


@dataclass(frozen=True)
class _Shown:
    """One experiment as a study."""

    reader: ExperimentReader
    name: str
    metrics: list[str]
    directions: list[StudyDirection]
    recorded: RecordedTrials
    lock: threading.Lock = field(default_factory=threading.Lock)

    def trials(self) -> list[FrozenTrial]:
        with self.lock:
            return self.recorded.trials()


class ExperimentStorage(BaseStorage):
    """Show experiments as studies: whoever asks gets what is committed by then.

    Nothing is copied: a call reads what was recorded since the one before. Whatever would change a study is refused.

    Args:
        experiments: a reader and the objectives of each.
    """

    def __init__(self, experiments: Sequence[tuple[ExperimentReader, Objectives]]) -> None:
        self._studies: list[_Shown] = []
        for reader, objectives in experiments:
            names = {study.name for study in self._studies}
            name = reader.name if reader.name not in names else f"{reader.name} ({reader.root})"
            directions = [
                StudyDirection.MINIMIZE if mode == "min" else StudyDirection.MAXIMIZE for _, mode in objectives
            ]
            recorded = RecordedTrials(reader, objectives)
            self._studies.append(_Shown(reader, name, [metric for metric, _ in objectives], directions, recorded))

    # --- studies ---

    def get_study_id_from_name(self, study_name: str) -> int:
        for index, study in enumerate(self._studies):
            if study.name == study_name:
                return index
        raise KeyError(f"there is no study {study_name!r}")

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._study(study_id).name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return list(self._study(study_id).directions)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return study_attributes(self._study(study_id).reader)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return {_METRICS: list(self._study(study_id).metrics)}

    def get_all_studies(self) -> list[FrozenStudy]:
        return [
            FrozenStudy(
                study_name=study.name,
                direction=None,
                directions=study.directions,
                user_attrs=self.get_study_user_attrs(index),
                system_attrs=self.get_study_system_attrs(index),
                study_id=index,
            )
            for index, study in enumerate(self._studies)
        ]

    # --- trials ---

    def get_trial(self, trial_id: int) -> FrozenTrial:
        for index in range(len(self._studies)):
            for trial in self.get_all_trials(index, deepcopy=False):
                if trial._trial_id == trial_id:
                    return copy.deepcopy(trial)
        raise KeyError(f"there is no trial {trial_id}")

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        trials = self._study(study_id).trials()
        if len(self._studies) > 1:
            trials = [self._renumbered(trial, study_id) for trial in trials]
        found = [trial for trial in trials if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def _renumbered(self, trial: FrozenTrial, study_id: int) -> FrozenTrial:
        """Return a trial with an id that none of another study has."""
        new = copy.copy(trial)
        new._trial_id = trial.number * len(self._studies) + study_id
        return new

    def _study(self, study_id: int) -> _Shown:
        if not 0 <= study_id < len(self._studies):
            raise KeyError(f"there is no study {study_id}")
        return self._studies[study_id]

    # --- what would change something ---

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("an experiment is shown here as it was recorded; nothing of it can be changed.")

    create_new_study = delete_study = set_study_user_attr = set_study_system_attr = _refuse
    create_new_trial = set_trial_param = set_trial_state_values = set_trial_intermediate_value = _refuse
    set_trial_user_attr = set_trial_system_attr = _refuse
