"""Programs that send and dispatch messages with keys, made to be killed; each writes down what it does.

`python -m tests.faults.keys_program send|dispatch OPTIONS`, with the options as JSON; SIGTERM ends them in good order.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from typing_extensions import override

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.errors import DuplicateKeyError, KeyInUseError, StoreError
from delaystore.message import DelayedMessage, new_message_id
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.testing import RecordingTransport
from delaystore.transports.abc import Outcome
from tests.faults.backlog import DESTINATION, ENDPOINT

EPOCH = 4
"""Seconds after which programs turn to other keys, so that few calls are about one."""
KEPT, BOUNDED, ANY = "kept", "bounded", "any"
"""What a key is for: rejecting and keeping; debouncing; all there is."""
KEYS = {KEPT: 4, BOUNDED: 2, ANY: 6}
"""How many of each at a time."""
MAX_WAIT = 1.0
"""Seconds."""
ROLLED_BACK, REFUSED, LEFT_OUT = "rolled back", "refused", "left out"
_ended = False


class Diary:
    """A file of JSON lines, each in it once `write` returns."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, **fields: Any) -> None:
        os.write(self._file, f"{json.dumps(fields)}\n".encode())


class WritingTransport(RecordingTransport):
    """Delivers into a diary, after a while."""

    def __init__(self, diary: Diary) -> None:
        super().__init__()
        self._diary = diary

    @override
    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        time.sleep(random.uniform(0, 0.05))
        for message in messages:
            self._diary.write(id=message.message_id, due=message.due_time.timestamp(), at=time.time())
        time.sleep(random.uniform(0, 0.05))
        return super().send(messages, transaction, timeout)


class Caller:
    """Calls by key, one after the other, at random."""

    def __init__(self, url: str, diary: Diary) -> None:
        self._diary = diary
        self._delivery = DelayedDelivery(ENDPOINT, open_store(url))
        self._engine = create_engine(url)
        self._calls: Mapping[str, Sequence[Callable[[str], str]]] = {
            KEPT: (self._keep, self._keep, self._keep_enlisted, self._keep_many, self._reschedule),
            BOUNDED: (self._debounce,),
            ANY: (self._send, self._send, self._send_many, self._send_enlisted, self._cancel, self._change_enlisted),
        }

    def call(self) -> None:
        """One call, written down before and after."""
        kind = random.choice(list(KEYS))
        key = f"{kind} {int(time.time() / EPOCH)} {random.randrange(KEYS[kind])}"
        call, number = random.choice(self._calls[kind]), new_message_id()
        self._id = new_message_id()
        began = time.time()
        self._diary.write(call=number, name=call.__name__, key=key, id=self._id, began=began)
        try:
            answer = call(key)
        except (DuplicateKeyError, KeyInUseError) as error:
            answer = f"{REFUSED}: {type(error).__name__}"
        except StoreError as error:
            answer = f"error: {type(error).__name__}: {error}"
        self._diary.write(call=number, answer=answer, ended=time.time())

    def _keep(self, key: str) -> str:
        return self._sent(self._delivery, key, random.choice(["keep", "reject"]))

    def _keep_many(self, key: str) -> str:
        return self._many(self._delivery, key, "keep")

    def _keep_enlisted(self, key: str) -> str:
        return self._enlisted(lambda enlisted: self._sent(enlisted, key, "keep"))

    def _reschedule(self, key: str) -> str:
        return self._delivery.reschedule(key=key, delay=random.uniform(0, 0.3))

    def _debounce(self, key: str) -> str:
        return self._delivery.send(
            DESTINATION, b"", delay=0.7, key=key, on_key="debounce", max_wait=MAX_WAIT, message_id=self._id
        )

    def _send(self, key: str) -> str:
        return self._sent(self._delivery, key, self._any_rule())

    def _send_many(self, key: str) -> str:
        return self._many(self._delivery, key, "replace")

    def _send_enlisted(self, key: str) -> str:
        return self._enlisted(lambda enlisted: self._sent(enlisted, key, self._any_rule()))

    def _cancel(self, key: str) -> str:
        return self._delivery.cancel(key=key)

    def _change_enlisted(self, key: str) -> str:
        if random.random() < 0.5:
            return self._enlisted(lambda enlisted: enlisted.cancel(key=key))
        return self._enlisted(lambda enlisted: enlisted.reschedule(key=key, delay=0.1))

    def _any_rule(self) -> str:
        return random.choice(["keep", "reject", "replace", "debounce"])

    def _sent(self, delivery: DelayedDelivery | EnlistedDelivery, key: str, on_key: str) -> str:
        delay = random.choice([random.uniform(0, 0.3), 70.0 if key.startswith(ANY) else 0.0])
        return delivery.send(DESTINATION, b"", delay=delay, key=key, on_key=on_key, message_id=self._id)

    def _many(self, delivery: DelayedDelivery | EnlistedDelivery, key: str, on_key: str) -> str:
        now = self._delivery._now() + timedelta(seconds=random.uniform(0, 0.3))
        one = DelayedMessage(message_id=self._id, destination=DESTINATION, due_time=now, body=b"", key=key)
        return self._id if delivery.send_many([one], on_key=on_key) else LEFT_OUT

    def _enlisted(self, call: Callable[[EnlistedDelivery], str]) -> str:
        with self._engine.connect() as connection:
            answer = call(self._delivery.enlist(connection))
            time.sleep(random.choice([0, 0.05]))
            if random.random() < 0.3:
                connection.rollback()
                return ROLLED_BACK
            connection.commit()
            return answer


def open_store(url: str) -> SqlDelayedMessageStore:
    """The store, with leases that end soon."""
    return SqlDelayedMessageStore(url, lease=timedelta(seconds=2))


def main(role: str, options: dict[str, Any]) -> None:
    """Go on until SIGTERM."""
    diary = Diary(str(Path(options["folder"]) / f"{role}-{os.getpid()}"))
    signal.signal(signal.SIGTERM, _end)
    if role == "send":
        caller = Caller(options["url"], diary)
        while not _ended:
            caller.call()
        return
    settings = DelayedDeliverySettings(poll_interval=timedelta(seconds=0.1))
    with DelayedDelivery(ENDPOINT, open_store(options["url"]), WritingTransport(diary), settings):
        while not _ended:
            time.sleep(0.05)


def _end(*_: object) -> None:
    global _ended
    _ended = True


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
