"""SQL stores and messages for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, event

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


def set_snapshot_isolation(engine: Engine, to: str) -> None:
    """Set MariaDB's innodb_snapshot_isolation in the engine's sessions; ON is the default from 11.6.2 on."""

    def prepare(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            if cursor.execute("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'"):
                cursor.execute(f"SET SESSION innodb_snapshot_isolation = {to}")

    if engine.dialect.name in ("mysql", "mariadb"):
        event.listen(engine, "connect", prepare)
