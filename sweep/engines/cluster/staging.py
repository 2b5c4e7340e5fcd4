"""What an agent does besides where its node does not see the driver's directory: files go through remote storage.

Start      the checkpoint that it names is fetched, then the trial starts
Reported   its checkpoint is sent, then the driver hears of it; so a record names none that is not there
Exited     the rest of the output goes to the driver, and artifacts to the storage, if they are wanted
Released   the trial's directory is deleted, then the driver hears of it
Relayed    shards of a group's checkpoint travel ahead of what names them
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from sweep.core import messages
from sweep.core.messages import Event, Reported
from sweep.core.trial import Trial
from sweep.engines.cluster.log_relay import LogTails
from sweep.storage.nodes import NodeCopy, delete
from sweep.storage.transfers import Transfers
from sweep.worker import wire

LOOK_S = 1.0  # between two looks at what trials have printed

Key = tuple[str, int]


class Staging:
    """The files of the trials of one agent, which work in `copy`.

    `tell` writes to the driver, `emit` hands out an event when its turn has come; for `wake` and `say` see `Transfers`.
    """

    def __init__(
        self,
        copy: NodeCopy,
        log_files: Collection[str],
        *,
        tell: Callable[[wire.FromAgent], None],
        emit: Callable[[Event], None],
        wake: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._copy = copy
        self._log_files = log_files
        self._tell = tell
        self._emit = emit
        self._transfers = Transfers(wake, say, str(copy.home.remote))
        self._tails = LogTails(copy.root, log_files)
        self._running: dict[Key, str] = {}  # attempts, with the checkpoints that they are started from
        self._starting: set[Key] = set()  # of those whose checkpoint is fetched
        self._shards: dict[Key, list[str]] = {}  # that were sent from here last

    def settle(self) -> None:
        """Do what follows the transfers that have ended."""
        self._transfers.settle()

    def look(self) -> None:
        """Send what was printed meanwhile."""
        for key in self._running:
            self._send_output(key)

    def close(self) -> None:
        """Give up what is under way, and delete the directory."""
        self._transfers.close()
        self._copy.clear()

    # --- from the driver ---------------------------------------------------------------------------------------------

    def start(self, trial: Trial, execute: Callable[[], None]) -> None:
        """Start an attempt once the checkpoint that it continues from is here."""
        key = (trial.id, trial.attempt)
        path = trial.checkpoint.path if trial.checkpoint is not None else ""
        self._running[key] = path
        if not path or self._copy.has(path):
            execute()
            return
        self._starting.add(key)
        self._emit(messages.Waiting(trial.id, f"fetching {path} from {self._copy.home.remote}"))

        def then() -> None:
            self._starting.discard(key)
            execute()

        self._transfers.add(key, then, partial(self._copy.bring, path))

    def hurry(self, key: Key) -> None:
        """An attempt is to end: if it has not started yet, it does so without its checkpoint, only to be ended."""
        if key in self._starting:
            self._transfers.hurry(key)

    def hear(self, key: Key, word: Any, hear: Callable[[Key, Any], None]) -> None:
        """Take in what concerns a group on several nodes, once the shards that it names are here."""
        shards = _shards_of(word)
        if not shards:
            self._transfers.add(("to", *key), partial(hear, key, word))
            return
        places: list[str] = []

        def bring() -> None:
            places[:] = [self._copy.bring_shard(name) for name in shards]

        self._transfers.add(("to", *key), lambda: hear(key, _with_shards(word, places)), bring)

    # --- from the engine ---------------------------------------------------------------------------------------------

    def say_of(self, key: Key, word: Any, say: Callable[[Key, Any], None]) -> None:
        """Pass on what concerns a group on several nodes, once what it names can be fetched."""
        copy = self._copy
        shards = _shards_of(word)
        match word:
            case wire.Relayed(word=wire.Merged(checkpoint=path)) if path:
                self._transfers.add(key, partial(say, key, word), partial(copy.send, path))
            case _ if shards:
                names = [copy.shard_name(place) for place in shards]
                self._shards[key] = names  # those of the report before were fetched, or nobody wants them

                def send() -> None:
                    for place in shards:
                        copy.send_shard(place)

                self._transfers.add(key, partial(say, key, _with_shards(word, names)), send)
            case _:
                self._transfers.add(key, partial(say, key, word))

    def take(self, event: Event) -> None:
        """Hand an event out when the files that belong to it are where they are looked for."""
        match event:
            case messages.Reported(trial_id, attempt, checkpoint=str(path)) | messages.Saved(
                trial_id, attempt, checkpoint=path
            ):
                key = (trial_id, attempt)
                self._transfers.add(key, partial(self._on_sent, event), partial(self._send_checkpoint, trial_id, path))
            case messages.Exited(trial_id, attempt):
                key = (trial_id, attempt)
                is_wanted = self._copy.home.sync.sync_artifacts
                work = partial(self._copy.send_artifacts, trial_id, self._log_files) if is_wanted else None
                self._transfers.add(key, partial(self._on_exited, key, event), work)
            case messages.Released(trial_id, attempt) | messages.Declined(trial_id, attempt):
                self._transfers.add((trial_id, attempt), partial(self._on_released, (trial_id, attempt), event))
            case messages.Started(trial_id, attempt) | messages.Reported(trial_id, attempt):
                self._transfers.add((trial_id, attempt), partial(self._emit, event))
            case _:
                self._emit(event)

    def _send_checkpoint(self, trial_id: str, path: str) -> None:
        self._copy.send(path)
        sync = self._copy.home.sync
        if sync.sync_artifacts and sync.sync_artifacts_on_checkpoint:
            self._copy.send_artifacts(trial_id, self._log_files)

    def _on_sent(self, event: Event) -> None:
        self._emit(event)
        self._tidy()

    def _on_exited(self, key: Key, event: Event) -> None:
        self._send_output(key)
        self._tails.end(key)
        self._emit(event)

    def _on_released(self, key: Key, event: Event) -> None:
        self._running.pop(key, None)
        self._starting.discard(key)
        shards = self._shards.pop(key, [])
        if shards:
            self._transfers.add(key, lambda: None, partial(self._copy.end_shards, shards))
        self._tidy()
        self._emit(event)

    def _tidy(self) -> None:
        """Delete what is not needed any more."""
        aside = self._copy.set_aside({trial_id for trial_id, _ in self._running}, set(self._running.values()) - {""})
        for place in aside:
            self._transfers.add(place, lambda: None, partial(delete, place))

    def _send_output(self, key: Key) -> None:
        for written in self._tails.news(key):
            self._tell(written)


def _shards_of(word: Any) -> tuple[str, ...]:
    """Return the directories of shards that a word names."""
    match word:
        case wire.Relayed(word=Reported(checkpoint=str(shard))) if shard:
            return (shard,)
        case wire.Relayed(word=wire.Merge(shards=shards)):
            return tuple(shards)
    return ()


def _with_shards(word: Any, shards: list[str]) -> Any:
    """Return a word with other directories."""
    if isinstance(word.word, Reported):
        return word._replace(word=replace(word.word, checkpoint=shards[0]))
    return word._replace(word=word.word._replace(shards=tuple(shards)))
