"""A process that sends, in every way there is, and cancels and reschedules what it has sent.

Its ids are its own, and a send that fails is repeated with the same id until it is acknowledged.
"""

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy import exc, text

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateMessageError, StoreError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import ManagementOutcome
from tests.chaos.program import CLASSIC, ENDPOINT, MISSING, ORDERS, QUORUM, Program
from tests.chaos.recording_store import Notebook, RecordingStore, body_of
from tests.chaos.remembered import Remembered

REPEAT_AFTER = 0.2  # seconds
GIVE_UP = 15.0  # seconds that an attempt is repeated after SIGTERM
ROLLED_BACK = 0.2
"""How many of the orders."""
FAILURES = (StoreError, exc.SQLAlchemyError)


class RolledBackError(Exception):
    """The transaction of an order is given up."""


class Sender:
    """Does one thing after another, chosen by chance."""

    def __init__(self, program: Program) -> None:
        options = program.options
        self._program = program
        self._load = options.load
        self._random = random.Random(f"{options.seed} {options.name}")
        self._mark = f"{options.name}.{os.getpid()}"
        self._number = 0
        self._sent = Remembered(self._random)
        self._store = RecordingStore(options.store_url, lease=timedelta(seconds=options.load.lease))
        self._notebook = self._store.notebook = Notebook(program.recorder)
        self._delivery = DelayedDelivery(ENDPOINT, self._store, settings=options.settings())
        self._actions: dict[Callable[[], int], float] = {
            self._send: 60,
            self._send_many: 90 / self._load.batch,
            self._enlist: 12,
            self._cancel: 6,
            self._reschedule: 10,
            self._replace: 4,
            self._send_again: 15,
        }

    def run(self) -> None:
        """Until SIGTERM."""
        actions, weights = list(self._actions), list(self._actions.values())
        due = time.monotonic()
        while not self._program.ended.wait(max(0, due - time.monotonic())):
            (action,) = self._random.choices(actions, weights)
            due = max(due, time.monotonic() - 1) + action() / self._load.rate
        self._store.close()

    def _send(self) -> int:
        self._send_one(key := self._new_key(), key)
        return 1

    def _send_one(self, key: str, message_id: str, *, fresh: bool = True) -> None:
        destination, delay = self._destination(), self._delay()
        at = self._at(delay) if self._random.random() < 0.5 else None  # the others count from each attempt

        def attempt() -> None:
            self._notebook.fresh = fresh
            self._delivery.send(
                destination, body_of(key), message_id=message_id, at=at, delay=delay if at is None else None
            )

        if self._until_acknowledged(attempt, fresh=fresh):
            self._sent.add(message_id, time.time() + delay)

    def _send_many(self) -> int:
        keys = [self._new_key() for _ in range(self._load.batch)]
        at_once = self._at(self._delay()) if self._random.random() < 0.5 else None
        messages = [
            DelayedMessage(
                message_id=key,
                destination=self._destination(),
                due_time=at_once or self._at(self._delay()),
                body=body_of(key),
            )
            for key in keys
        ]

        def attempt() -> None:
            self._notebook.fresh = True
            self._delivery.send_many(messages)

        if self._until_acknowledged(attempt):
            for message in messages:
                self._sent.add(message.message_id, message.due_time.timestamp())
        return len(keys)

    def _enlist(self) -> int:
        """An order, and its message, in one transaction: both or neither. Some are rolled back: neither."""
        key = self._new_key()
        destination, at = self._destination(), self._at(self._delay())
        message = DelayedMessage(message_id=key, destination=destination, due_time=at, body=body_of(key))
        rolled_back = self._random.random() < ROLLED_BACK

        def attempt() -> None:
            self._notebook.fresh = True
            with self._notebook.sending([message], "enlisted"):
                try:
                    with self._store.engine.begin() as connection:
                        connection.execute(text(f"INSERT INTO {ORDERS} VALUES (:id)"), {"id": key})
                        self._delivery.enlist(connection).send(destination, message.body, at=at, message_id=key)
                        time.sleep(self._random.uniform(0, self._load.linger))
                        if rolled_back:
                            raise RolledBackError
                except exc.IntegrityError:
                    raise DuplicateMessageError([key]) from None

        with suppress(RolledBackError):
            if self._until_acknowledged(attempt):
                self._sent.add(key, at.timestamp())
        return 1

    def _cancel(self) -> int:
        if (message_id := self._sent.recent()) is not None:
            self._cancel_one(message_id)
        return 1

    def _cancel_one(self, message_id: str) -> bool:
        try:
            return self._delivery.cancel(message_id) is ManagementOutcome.DONE
        except StoreError:
            return False

    def _reschedule(self) -> int:
        if (message_id := self._sent.recent()) is not None:
            with suppress(StoreError):  # noted; whether it is done nobody knows
                self._delivery.reschedule(message_id, delay=self._delay())
        return 1

    def _replace(self) -> int:
        """Cancel a message, and send another with its id."""
        message_id = self._sent.recent()
        if message_id is not None and self._cancel_one(message_id):
            self._use_again(message_id)
        return 1

    def _send_again(self) -> int:
        """Use an id again, whose message has probably arrived."""
        if (message_id := self._sent.arrived()) is not None:
            self._use_again(message_id)
        return 1

    def _use_again(self, message_id: str) -> None:
        self._sent.forget(message_id)
        self._send_one(self._new_key(), message_id, fresh=False)

    def _until_acknowledged(self, attempt: Callable[[], None], *, fresh: bool = True) -> bool:
        """Repeat it after each failure. False: it gave up, or the id belongs to an older message."""
        give_up = None
        while True:
            try:
                attempt()
            except DuplicateMessageError:
                return fresh
            except FAILURES:
                if self._program.ended.wait(REPEAT_AFTER):
                    give_up = give_up or time.monotonic() + GIVE_UP
                    if time.monotonic() > give_up:
                        return False
                    time.sleep(REPEAT_AFTER)
            else:
                return True

    def _new_key(self) -> str:
        self._number += 1
        return f"{self._mark}.{self._number}"

    def _destination(self) -> str:
        return self._random.choices([QUORUM, CLASSIC, MISSING], [60, 37, 3])[0]

    def _delay(self) -> float:
        return self._random.uniform(self._load.shortest, self._load.longest)

    def _at(self, delay: float) -> datetime:
        """So many seconds from now by the store's clock, once that can be asked."""
        while True:
            try:
                return self._store.now() + timedelta(seconds=delay)
            except StoreError:
                if self._program.ended.wait(REPEAT_AFTER):
                    raise SystemExit from None


if __name__ == "__main__":
    Sender(Program()).run()
