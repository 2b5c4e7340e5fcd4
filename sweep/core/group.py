"""What the ranks of a training group do and how the group ends: decided from facts, without any I/O.

    rank    joined   reported(seq, shard)   merged(seq, path)   said(outcome)   gone(outcome)
    above   answered(seq, is_stop)
    time    tick

Each fact returns actions. Rank 0's reports are passed on upwards, and the answer to its k-th report goes to the k-th
report of every rank. Ranks wait for each other only at a report to which a rank attached a checkpoint: its shards are
merged by one of them first. The first failure in time ends the group; what it causes in other ranks is collateral.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sweep.core.trial import Outcome

START_ERROR = "GroupStartError"  # class of the errors that mean: the ranks did not find each other


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds.

    Attributes:
        start_s: until every rank has joined the group.
        barrier_s: ranks wait for others at a report with a checkpoint.
        hang_s: between two reports of a rank; None: for ever.
        settle_s: after the first failure, in which its true cause may still come to light.
        stop_s: for the other ranks to end, once one that was asked to stop has ended.
        dump_s: for the ranks to write down where they are.
        explain_s: until a wait is explained to the user.
    """

    start_s: float = 300.0
    barrier_s: float = 300.0
    hang_s: float | None = None
    settle_s: float = 0.1
    stop_s: float = 1.0
    dump_s: float = 1.0
    explain_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Joined:
    """All ranks are in the group: it has started."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Answer report `seq` of a rank; 0: it stops at its next. `path`: the checkpoint stored with it."""

    rank: int
    is_stop: bool
    seq: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass rank 0's report on, with the checkpoint that was merged for it."""

    seq: int
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """Say that a checkpoint belongs to report `seq`, which was passed on before."""

    seq: int
    path: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Have a rank, which waits in `report`, make one checkpoint of shards."""

    rank: int
    seq: int
    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explain:
    """Tell the user what the group waits for; empty: for nothing any more."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line into the log of rank 0."""

    text: str


@dataclass(frozen=True, slots=True)
class Dump:
    """Have every rank write its stacks into its log, and tell `seen` in which states they are."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Let the ranks end their processes: all have returned, so what rank 0 serves is not needed any more."""


@dataclass(frozen=True, slots=True)
class KillAll:
    """End every process of the group."""


Action = Joined | Tell | Forward | Late | Merge | Explain | Note | Dump | Dismiss | KillAll


class _Rank:
    """What is known of one rank."""

    __slots__ = ("is_gone", "is_joined", "last", "outcome", "reports", "shard", "waiting")

    def __init__(self, now: float) -> None:
        self.is_joined = False
        self.is_gone = False
        self.outcome: Outcome | None = None
        self.reports = 0
        self.waiting = 0  # the report that it waits in, 0: it runs
        self.shard = ""  # what it attached to that report
        self.last = now  # when it was last seen to get on

    @property
    def is_over(self) -> bool:
        return self.outcome is not None


class _Failure(NamedTuple):
    rank: int
    at: float
    is_death: bool
    outcome: Outcome


