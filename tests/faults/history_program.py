"""A program that stores, cancels, reschedules and replaces messages, made to be killed; it notes each call in a file.

`python -m tests.faults.history_program URL FOLDER`; SIGTERM ends it in good order. No id is used for two messages.
"""

import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateKeyError, KeyInUseError, MessageBeingDispatchedError, StoreError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, new_message_id
from delaystore.stores.sql import SqlDelayedMessageStore
from tests.faults.backlog import DESTINATION, ENDPOINT
from tests.faults.keys_program import Diary

NOWHERE = "nowhere"
"""A queue that does not exist."""
STORED, ROLLED_BACK, REFUSED, CHANGED = "stored", "rolled back", "refused", "changed"
"""Answers of calls, or how they begin."""
EXPIRED = "send an expired one"
KEYS = 8
GROUP = 20
"""Messages that are stored together."""
PAUSE = 0.004
"""The longest pause between two calls, in seconds."""


class Caller:
    """Makes calls at random, each written down before and after."""

    def __init__(self, url: str, diary: Diary) -> None:
        self._diary = diary
        self._delivery = DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(url))
        self._engine = create_engine(url)
        self._known: deque[str] = deque(maxlen=40)
        """Messages that may wait."""
        self._groups: deque[str] = deque(maxlen=4)
        self._calls: Sequence[tuple[Callable[[], None], int]] = (
            (self._send, 30),
            (self._send_to_nowhere, 5),
            (self._send_expired, 5),
            (self._send_group, 4),
            (self._send_with_key, 12),
            (self._cancel, 20),
            (self._cancel_key, 4),
            (self._cancel_group, 4),
            (self._reschedule, 5),
            (self._in_own_transaction, 8),
        )

    def call(self) -> None:
        """One call."""
        calls, weights = zip(*self._calls, strict=True)
        random.choices(calls, weights)[0]()
        time.sleep(random.uniform(0, PAUSE))

    def _noted(self, call: Callable[[], str], name: str, **about: Any) -> None:
        number = new_message_id()
        self._diary.write(call=number, name=name, **about)
        try:
            answer = call()
        except (DuplicateKeyError, KeyInUseError, MessageBeingDispatchedError):
            answer = REFUSED
        except (StoreError, DBAPIError) as error:  # the latter of a commit of its own transaction
            answer = f"error: {type(error).__name__}: {error}"
        self._diary.write(call=number, answer=answer)

    def _send(self) -> None:
        self._store(delay=random.choice([0, 0.1, 0.5, 3600]))

    def _send_to_nowhere(self) -> None:
        self._store(NOWHERE, delay=random.uniform(0, 0.3))

    def _send_expired(self) -> None:
        now = datetime.now(UTC)
        self._store(at=now - timedelta(minutes=2), not_after=now - timedelta(minutes=1), name=EXPIRED)

    def _send_with_key(self) -> None:
        on_key = random.choice(["replace", "debounce"])
        self._store(key=self._key(), on_key=on_key, delay=random.choice([0.2, 3600]))

    def _store(self, destination: str = DESTINATION, name: str = "send", **options: Any) -> None:
        message_id = new_message_id()

        def store() -> str:
            self._delivery.send(destination, b"x", message_id=message_id, **options)
            if name != EXPIRED:  # its latest delivery would be rescheduled with it
                self._known.append(message_id)
            return STORED

        self._noted(store, name, stores=[message_id], destination=destination, key=options.get("key"))

    def _send_group(self) -> None:
        prefix, due = new_message_id(), datetime.now(UTC) + timedelta(seconds=random.choice([0.3, 3600]))
        group = [
            DelayedMessage(message_id=f"{prefix}-{number}", destination=DESTINATION, due_time=due, body=b"x")
            for number in range(GROUP)
        ]

        def store() -> str:
            self._delivery.send_many(group)
            self._groups.append(prefix)
            return STORED

        self._noted(store, "send", stores=[each.message_id for each in group], destination=DESTINATION)

    def _cancel(self) -> None:
        if self._known:
            message_id = random.choice(self._known)
            self._noted(lambda: self._delivery.cancel(message_id), "cancel", cancels=message_id)

    def _cancel_key(self) -> None:
        key = self._key()
        self._noted(lambda: self._delivery.cancel(key=key), "cancel", cancels=key)

    def _cancel_group(self) -> None:
        if self._groups:
            prefix = self._groups.popleft()
            operations, wanted = self._delivery.operations, MessageFilter(id_prefix=prefix)
            self._noted(lambda: f"{CHANGED} {operations.cancel(wanted).changed}", "operation", cancels=prefix)

    def _reschedule(self) -> None:
        if self._known:
            message_id = random.choice(self._known)
            self._noted(lambda: self._delivery.reschedule(message_id, delay=0), "reschedule")

    def _in_own_transaction(self) -> None:
        """Store a message and cancel another, together or not at all."""
        if not self._known:
            return
        stored, cancelled = new_message_id(), random.choice(self._known)
        commits = random.random() < 0.7

        def change() -> str:
            with self._engine.connect() as connection:
                enlisted = self._delivery.enlist(connection)
                enlisted.send(DESTINATION, b"x", delay=random.choice([0, 3600]), message_id=stored)
                outcome = enlisted.cancel(cancelled)
                if not commits:
                    connection.rollback()
                    return ROLLED_BACK
                connection.commit()
                self._known.append(stored)
                return f"{STORED}, {outcome}"

        self._noted(change, "enlisted", stores=[stored], destination=DESTINATION, cancels=cancelled)

    def _key(self) -> str:
        return f"key {random.randrange(KEYS)}"


def main(url: str, folder: str) -> None:
    """Go on until SIGTERM."""
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    caller = Caller(url, Diary(str(Path(folder) / f"diary-{os.getpid()}")))
    while not ended:
        caller.call()


if __name__ == "__main__":
    main(*sys.argv[1:])
