"""Storing incoming messages, each once."""

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from delaystore.breakers import StoreCalls
from delaystore.delivery import DelayedDelivery
from delaystore.errors import (
    DuplicateMessageError,
    InvalidMessageError,
    MessageBeingDispatchedError,
    MessageDeliveredError,
    StoreUnavailableError,
    TooLargeForStoreError,
)
from delaystore.ingress._entries import IngestEntry, IngestResult
from delaystore.ingress.settings import IngressOnDuplicate, IngressOnRepeat
from delaystore.message import DelayedMessage, IfDelivered, waiting_at_most
from delaystore.operations.changes import MessageChanges
from delaystore.text import FORWARDED_TO, HOPS

ORIGINAL_MESSAGE_ID: Final = "delaystore.original-message-id"
"""The header with a message's own id, where it is stored under another."""
OF_A_PUBLISH: Final = frozenset(
    {
        "x-dotnet-pub-seq-no",  # RabbitMQ.Client 7 counts in it, where it tracks confirms
        "spring_returned_message_correlation",
        "spring_listener_return_correlation",
        "traceparent",
        "tracestate",
        "timestamp_in_ms",
        "x-routed-by",
        FORWARDED_TO,
        HOPS,
    }
)
"""Headers that clients, brokers and ingresses write for each publish: they do not tell two messages apart."""
_CLAIMED: Final = (
    "a dispatcher has the message of the message_id {!r}, and has not settled it; the new one stays in its queue, and "
    "is tried every few seconds"
)
_STORE_TIMEOUT: Final = 0.2
"""Seconds for which a batch waits for dispatchers that have claimed messages of its ids. After that the ingress keeps
the batch's messages of these ids back and retries them; the others wait no longer."""
_ASK_EVERY: Final = 5.0
"""Seconds after which the store is asked again whether it keeps a history."""
_ROUNDS: Final = 3
"""Others may store the same ids meanwhile, so often."""

logger = logging.getLogger("delaystore.ingress")