class GroupRules:
    """Decide what happens in one group, from its start to its end.

    Attributes:
        ending: how the group ended, once every process of it is gone; None before.
        is_joined: every rank has joined.
    """

    def __init__(self, size: int, limits: Limits, now: float, *, far: Collection[int] = ()) -> None:
        """Begin.

        Args:
            far: ranks whose words, and answers to them, may be held up on their way for any time.
        """
        self.ending: Outcome | None = None
        self.is_joined = False
        self._limits = limits
        self._began = now
        self._ranks = [_Rank(now) for _ in range(size)]
        self._failures: list[_Failure] = []
        self._cause: Outcome | None = None  # decided: the group fails with this
        self._is_failed = False  # it fails; with what is found once all is known
        self._settle_at: float | None = None
        self._stop_at: float | None = None
        self._dumped_at: float | None = None
        self._hung = ""  # the ranks that are too late, when the dump was ordered
        self._far = frozenset(far)
        self._unseen: set[int] = set()  # far ranks whose states are asked for
        self._states: dict[int, str] = {}
        self._waits_since: float | None = None
        self._explained = ""
        self._forwarded = 0
        self._answered = 0
        self._path = (0, "")  # of the last checkpoint: report, path
        self._merging: tuple[int, int, bool] | None = None  # report, rank, whether rank 0 has passed it already
        self._is_stopping = False
        self._is_killing = False
        self._short: set[int] = set()  # ranks that wait for room on a full disk
        self._is_barrier_always = False  # some rank stores checkpoints where rank 0 stores none
        self._actions: list[Action] = []

    # --- facts -------------------------------------------------------------------------------------------------------

    def joined(self, rank: int, now: float) -> list[Action]:
        """A rank has found the others."""
        self._ranks[rank].is_joined = True
        if not self.is_joined and all(one.is_joined for one in self._ranks):
            self.is_joined = True
            for one in self._ranks:
                one.last = now
            self._actions.append(Joined())
        return self._take(now)

    def reported(self, rank: int, seq: int, shard: str, now: float) -> list[Action]:
        """A rank has called `report`, perhaps with a shard of a checkpoint, and waits for the answer."""
        one = self._ranks[rank]
        one.reports = one.waiting = seq
        one.shard = shard
        one.last = now
        return self._take(now)

    def waits_for_space(self, rank: int, is_waiting: bool, now: float) -> list[Action]:
        """A rank waits for room on a full disk, or not any more: meanwhile no rank is late."""
        was_short = bool(self._short)
        (self._short.add if is_waiting else self._short.discard)(rank)
        if was_short and not self._short:
            self._began = now
            self._waits_since = None if self._waits_since is None else now
            for one in self._ranks:
                one.last = now
        return self._take(now)

    def merged(self, seq: int, path: str, now: float) -> list[Action]:
        """The shards of a report are one checkpoint now; empty: that failed, and the rank raises after its answer."""
        if self._merging is None or self._merging[0] != seq:
            return []
        is_late = self._merging[2]
        self._end_merge()
        self._path = (seq, path)
        if not is_late:
            self._forward(seq, path or None)
        elif path:
            self._actions.append(Late(seq, path))
        return self._take(now)

    def answered(self, seq: int, is_stop: bool, now: float) -> list[Action]:
        """The answer to rank 0's report `seq` has come; 0: a stop that answers nothing."""
        if seq:
            self._answered = max(self._answered, seq)
        if is_stop:
            self._is_stopping = True
            for rank, one in enumerate(self._ranks):
                if not one.is_over and not one.waiting:
                    self._actions.append(Tell(rank, True, 0))
        return self._take(now)

    def said(self, rank: int, outcome: Outcome, at: float, now: float) -> list[Action]:
        """A rank's code has returned or raised, at `at` by its own clock, which is that of the machine."""
        one = self._ranks[rank]
        if one.outcome is None:
            self._close(rank, outcome)
            if not outcome.is_good:
                self._fail(_Failure(rank, at, False, outcome), now)
            elif self._is_stopping:
                self._stop_at = self._stop_at or now + self._limits.stop_s
            if all(other.is_over for other in self._ranks):
                self._actions.append(Dismiss())
        return self._take(now)

    def gone(
        self, rank: int, outcome: Outcome, now: float, *, at: float | None = None, was_told: bool | None = None
    ) -> list[Action]:
        """A rank's process has ended; `outcome` counts when it had not said how.

        Args:
            at: when that was; None: now.
            was_told: because of a `KillAll`; None: if there was one.
        """
        one = self._ranks[rank]
        one.is_gone = True
        self._short.discard(rank)
        self._unseen.discard(rank)
        if one.outcome is None:
            self._close(rank, outcome)
            if not (self._is_killing if was_told is None else was_told):
                self._fail(_Failure(rank, now if at is None else at, True, outcome), now)
        if all(other.is_gone for other in self._ranks):
            self.ending = self._end()
        return self._take(now)

    def seen(self, states: Mapping[int, str], now: float) -> list[Action]:
        """Take the states of ranks' processes (`T`: stopped), for the words of a hang.

        Those of far ranks that come late tell that words were held up on their way: then nobody is known to hang.
        """
        self._states |= states
        were_awaited, self._unseen = self._unseen, self._unseen - states.keys()
        if self._dumped_at is None or now <= self._dumped_at + self._limits.dump_s:
            return []
        if were_awaited and not self._unseen:
            self._dumped_at = None
            for one in self._ranks:
                one.last = now
        return self._take(now)

    def kill(self, now: float) -> list[Action]:
        """The group is not needed any more."""
        self._kill()
        return self._take(now)

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        if self._is_killing or self.ending is not None:
            return []
        if self._settle_at is not None and now >= self._settle_at:
            self._is_failed = True
            self._kill()
        elif self._stop_at is not None and now >= self._stop_at:
            self._kill()
        elif self._dumped_at is not None:
            if now >= self._dumped_at + self._limits.dump_s and not self._unseen:
                self._cause = self._hang()
                self._kill()
        elif not self._failures and not self._short:
            self._watch(now)
        return self._take(now)

    @property
    def deadline(self) -> float | None:
        """When `tick` must be called at the latest."""
        if self._is_killing or self.ending is not None:
            return None
        limits, times = self._limits, []
        if self._settle_at is not None or self._stop_at is not None:
            times = [at for at in (self._settle_at, self._stop_at) if at is not None]
        elif self._dumped_at is not None:
            times = [] if self._unseen else [self._dumped_at + limits.dump_s]
        elif not self._short:
            if not self.is_joined:
                times.append(self._began + limits.start_s)
            if self._waits_since is not None:
                times.append(self._waits_since + limits.barrier_s)
            if limits.hang_s is not None and (watched := self._watched()):
                times.append(min(one.last for _, one in watched) + limits.hang_s)
            if not self._explained and (since := self._wait_began()) is not None:
                times.append(since + limits.explain_s)
        return min(times, default=None)

    # --- reports -----------------------------------------------------------------------------------------------------

    def _take(self, now: float) -> list[Action]:
        if not self._is_killing and self.ending is None:
            self._advance(now)
            if self._explained and self._wait_began() is None:
                self._explained = ""
                self._actions.append(Explain(""))
        actions, self._actions = self._actions, []
        if self._is_killing:  # no rank is left to answer
            return [action for action in actions if isinstance(action, KillAll)]
        return actions

    def _advance(self, now: float) -> None:
        """Answer and pass on whatever can be by now."""
        self._waits_since, waited = None, self._waits_since
        if self._is_stopping:
            for rank, one in enumerate(self._ranks):
                if one.waiting and not (self._merging and self._merging[1] == rank):
                    self._tell(rank, True, now)
            return
        if not self.is_joined or self._merging is not None or self._failures or self._dumped_at is not None:
            return  # nothing is reported by a group that has not started
        if self._merge_late(now):
            return
        for rank, one in enumerate(self._ranks):
            if one.waiting and one.waiting <= self._answered and not one.shard:
                self._tell(rank, False, now)
        first = self._ranks[0]
        if first.is_over:
            self._release_without_first(now)
        elif first.waiting > self._forwarded:
            seq = first.waiting
            shards = tuple(one.shard for one in self._ranks if one.waiting == seq and one.shard)
            if shards or self._is_barrier_always:
                if self._missing(seq):
                    self._waits_since = now if waited is None else waited
                    return
                if shards:
                    self._merging = (seq, 0, False)
                    self._actions.append(Merge(0, seq, shards))
                    return
            self._forward(seq, None)

    def _merge_late(self, now: float) -> bool:
        """Take care of checkpoints for a report that rank 0 has made without one; True: one is being merged."""
        late = sorted({one.waiting for one in self._ranks if one.shard and 0 < one.waiting <= self._forwarded})
        for seq in late:
            self._is_barrier_always = True
            holders = [rank for rank, one in enumerate(self._ranks) if one.waiting == seq and one.shard]
            if seq < self._forwarded:
                for rank in holders:
                    self._ranks[rank].shard = ""
                self._note(
                    f"the checkpoint of {_ranks(holders)} at report {seq} came after rank 0's report {self._forwarded} "
                    "and was not kept; those of later reports are waited for"
                )
            elif seq <= self._answered and not self._missing(seq):
                self._merging = (seq, holders[0], True)
                self._actions.append(Merge(holders[0], seq, tuple(self._ranks[rank].shard for rank in holders)))
                return True
        return False

    def _release_without_first(self, now: float) -> None:
        for rank, one in enumerate(self._ranks):
            if one.waiting > self._forwarded:
                if one.shard:
                    one.shard = ""
                    self._note(
                        f"the checkpoint of rank {rank} at report {one.waiting} was not kept: rank 0 returned after "
                        f"report {self._forwarded}"
                    )
                self._tell(rank, False, now)

    def _end_merge(self) -> None:
        """Nothing is being merged any more: the shards are a checkpoint, or lost."""
        assert self._merging is not None
        seq, self._merging = self._merging[0], None
        for one in self._ranks:
            if one.waiting == seq:
                one.shard = ""

    def _missing(self, seq: int) -> list[int]:
        return [rank for rank, one in enumerate(self._ranks) if not one.is_over and one.reports < seq]

    def _forward(self, seq: int, path: str | None) -> None:
        self._forwarded = seq
        self._actions.append(Forward(seq, path))

    def _tell(self, rank: int, is_stop: bool, now: float) -> None:
        one = self._ranks[rank]
        seq, path = self._path
        self._actions.append(Tell(rank, is_stop, one.waiting, path if seq == one.waiting else ""))
        one.waiting, one.shard = 0, ""
        one.last = now

    # --- waits -------------------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Look for ranks that take too long, and explain waits."""
        limits = self._limits
        if not self.is_joined and now >= self._began + limits.start_s:
            late = [rank for rank, one in enumerate(self._ranks) if not one.is_joined]
            error = f"{_ranks(late)} did not join the group within {limits.start_s:g} s; see {_logs(late)}"
            self._cause = Outcome("FAILED", error, class_name=START_ERROR)
            self._kill()
        elif self._waits_since is not None and now >= self._waits_since + limits.barrier_s:
            self._cause = Outcome(
                "FAILED",
                f"after {limits.barrier_s:g} s of waiting: {self._wait_text()}. Every rank must call report() equally "
                "often where a checkpoint is reported",
                class_name="ReportTimeout",
            )
            self._kill()
        elif limits.hang_s is not None and any(now >= one.last + limits.hang_s for _, one in self._watched()):
            self._dumped_at = now
            self._hung = self._slow_text()
            self._states = {}
            self._unseen = {rank for rank in self._far if not self._ranks[rank].is_gone}
            self._actions.append(Dump())
        elif not self._explained and (since := self._wait_began()) is not None and now >= since + limits.explain_s:
            self._say(self._wait_text())

    def _watched(self) -> list[tuple[int, _Rank]]:
        """Return the ranks that must report within the hang limit: rank 0 and those that have ever reported."""
        if not self.is_joined:
            return []
        return [
            (rank, one)
            for rank, one in enumerate(self._ranks)
            if not one.is_over and not one.waiting and (rank == 0 or one.reports)
        ]

    def _wait_began(self) -> float | None:
        """Return since when something waits that the user should know of."""
        if self._failures or self._is_stopping:
            return None
        if not self.is_joined:
            return self._began
        if self._waits_since is not None:
            return self._waits_since
        if self._merging is not None or self._ranks[0].waiting:
            return None  # a rank stores the checkpoint, or the sweep judges the report
        return min((one.last for one in self._ranks if one.waiting), default=None)

    def _wait_text(self) -> str:
        if not self.is_joined:
            late = [rank for rank, one in enumerate(self._ranks) if not one.is_joined]
            return f"waits for {_ranks(late)} of {len(self._ranks)} to join the group"
        if self._waits_since is not None:
            return self._barrier_text([0])
        waiting = [rank for rank, one in enumerate(self._ranks) if one.waiting]
        held = [rank for rank in waiting if self._ranks[rank].waiting <= self._forwarded]
        if held:  # with a checkpoint for a report that rank 0 has made without one
            return self._barrier_text(held)
        return (
            f"{_ranks(waiting)} {'wait' if len(waiting) > 1 else 'waits'} in report {self._ranks[waiting[0]].waiting} "
            f"for rank 0, which has made {self._ranks[0].reports}"
        )

    def _barrier_text(self, waiting: list[int]) -> str:
        seq = self._ranks[waiting[0]].waiting
        is_sure = any(one.shard for one in self._ranks if one.waiting == seq)
        missing = self._missing(seq)
        made = sorted({self._ranks[rank].reports for rank in missing})
        return (
            f"{_ranks(waiting)} {'wait' if len(waiting) > 1 else 'waits'} in report {seq}, which "
            f"{'carries' if is_sure else 'may carry'} a checkpoint, for {_ranks(missing)}, at report "
            f"{' to '.join(str(number) for number in dict.fromkeys((made[0], made[-1])))} so far"
        )

    def _note(self, text: str) -> None:
        self._actions.append(Note(text))

    def _say(self, text: str) -> None:
        self._explained = text
        self._actions.append(Explain(text))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _close(self, rank: int, outcome: Outcome) -> None:
        """A rank is over: it waits for nothing, and merges nothing."""
        one = self._ranks[rank]
        one.outcome = outcome
        one.waiting, one.shard = 0, ""
        if self._merging is not None and self._merging[1] == rank:
            self._end_merge()

    def _fail(self, failure: _Failure, now: float) -> None:
        self._failures.append(failure)
        if self._is_stopping:
            self._stop_at = self._stop_at or now + self._limits.stop_s
        elif self._settle_at is None:
            self._settle_at = now + (self._limits.settle_s if len(self._ranks) > 1 else 0.0)

    def _kill(self) -> None:
        if not self._is_killing:
            self._is_killing = True
            self._actions.append(KillAll())

    def _blame(self) -> Outcome:
        """Return the failure that came first, named by its rank; what it caused in others in one line.

        A process that was killed or left without a word comes before exceptions: those of its peers tell only that the
        connection is gone. That is not so for SIGABRT, by which libraries end a process whose peer is gone.
        """

        def order(failure: _Failure) -> tuple[int, float]:
            is_secondary = failure.is_death and "SIGABRT" in failure.outcome.error
            return (2 if is_secondary else 0 if failure.is_death else 1, failure.at)

        first = min(self._failures, key=order)
        outcome = first.outcome
        others = sorted({one.rank for one in self._failures if one.rank != first.rank})
        traceback = outcome.traceback
        if others:
            traceback = (traceback + "\n" if traceback else "") + f"({_ranks(others)} failed after rank {first.rank})"
        # Code of the user's runs in a rank that has joined, even while others have not.
        is_start = outcome.class_name == START_ERROR or (first.is_death and not self._ranks[first.rank].is_joined)
        return outcome._replace(
            error=f"rank {first.rank} of {len(self._ranks)}: {outcome.error}",
            traceback=traceback,
            class_name=START_ERROR if is_start else outcome.class_name,
        )

    def _slow_text(self) -> str:
        watched = self._watched()
        least = min(one.reports for _, one in watched)
        slow = [rank for rank, one in watched if one.reports == least]
        return f"{_ranks(slow)} {'is' if len(slow) == 1 else 'are'} at report {least}"

    def _hang(self) -> Outcome:
        hang_s = self._limits.hang_s or 0.0
        stopped = [rank for rank, state in sorted(self._states.items()) if state == "T"]
        who = f"{_ranks(stopped)} {'is' if len(stopped) == 1 else 'are'} stopped (SIGSTOP)" if stopped else self._hung
        text = f"no report within report_timeout_s={hang_s:g}: {who}. The stacks of all ranks are in "
        return Outcome("HUNG", text + _logs(range(len(self._ranks))), class_name="GroupHung")

    def _end(self) -> Outcome:
        if self._cause is not None:
            return self._cause
        if self._is_failed:  # only now: what far ranks said may come after the others were ended
            return self._blame()
        kinds = [one.outcome.kind for one in self._ranks if one.outcome is not None]
        if self._is_stopping and kinds[0] in ("FINISHED", "STOPPED"):
            # A stop that came when all was done already has stopped nothing.
            return Outcome("FINISHED" if set(kinds) == {"FINISHED"} else "STOPPED")
        if self._failures:
            return self._blame()
        return Outcome("STOPPED" if self._is_stopping else "FINISHED" if not self._is_killing else "KILLED")


def _ranks(ranks: Sequence[int]) -> str:
    """Return `rank 1`, `ranks 0, 2` or `ranks 0, 1, 2 and 13 more`."""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}{more}"


def _logs(ranks: Iterable[int]) -> str:
    names = [f"rank{rank}.log" for rank in ranks]
    return ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
