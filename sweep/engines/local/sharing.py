"""The engine's share of a machine on which other sweeps run, too: it claims what it starts, and looks for what is free.

    Start ──claimed──> the attempt begins; what it held is given back with its release
      └─another sweep was faster──> ClaimsChanged, Declined: the trial waits again

While something waits for others, their claims are looked at four times a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from sweep.accelerators.claims import Claims, Unkept, directory_of
from sweep.core.claims import Claim, Wanted
from sweep.core.messages import ClaimsChanged, Declined, Event
from sweep.core.resources import UNIT
from sweep.core.trial import Trial
from sweep.engines.base import EngineContext
from sweep.engines.loop import Loop
from sweep.worker.environment import DRIVER_VARIABLE, TRIAL_VARIABLE
from sweep.worker.nested import process_mark

_LOOK_S = 0.25
_REFRESH_S = 3600.0  # what clears temporary directories leaves alone what is younger than days


@dataclass(eq=False)
class Sharing:
    """Claims for one engine; without `is_shared` in its context, or where claims cannot be kept, it grants everything.

    Attributes:
        emit: takes an event for the sweep.
        end_idle: ends the idle reused workers, because another sweep waits.
        say: called with each line for the user.
    """

    context: EngineContext
    loop: Loop
    emit: Callable[[Event], None]
    end_idle: Callable[[], None]
    say: Callable[[str], None]
    _claims: Claims | None = field(default=None, init=False)
    _told: tuple[Claim, ...] = field(default=(), init=False)
    _wanted: Wanted | None = field(default=None, init=False)
    _has_declined: bool = field(default=False, init=False)  # since the last wanted
    _is_alarm_set: bool = field(default=False, init=False)
    _smaller: set[int] = field(default_factory=set, init=False)  # drivers that were said to count fewer CPUs
    _idle: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if not self.context.is_shared:
            return
        outer = os.environ.get(DRIVER_VARIABLE, "") if os.environ.get(TRIAL_VARIABLE) else ""
        try:
            claims = Claims(
                directory_of(),
                [node for node in self.context.nodes if self.context.node in ("", node.id)],
                here=self.context.node,
                run=self.context.claims_as,
                experiment=self.context.experiment_name or self.context.directory.name,
                mark=process_mark(os.getpid()),
                notice=self.say,
            )
        except Unkept as error:
            self.say(f"other sweeps of this machine are not seen, and do not see this one: {error}")
            return
        if claims.is_driven_by(outer):
            claims.close()
            self.say(
                f"this sweep runs inside trial {os.environ[TRIAL_VARIABLE]} of another one: it uses what that trial "
                "holds, and claims nothing itself"
            )
            return
        self._claims = claims
        self.loop.alarm(_REFRESH_S, self._refresh)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What every process must hold whose end gives back what was claimed."""
        return () if self._claims is None else (self._claims.fd,)

    def claims(self) -> tuple[Claim, ...]:
        """Return what other sweeps keep from this one now; from here on, changes are told."""
        self._told = () if self._claims is None else self._claims.look()
        self._name_smaller()
        return self._told

    def take(self, trial: Trial) -> bool:
        """Claim what a trial was given; False: it must not begin, and the sweep is told so."""
        if self._claims is None or self._claims.take((trial.id, trial.attempt), trial.resources, trial.placement):
            if self._claims is not None and any(claim.wants for claim in self._claims.others):
                self._tell()  # it must let them go first from now on
            return True
        self._has_declined = True
        declined = Declined(trial.id, trial.attempt)
        if self._tell():
            self.emit(declined)
        else:  # nothing that the sweep did not know: it would try just the same again
            self.loop.alarm(_LOOK_S, lambda: self.emit(declined))
        return False

    def give_back(self, trial: Trial, idle: int = 0) -> None:
        """A trial holds nothing any more; `idle`: but for the devices that the worker of this slot still uses."""
        if self._claims is not None:
            self._claims.give_back((trial.id, trial.attempt), idle or None)
            if idle and trial.placement is not None and trial.placement.placed_devices:
                self._idle.add(idle)
                self._set_alarm()

    def end_use(self, slot: int) -> None:
        """The idle worker of a slot is gone, or has another trial."""
        if slot in self._idle and self._claims is not None:
            self._idle.discard(slot)
            self._claims.end_idle(slot)

    def shared_devices(self, trial: Trial) -> Collection[tuple[str, str]]:
        """Return the devices of a trial of which another sweep holds a part."""
        if self._claims is None or trial.placement is None or not trial.placement.placed_devices:
            return ()
        held = {(node, device) for claim in self._claims.look() for node, device, _ in claim.devices}
        return held.intersection(trial.placement.placed_devices)

    def want(self, wanted: Wanted | None) -> None:
        """Tell of every change in the claims of others as long as there is something to look out for."""
        if self._claims is None:
            return
        had_declined, self._has_declined = self._has_declined, False
        request = None if wanted is None else wanted.request
        if (wanted is None and had_declined) or (wanted == self._wanted and request == self._claims.awaited):
            return  # what was declined keeps its place in the line: the sweep is about to try again
        self._wanted = wanted
        self._claims.wait_for(request)
        if wanted is not None:
            self._tell()
            self._set_alarm()

    def close(self) -> None:
        """Give back everything; all processes that hold the descriptor must be gone."""
        if self._claims is not None:
            self._claims.close()
            self._claims = None

    def _tell(self) -> bool:
        """Tell the sweep what others hold, if that is news; whether it is."""
        if self._claims is None or self._claims.others == self._told:
            return False
        self._told = self._claims.others
        self._name_smaller()
        self.emit(ClaimsChanged(self._told))
        return True

    def _name_smaller(self) -> None:
        """Say once which other sweep counts fewer CPUs here: no more than those are used by both together."""
        for claim in self._told:
            total = next((total for _, name, total in claim.totals if name == "cpu"), None)
            if total is not None and claim.pid not in self._smaller:
                self._smaller.add(claim.pid)
                self.say(
                    f"{claim} was started with {total / UNIT:g} CPUs, and it and this sweep together use no more than "
                    "those while it runs. Start it with all CPUs of the machine and limit it by max_concurrent_trials; "
                    "or, if its CPUs are not to count here, with sweep.init(shared=False)"
                )

    def _set_alarm(self) -> None:
        if not self._is_alarm_set:
            self._is_alarm_set = True
            self.loop.alarm(_LOOK_S, self._on_alarm)

    def _on_alarm(self) -> None:
        self._is_alarm_set = False
        if self._claims is None or (self._wanted is None and not self._idle):
            return
        self._claims.look()
        if self._idle and self._claims.has_waiters:
            self.end_idle()
        if self._wanted is not None:
            self._tell()
        self._set_alarm()

    def _refresh(self) -> None:
        if self._claims is not None:
            self._claims.look()
            self.loop.alarm(_REFRESH_S, self._refresh)
