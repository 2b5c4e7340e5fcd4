"""The trials that wait for resources: in order, grouped by equal request, the oldest never overtaken for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweep.core.claims import Wanted
from sweep.core.packing import Packer
from sweep.core.resources import Resources

# Starts of younger trials that the oldest waiting one may see pass; then nodes are kept for it, or nothing starts.
_MAX_OVERTAKES = 16


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

    def wanted(self, packer: Packer, wish: Resources | None) -> Wanted | None:
        """Return what could start, were it not for other sweeps of the machine; None: nothing.

        Args:
            wish: what a trial would ask for that is not there yet; None: there will be none.
        """
        if not packer.others:
            return None
        for _, _, resources in self._firsts():
            if packer.waits_for_others(resources):
                return Wanted(resources)
        return Wanted() if wish is not None and packer.waits_for_others(wish) else None

    def overtook(self, oldest: str) -> None:
        """Note that a younger trial started while the oldest did not fit."""
        seen = self._overtaken[1] if self._overtaken[0] == oldest else 0
        self._overtaken = (oldest, seen + 1)


def _age(head: tuple[str, int, Resources]) -> int:
    return head[1]