class EntryStorage:
    """Stores entries, and finds out which of them are in the store already. Used by one thread.

    `changes`: makes the changes of waiting messages that publishers ask for. `on_stored` is called with the earliest
    due time of the stored messages.
    """

    def __init__(
        self,
        delivery: DelayedDelivery,
        changes: MessageChanges,
        calls: StoreCalls,
        on_duplicate: IngressOnDuplicate,
        on_stored: Callable[[datetime], object],
        on_repeat: IngressOnRepeat = IngressOnRepeat.DELIVER,
    ) -> None:
        self._on_stored = on_stored
        self._delivery = delivery
        self._changes = changes
        self._calls = calls
        self._on_duplicate = on_duplicate
        self._drops_repeated = on_repeat is IngressOnRepeat.DROP
        self._knows_delivered: bool | None = None
        """Whether a history is kept, where repeated messages are dropped; None: it was not asked yet."""
        self._ask_from = 0.0

    def store(self, entries: Sequence[IngestEntry]) -> None:
        """Give each entry a result, or an objection: only for the message's own fault.

        Raises StoreError for any other failure: entries without either can be tried again. All of them go into one
        transaction; only where that cannot be, as after a crash, they are looked at one by one. An entry of whose id a
        dispatcher has the message, and keeps it for some seconds, has a failure after this, and no result.
        """
        claimed = [entry for entry in entries if entry.is_claimed]
        if claimed:
            self._without_claimed(entries, claimed)
        free = _not_behind_claimed(entries, entries)
        if self._on_duplicate is IngressOnDuplicate.REPLACE:
            self._store_newest(free)
            return
        for wave in _waves(free):
            self._store_wave(_not_behind_claimed(wave, entries))

    def _store_newest(self, entries: Sequence[IngestEntry]) -> None:
        """Of each id the newest message; an older one only where those after it cannot be stored."""
        open_runs = _runs(entries)
        while open_runs:
            firsts = [runs[-1].popleft() for runs in open_runs]
            self._store_wave(firsts)
            for first, runs in zip(firsts, open_runs, strict=True):
                if first.is_claimed:
                    for entry in (entry for run in runs for entry in run):
                        _hold(entry, first)
                    runs.clear()
                elif first.result is IngestResult.REPEATED:
                    for entry in (entry for run in runs for entry in run):
                        entry.result = IngestResult.REPEATED
                    runs.clear()
                elif first.objection is None:
                    _supersede(runs)
                elif not runs[-1]:
                    runs.pop()
            open_runs = [runs for runs in open_runs if runs]

    def _store_wave(self, entries: Sequence[IngestEntry]) -> None:
        replaced: set[str] = set()
        for _ in range(_ROUNDS):
            try:
                self._store_all(entries, replaced)
                return
            except MessageDeliveredError as error:
                entries = _without_repeated(entries, error.message_ids)
            except DuplicateMessageError:
                entries = self._new_among(entries, replaced)
            except MessageBeingDispatchedError:
                entries = self._without_claimed(entries, entries)
            except InvalidMessageError:
                entries = [entry for entry in entries if self._can_be_sent(entry)]
            except TooLargeForStoreError:
                break
        claimed: dict[str, IngestEntry] = {}
        for entry in entries:
            message_id = entry.message.message_id
            if message_id in claimed:
                _hold(entry, claimed[message_id])
            else:
                self._store_one(entry)
            if entry.is_claimed:
                claimed[message_id] = entry

    def _store_all(self, entries: Sequence[IngestEntry], replaced: Collection[str]) -> None:
        """Store all of `entries`, those of `replaced` in the place of the waiting messages of their ids.

        In one transaction: until its commit the waiting messages stay as they are.
        """
        if not entries:
            return
        messages, new = [entry.message for entry in entries], self._refuses_delivered()
        with self._calls.call("storing incoming messages"), waiting_at_most(_STORE_TIMEOUT):
            if replaced:
                self._delivery.replace_many(messages, replaced, self._changes, new=new)
            else:
                self._delivery.send_many(messages, if_delivered=IfDelivered.REJECT if new else IfDelivered.SEND)
        for entry in entries:
            entry.result, entry.is_claimed = IngestResult.STORED, False
        self._on_stored(min([message.due_time for message in messages]))

    def _store_one(self, entry: IngestEntry) -> None:
        replaced: set[str] = set()
        for _ in range(_ROUNDS):
            try:
                self._store_all([entry], replaced)
                return
            except MessageDeliveredError as error:
                _without_repeated([entry], error.message_ids)
                return
            except DuplicateMessageError:
                if not self._new_among([entry], replaced):
                    return
            except MessageBeingDispatchedError:
                if not self._without_claimed([entry], [entry]):
                    return
            except (TooLargeForStoreError, InvalidMessageError) as error:
                entry.objection = str(error)
                return
        raise StoreUnavailableError(f"the message_id {entry.message.message_id!r} appears and disappears; will retry")

    def _refuses_delivered(self) -> bool:
        """Whether the store is to refuse delivered messages; False, with a warning, while it keeps no history."""
        if not self._drops_repeated:
            return False
        if time.monotonic() >= self._ask_from:
            knew, status = self._knows_delivered, self._delivery.operations.history_status()
            self._knows_delivered = status.kept is not None
            self._ask_from = time.monotonic() + _ASK_EVERY
            if knew is not False and not self._knows_delivered:
                logger.warning(
                    "delivering repeated messages, although on_repeat is drop, because the endpoint keeps no history; "
                    "start its dispatcher with a history, such as history='30d'"
                )
        return bool(self._knows_delivered)

    def _can_be_sent(self, entry: IngestEntry) -> bool:
        try:
            self._delivery.check(entry.message)
        except InvalidMessageError as error:
            entry.objection = str(error)
            return False
        return True

    def _new_among(self, entries: Sequence[IngestEntry], replaced: set[str]) -> list[IngestEntry]:
        """Return the entries to store, now that ids were found in the store; the others have a result.

        The ids of messages that they are to replace are added to `replaced`.

        A claimed message is neither the same nor another one: its dispatcher may delete it at any moment. Only an
        unclaimed message is compared, as it is forwarded after its repetition was published.
        """
        unclaimed = self._delivery.get_unclaimed([entry.message.message_id for entry in entries])
        return [entry for entry in entries if self._is_new(entry, unclaimed.get(entry.message.message_id), replaced)]

    def _without_claimed(
        self, entries: Sequence[IngestEntry], doubtful: Sequence[IngestEntry]
    ) -> Sequence[IngestEntry]:
        """Return `entries` without those whose id a dispatcher has claimed.

        Only the ids of `doubtful` are looked up. A claimed entry gets `is_claimed` and a failure that says so; the
        others of `doubtful` lose a failure of that kind.
        """
        if not doubtful:
            return entries
        ids, now = [entry.message.message_id for entry in doubtful], time.monotonic()
        # In this order: a message that its dispatcher deletes between the two look-ups counts as free, and is stored.
        # In the other order it would count as claimed, and wait for a dispatcher that has deleted it.
        unclaimed = self._delivery.get_unclaimed(ids)
        claimed = self._delivery.get_many(ids).keys() - unclaimed.keys()
        for entry in doubtful:
            is_claimed = entry.message.message_id in claimed
            if is_claimed != entry.is_claimed:
                entry.is_claimed, entry.failure, entry.failing_since = is_claimed, None, now
            if is_claimed:
                entry.failure = _CLAIMED.format(entry.message.message_id)
        return [entry for entry in entries if not entry.is_claimed]

    def _is_new(self, entry: IngestEntry, waiting: DelayedMessage | None, replaced: set[str]) -> bool:
        message = entry.message
        if waiting is None:
            return True
        if is_same(message, waiting):
            entry.result = IngestResult.DUPLICATE
            return False
        if self._on_duplicate is IngressOnDuplicate.KEEP:
            logger.warning("dropped message %r: another message with its id is waiting", message.message_id)
            entry.result = IngestResult.DISCARDED
            return False
        if self._on_duplicate is IngressOnDuplicate.REPLACE:
            replaced.add(message.message_id)
        else:
            entry.meaning = renamed(message)
        return True


