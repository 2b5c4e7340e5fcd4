"""Which checkpoints may be deleted: those that retention no longer wants and that nothing refers to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweep.core.messages import CloneTrial, ExitKind
from sweep.core.trial import CheckpointRef, Trial, evolve


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint that exists and the score it was reported with: larger is better, -inf for NaN or none."""

    ref: CheckpointRef
    score: float = 0.0


def expendable(kept: Sequence[Kept], num_to_keep: int | None, by_score: bool) -> list[Kept]:
    """Return what retention no longer wants, in the order it was saved.

    Args:
        kept: the trial's checkpoints, oldest first.
        num_to_keep: how many to keep; None keeps all.
        by_score: keep the best rather than the latest. The latest is kept in any case, in addition: the trial would
            continue from it.
    """
    if num_to_keep is None or len(kept) <= num_to_keep:
        return []
    if not by_score:
        return list(kept[:-num_to_keep])
    ranked = sorted(range(len(kept)), key=lambda i: (kept[i].score, i), reverse=True)
    wanted = {*ranked[:num_to_keep], len(kept) - 1}
    return [item for i, item in enumerate(kept) if i not in wanted]


def without(lost: Collection[str], trial: Trial, kept: Mapping[str, Sequence[Kept]]) -> Trial:
    """Return a trial with the checkpoint that it continues from when its own is among those that are lost.

    That is the newest that is kept of the trial that saved the lost one, which is another one's for a clone; else its
    own newest; else none, and the trial begins anew.

    Args:
        lost: paths of checkpoints that are gone or damaged.
    """
    if trial.checkpoint is None or trial.checkpoint.path not in lost:
        return trial
    owner = trial.checkpoint.owner
    left = [item.ref for one in (trial.id, owner) for item in kept.get(one, ()) if item.ref.path not in lost]
    ref = left[-1] if left else None
    count = ref.count if ref is not None else 0
    return evolve(trial, checkpoint=ref, count=count, judged_to=trial.judged_to if owner == trial.id else count)


class CheckpointLedger:
    """Count what refers to which checkpoint; nothing is given up for deletion while a trial refers to it.

    A trial refers to its latest checkpoint, to the one that its running attempt was started from, and to the one that
    it will continue from as a clone of another.
    """

    def __init__(self, kept: Mapping[str, Iterable[Kept]]) -> None:
        self._kept = {trial_id: list(items) for trial_id, items in kept.items()}
        self._references: Counter[str] = Counter()
        self._unwanted: dict[str, CheckpointRef] = {}  # by path: no longer wanted, but still referred to

    def add(self, trial_id: str, item: Kept, num_to_keep: int | None, by_score: bool) -> list[CheckpointRef]:
        """Enter a new checkpoint of a trial; returns those that may be deleted for it."""
        kept = [other for other in self._kept.get(trial_id, []) if other.ref.path != item.ref.path]
        kept.append(item)
        free = []
        for old in expendable(kept, num_to_keep, by_score):
            kept.remove(old)
            if self._references.get(old.ref.path):
                self._unwanted[old.ref.path] = old.ref
            else:
                free.append(old.ref)
        self._kept[trial_id] = kept
        return free

    def after_exit(self, trial: Trial, kind: ExitKind) -> Trial:
        """Return a trial whose attempt has ended so, with another checkpoint if that of the attempt proved damaged."""
        if kind is not ExitKind.DAMAGED or trial.started_from is None:
            return trial
        damaged = trial.started_from
        for owner in {damaged.owner, trial.id}:
            self._kept[owner] = [item for item in self._kept.get(owner, ()) if item.ref.path != damaged.path]
        return without({damaged.path}, trial, self._kept)

    def replace(self, old: Trial | None, new: Trial) -> list[CheckpointRef]:
        """Follow a trial that changed; returns what was only waiting for its last reference."""
        before, after = _references(old), _references(new)
        if before == after:
            return []
        self._references.update(after)
        self._references.subtract(before)
        free = []
        for path in before:
            if self._references[path] <= 0:
                del self._references[path]
                if path in self._unwanted:
                    free.append(self._unwanted.pop(path))
        return free


def _references(trial: Trial | None) -> list[str]:
    if trial is None:
        return []
    clone = trial.pending.checkpoint if isinstance(trial.pending, CloneTrial) else None
    return [ref.path for ref in (trial.checkpoint, trial.started_from, clone) if ref is not None]
