"""What a sweep waits for: trials for resources, questions for the searcher's answers, attempts for their time."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Iterator, Sequence

from sweep.core.packing import Packer
from sweep.core.resources import Node, Resources
from sweep.core.trial import Trial

# Starts of younger trials that the oldest waiting one may see pass; then nodes are kept for it, or nothing starts.
_MAX_OVERTAKES = 16

PAUSED = "the sweep is paused by a person"
FRONT = -(2**52)  # of the tickets of what comes before all that wait


def keeps_place(old: Trial, new: Trial, nodes: Sequence[Node]) -> bool:
    """Whether a trial waits where it did before: for more, not begun after all, or as its node was lost or leaves."""
    lies_on = () if old.placement is None else old.placement.bundles
    there = {node.id for node in nodes} if lies_on else set()
    is_lost = new.node_losses > old.node_losses or any(bundle.node not in there for bundle in lies_on)
    return is_lost or new.escalation is not old.escalation or new.attempt < old.attempt


class PendingQueue:
    """Know which trials wait and which may start now.

    Trials with equal requests fit or do not fit together, so only the first of each group is ever tried: 10,000 waiting
    trials of one kind cost as much as one. Those that have run before are a group of their own, so that a scheduler may
    let them go on before new ones begin.
    """

    def __init__(self) -> None:
        # (request, whether it has run) -> trial id -> ticket, oldest first
        self._groups: dict[tuple[Resources, bool], dict[str, int]] = {}
        self._tickets = 0
        self._overtaken = ("", 0)  # the oldest waiting trial, and how many younger ones it saw start
        self._oldest = ""
        self._heads = 0  # counts what may have changed which trials are first
        self._in_vain: tuple[Packer, int, int] | None = None  # when nothing was startable, the last time

    def __iter__(self) -> Iterator[tuple[Resources, str]]:
        """Yield (request, trial id) of all waiting trials, group by group."""
        for (resources, _), group in self._groups.items():
            for trial_id in group:
                yield resources, trial_id

    def add(self, trial_id: str, resources: Resources, has_run: bool = False, ticket: int = 0) -> int:
        """Let a trial wait, behind all others, or where the `ticket` of a former wait puts it; returns its ticket, of
        which a new one is larger than all before."""
        if not ticket:
            self._tickets += 1
            ticket = self._tickets
        group = self._groups.setdefault((resources, has_run), {})
        is_last = not group or next(reversed(group.values())) < ticket
        self._heads += not group or not is_last
        group[trial_id] = ticket
        if not is_last:
            self._groups[resources, has_run] = dict(sorted(group.items(), key=lambda item: item[1]))
        return ticket

    def remove(self, trial_id: str, resources: Resources, has_run: bool = False) -> None:
        """Take a trial out; the arguments as it was added with."""
        group = self._groups[resources, has_run]
        self._heads += 1
        del group[trial_id]
        if not group:
            del self._groups[resources, has_run]

    def awaits_nodes(self, packer: Packer) -> bool:
        """Whether a trial waits for nodes that are not there now."""
        return any(packer.absence(resources) for resources, _ in self._groups)

    def renew(self, trial_id: str, resources: Resources, has_run: bool) -> int:
        """Let a trial wait behind all others that do; returns its new ticket."""
        self.remove(trial_id, resources, has_run)
        return self.add(trial_id, resources, has_run)

    def why_none(self, packer: Packer) -> str:
        """Return why nothing starts though trials wait and nothing runs."""
        resources, _ = next(iter(self))
        return "its choose() returned None" if packer.fits_now(resources) else packer.why_not(resources)

    def startable(self, packer: Packer) -> tuple[str | None, Sequence[str]]:
        """Return the oldest waiting trial, and the first of each group that fits now, oldest first.

        When the oldest does not fit and has been overtaken too often, nodes are kept free for it and the others have to
        do with the rest; on a single node no trial is startable then. One that waits for nodes which are not there
        stands back: nothing that is held back for it would bring them.
        """
        if not self._groups:
            return None, ()
        if self._in_vain == (packer, packer.num_changes, self._heads):
            return self._oldest, ()
        heads = self._firsts()
        here = (head for head in heads if not packer.absence(head[2]))
        oldest, _, request = next(here, heads[0])
        self._oldest = oldest
        has_waited = self._overtaken[0] == oldest and self._overtaken[1] >= _MAX_OVERTAKES
        if not has_waited:
            packer.keep_room(None)
        elif not packer.fits_now(request) and not packer.keep_room(request):
            return oldest, ()
        fitting = [trial_id for trial_id, _, resources in heads if packer.fits_now(resources)]
        self._in_vain = None if fitting else (packer, packer.num_changes, self._heads)
        return oldest, fitting

    def _firsts(self) -> list[tuple[str, int, Resources]]:
        """Return the first trial of each group with its ticket and its request, oldest first."""
        groups = self._groups.items()
        return sorted(((*next(iter(group.items())), resources) for (resources, _), group in groups), key=_age)

    def wanted(self, packer: Packer, wish: Resources | None) -> Resources | None:
        """Return what could start, were it not for other sweeps of the machine; None: nothing.

        Args:
            wish: what a trial would ask for that is not there yet; None: there will be none.
        """
        if not packer.others:
            return None
        for _, _, resources in self._firsts():
            if packer.waits_for_others(resources):
                return resources
        return wish if wish is not None and packer.waits_for_others(wish) else None

    def overtook(self, oldest: str) -> None:
        """Note that a younger trial started while the oldest did not fit."""
        seen = self._overtaken[1] if self._overtaken[0] == oldest else 0
        self._overtaken = (oldest, seen + 1)


def _age(head: tuple[str, int, Resources]) -> int:
    return head[1]


_REASK_S = 1.0
_MAX_FAILURES = 3
_PATIENCE_S = 60.0  # how long nothing may run while the searcher says "not now"


class Suggestions:
    """Keep account of the questions to the searcher.

    After "not now" it is asked one question at a time, when there is news (an exit, a release, a request of the user,
    other nodes), and at the latest a second later. Reports are no news: there are too many of them, and a second later
    will do.

    Attributes:
        is_exhausted: it has said that nothing more will come.
        is_put_off: its last answer was "not now".
        reask_at: when to ask again at the latest; None: not because of time.
    """

    def __init__(self) -> None:
        self.is_exhausted = False
        self.is_put_off = False
        self.reask_at: float | None = None
        self._outstanding: set[int] = set()
        self._again: list[int] = []  # numbers of trials whose question was not answered with a config, in order
        self._next = 0
        self._failures = 0
        self._has_news = False
        self._idle_since: float | None = None

    @property
    def num_outstanding(self) -> int:
        """Questions that are not answered yet."""
        return len(self._outstanding)

    @property
    def must_wait(self) -> bool:
        """Whether the last answer was "not now" and nothing has happened since."""
        return self.is_put_off and (bool(self._outstanding) or not self._has_news)

    def open(self, used: Collection[int]) -> None:
        """Begin a run of the driver: `used` are the numbers of trials that exist."""
        self.is_exhausted = False
        self._next = max(used, default=-1) + 1
        self._again = [number for number in range(self._next) if number not in used]

    def next_number(self) -> int:
        """Return the number of the trial to ask for now; it is outstanding from here on."""
        if self._again:
            number = self._again.pop(0)
        else:
            number = self._next
            self._next += 1
        self._outstanding.add(number)
        self.reask_at = None
        return number

    def take(self, number: int) -> bool:
        """Note that an answer came; False if the question is not outstanding."""
        if number not in self._outstanding:
            return False
        self._outstanding.discard(number)
        return True

    def answered(self) -> None:
        """The answer was a config."""
        self._failures = 0
        self.is_put_off = False
        self.reask_at = None
        self._idle_since = None

    def put_off(self, number: int, now: float) -> None:
        """The answer was "not now"."""
        bisect.insort(self._again, number)
        self._failures = 0
        self.is_put_off = True
        self._has_news = False
        self.reask_at = now + _REASK_S
        if self._idle_since is None:
            self._idle_since = now

    def failed(self, number: int) -> bool:
        """The answer was an error; True if it is one too many in a row."""
        bisect.insort(self._again, number)
        self._failures += 1
        self.is_put_off = False
        return self._failures >= _MAX_FAILURES

    def exhausted(self) -> None:
        """The answer was "nothing more"."""
        self.is_exhausted = True
        self._again.clear()

    def hear_news(self) -> None:
        """Something happened after which "not now" may no longer be the answer."""
        self._has_news = True

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask again; the time is then used up."""
        if self.reask_at is None or now < self.reask_at:
            return False
        self.reask_at = None
        self._has_news = True
        return True

    def something_runs(self, now: float) -> None:
        """Note that the searcher need not be the reason for waiting."""
        if self._idle_since is not None:
            self._idle_since = now

    def overdue_s(self, now: float) -> float | None:
        """Return for how many seconds nothing ran because of "not now", when that is too long; else None."""
        if self._idle_since is None or now - self._idle_since < _PATIENCE_S:
            return None
        return now - self._idle_since


class Timers:
    """Moments at which an attempt is looked at: its grace is over, or its time is up.

    Those of attempts that are over mean nothing.

    Attributes:
        waiting: a heap of when, tie-breaker, trial, attempt, is_limit: looked at with every event.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[float, int, str, int, bool]] = []
        self._count = 0

    @property
    def soonest(self) -> float | None:
        """When the next one is due; None: there is none."""
        return self.waiting[0][0] if self.waiting else None

    def set(self, when: float, trial: Trial, *, is_limit: bool = False) -> None:
        """Look at the running attempt of a trial at `when`: at the end of a grace, or of the time that it may run."""
        self._count += 1
        heapq.heappush(self.waiting, (when, self._count, trial.id, trial.attempt, is_limit))

    def due(self, now: float) -> Iterator[tuple[str, int, bool]]:
        """Yield trial, attempt and `is_limit` of those that are due, and forget them."""
        while self.waiting and self.waiting[0][0] <= now:
            yield heapq.heappop(self.waiting)[2:]
