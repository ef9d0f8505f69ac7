"""Compares the history of a store with what programs wrote down of their calls, and with what arrived."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.history import HistoryEntry, HistoryFilter
from delaystore.stores.records import ChangeAction, Ending
from delaystore.stores.sql import SqlDelayedMessageStore
from tests.faults.backlog import DESTINATION
from tests.faults.history_program import CHANGED, EXPIRED, GROUP, NOWHERE, STORED

PAGE = 1_000
OF_DISPATCHERS = {Ending.DELIVERED, Ending.FAILED, Ending.EXPIRED}
DONE = {str(ManagementOutcome.DONE), f"{STORED}, {ManagementOutcome.DONE}"}
"""Answers of calls that have cancelled one message."""


def is_unknown(answer: str | None) -> bool:
    """Whether a call may have made its change, or not. None: its process was killed before an answer."""
    return answer is None or answer.startswith("error")


@dataclass
class Message:
    """A message of the program: the call that stores it, and its end.

    `targets`: what calls that cancel it name: its id, its key, or the prefix of its group.
    """

    name: str
    destination: str
    answer: str | None
    key: str | None
    targets: Sequence[str]
    waits: bool = False
    entries: list[HistoryEntry] = field(default_factory=list)
    arrived: int = 0
    failed: int = 0

    @property
    def is_stored(self) -> bool:
        return self.answer is not None and self.answer.startswith(STORED)

    @property
    def may_be_stored(self) -> bool:
        return self.is_stored or is_unknown(self.answer)


class Story:
    """All messages, and the answers of all calls that cancel some.

    `dropped`: how many expired messages the audit trail says to have been dropped.
    """

    def __init__(
        self, diaries: Path, store: SqlDelayedMessageStore, arrived: Counter[str], failed: Counter[str]
    ) -> None:
        self._messages: dict[str, Message] = {}
        self._cancels: dict[str, list[str | None]] = defaultdict(list)
        self._of_key: dict[str | None, list[Message]] = defaultdict(list)
        for call in _calls_in(diaries):
            self._note_call(call)
        self._strange: list[str] = []
        self._dropped = sum(each.count for each in store.changes(1_000_000) if each.action == ChangeAction.EXPIRE)
        self._note_end(store, arrived, failed)

    @property
    def endings(self) -> Counter[Ending]:
        """How many messages have ended how."""
        return Counter(entry.ending for message in self._messages.values() for entry in message.entries)

    def __str__(self) -> str:
        messages = self._messages.values()
        unanswered, waiting = sum(is_unknown(each.answer) for each in messages), sum(each.waits for each in messages)
        again = sum(max(0, each.arrived - 1) for each in messages)
        endings = ", ".join(f"{count} {ending}" for ending, count in sorted(self.endings.items()))
        return (
            f"{len(messages)} messages ({unanswered} of calls without an answer): {endings} ({self._dropped} dropped), "
            f"{waiting} wait; {again} arrived again"
        )

    def findings(self) -> Iterator[str]:
        """What cannot be, a line each."""
        yield from self._strange
        for message_id, message in self._messages.items():
            for wrong in (*_wrong_number(message), *self._wrong_entries(message_id, message)):
                yield f"{message_id}: {wrong}: {message}, {[self._cancels.get(each) for each in message.targets]}"
        for key, messages in self._of_key.items():
            if key is not None and sum(each.waits for each in messages) > 1:
                yield f"several messages with the key {key!r} wait"
        yield from self._wrong_sums()

    def _note_call(self, call: dict[str, Any]) -> None:
        for message_id in call.get("stores", ()):
            targets = [message_id, call.get("key") or message_id.rpartition("-")[0]]
            message = Message(call["name"], call["destination"], call["answer"], call.get("key"), targets)
            self._messages[message_id] = message
            self._of_key[message.key].append(message)
        if "cancels" in call:
            self._cancels[call["cancels"]].append(call["answer"])

    def _note_end(self, store: SqlDelayedMessageStore, arrived: Counter[str], failed: Counter[str]) -> None:
        for entry in _entries_of(store):
            if message := self._known(entry.message_id, f"has an entry, {entry}"):
                message.entries.append(entry)
        for message_id in _waiting_in(store):
            if message := self._known(message_id, "waits"):
                message.waits = True
        for queue in (arrived, failed):
            for message_id, count in queue.items():
                if message := self._known(message_id, "arrived"):
                    message.arrived += count if queue is arrived else 0
                    message.failed += count if queue is failed else 0

    def _known(self, message_id: str, what: str) -> Message | None:
        message = self._messages.get(message_id)
        if message is None:
            self._strange.append(f"{message_id}: never sent, and {what}")
        return message

    def _wrong_entries(self, message_id: str, message: Message) -> Iterator[str]:
        may_be_cancelled = any(
            is_unknown(answer) or answer in DONE or (answer or "").startswith(CHANGED)
            for target in message.targets
            for answer in self._cancels.get(target, ())
        )
        has_key = message.key is not None
        is_expired = message.name == EXPIRED
        for entry in message.entries:
            if (entry.destination, entry.key) != (message.destination, message.key):
                yield "its entry has other values"
            elif entry.ending in OF_DISPATCHERS and entry.attempts < (entry.ending is not Ending.EXPIRED):
                yield "no attempt is counted"
            elif not {
                Ending.DELIVERED: message.arrived > 0 and message.destination == DESTINATION and not is_expired,
                Ending.FAILED: message.failed > 0 and message.destination == NOWHERE,
                Ending.EXPIRED: is_expired,
                Ending.CANCELLED: may_be_cancelled,
                Ending.REPLACED: has_key and sum(each.may_be_stored for each in self._of_key[message.key]) > 1,
            }.get(entry.ending, False):
                yield "it cannot have ended so"
        is_cancelled = DONE.intersection(self._cancels.get(message_id, ()))
        if is_cancelled and [entry.ending for entry in message.entries] != [Ending.CANCELLED]:
            yield "it is cancelled, and has no such entry"

    def _wrong_sums(self) -> Iterator[str]:
        done = unknown = 0
        for target, answers in self._cancels.items():
            is_group = f"{target}-0" in self._messages
            for answer in answers:
                done += int(answer.removeprefix(CHANGED)) if answer and answer.startswith(CHANGED) else answer in DONE
                unknown += is_unknown(answer) * (GROUP if is_group else 1)
        cancelled = self.endings[Ending.CANCELLED]
        if not done <= cancelled <= done + unknown:
            yield f"{cancelled} entries of cancelled messages; {done} were cancelled, and {unknown} perhaps"
        expired = [each for each in self._messages.values() if any(e.ending is Ending.EXPIRED for e in each.entries)]
        gone = [each for each in expired if not each.failed]
        if not len(gone) <= self._dropped <= len(expired):
            yield f"{len(expired)} have expired, {len(gone)} are not in the error queue; {self._dropped} were dropped"


def _wrong_number(message: Message) -> Iterator[str]:
    states = message.waits + len(message.entries)
    if states > 1:
        yield f"it is in {states} states"
    elif states and not message.may_be_stored:
        yield "it was not stored"
    elif not states and message.is_stored:
        yield "it neither waits nor has an entry"
    elif (message.arrived or message.failed) and not message.entries:
        yield "it arrived, and has no entry"


def _calls_in(folder: Path) -> Sequence[dict[str, Any]]:
    """The calls, with their answers; None: the process was killed first."""
    calls: dict[str, dict[str, Any]] = {}
    for path in folder.glob("diary-*"):
        for line in map(json.loads, path.read_text().splitlines()):
            calls.setdefault(line.pop("call"), {"answer": None}).update(line)
    return list(calls.values())


def _entries_of(store: SqlDelayedMessageStore) -> Iterator[HistoryEntry]:
    page = store.history(HistoryFilter(), limit=PAGE)
    yield from page.entries
    while page.next_key is not None:
        page = store.history(HistoryFilter(), after=page.next_key, limit=PAGE)
        yield from page.entries


def _waiting_in(store: SqlDelayedMessageStore) -> Iterator[str]:
    page = store.list(limit=PAGE)
    yield from (each.message_id for each in page.messages)
    while page.next_key is not None:
        page = store.list(after=page.next_key, limit=PAGE)
        yield from (each.message_id for each in page.messages)