def _without_repeated(entries: Sequence[IngestEntry], delivered: Sequence[str]) -> Sequence[IngestEntry]:
    """Return the entries to store; those of the ids in `delivered` are dropped."""
    logger.info("dropped %d messages that were delivered already, such as %r", len(delivered), delivered[0])
    ids = set(delivered)
    for entry in entries:
        if entry.message.message_id in ids:
            entry.result = IngestResult.REPEATED
    return [entry for entry in entries if entry.result is None]


def _waves(entries: Sequence[IngestEntry]) -> Sequence[Sequence[IngestEntry]]:
    """Parts of `entries` to be stored one after the other: each id once, and then later messages with the same ids."""
    if len({entry.message_id for entry in entries}) == len(entries):
        return [entries]
    waves: tuple[list[IngestEntry], list[IngestEntry]] = ([], [])
    seen: set[str] = set()
    for entry in entries:
        waves[entry.message.message_id in seen].append(entry)
        seen.add(entry.message.message_id)
    return waves


def _runs(entries: Sequence[IngestEntry]) -> list[list[deque[IngestEntry]]]:
    """For each id its runs, the oldest first: in one is the same message, as it came again and again."""
    found: dict[str, list[deque[IngestEntry]]] = {}
    for entry in entries:
        runs = found.setdefault(entry.message.message_id, [])
        if runs and is_same(entry.message, runs[-1][0].message):
            runs[-1].append(entry)
        else:
            runs.append(deque((entry,)))
    return list(found.values())


def _supersede(runs: list[deque[IngestEntry]]) -> None:
    """Give the rest of the runs of an id a result, now that the first message of the last run is in the store."""
    for entry in runs.pop():
        entry.result = IngestResult.DUPLICATE
    older = [entry for run in runs for entry in run]
    for entry in older:
        entry.result = IngestResult.DISCARDED
    if older:
        logger.warning(
            "message %r arrived %d times before the copy that was stored", older[0].message.message_id, len(older)
        )
    runs.clear()


def _not_behind_claimed(entries: Sequence[IngestEntry], among: Sequence[IngestEntry]) -> Sequence[IngestEntry]:
    """Return `entries` without those of an id that one of `among` has found claimed, which are kept behind that."""
    found = [entry for entry in reversed(among) if entry.is_claimed]
    if not found:
        return entries
    claimed = {entry.message.message_id: entry for entry in found}
    for entry in entries:
        if entry.message.message_id in claimed:
            _hold(entry, claimed[entry.message.message_id])
    return [entry for entry in entries if not entry.is_claimed]


def _hold(entry: IngestEntry, other: IngestEntry) -> None:
    """Keep `entry` waiting for the dispatcher of its id, as `other` does, which was found claimed."""
    entry.is_claimed, entry.failure, entry.failing_since = True, other.failure, other.failing_since


def renamed(message: DelayedMessage) -> DelayedMessage:
    """`message` under another id, with its own in a header. Given the same message again, the id is the same, too."""
    said = repr((message.message_id, message.destination, _own_headers(message), message.properties)).encode()
    content = hashlib.blake2b(said + message.body, digest_size=16).digest()
    headers = {**message.headers, ORIGINAL_MESSAGE_ID: message.message_id}
    return replace(message, message_id=str(UUID(bytes=content)), headers=headers)


def is_same(message: DelayedMessage, other: DelayedMessage) -> bool:
    """Whether `other`, which waits, is `message`, perhaps with another due time, and headers that were added."""
    return (
        message.destination == other.destination
        and message.body == other.body
        and message.properties == other.properties
        and all(name in other.headers and other.headers[name] == value for name, value in _own_headers(message).items())
    )


def _own_headers(message: DelayedMessage) -> dict[str, object]:
    return {name: value for name, value in message.headers.items() if name not in OF_A_PUBLISH}
