"""Which checkpoints of a trial may be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.core.trial import CheckpointRef

__all__ = ["Kept", "expendable"]


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
