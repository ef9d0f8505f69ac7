"""SQL stores and messages for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from delaystore.message import DelayedMessage, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore


@contextmanager
def opened(url: str | Engine, **options: Any) -> Iterator[SqlDelayedMessageStore]:
    store = SqlDelayedMessageStore(url, **options)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    try:
        yield store
    finally:
        store.close()


def message(now: datetime, seconds: float = 0, message_id: str | None = None, **fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"destination": "billing", "body": b"pay", **fields}
    due_time = now + timedelta(seconds=seconds)
    return DelayedMessage(message_id=message_id or new_message_id(), due_time=due_time, **values)
