"""Messages to send."""

from datetime import UTC, datetime, timedelta
from typing import Any

from delaystore.message import DelayedMessage, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores.sql import SqlDelayedMessageStore

ENDPOINT = "faults"
DESTINATION = "billing"


def message(destination: str = DESTINATION, due_in: float = 0, **more: Any) -> DelayedMessage:
    """A message of 200 bytes, due `due_in` seconds from now, or else at `due_time`."""
    return DelayedMessage(
        **{
            "message_id": new_message_id(),
            "destination": destination,
            "due_time": datetime.now(UTC) + timedelta(seconds=due_in),
            "body": b"x" * 200,
            **more,
        }
    )


def messages(count: int, destination: str = DESTINATION, due_in: float = 0) -> list[DelayedMessage]:
    """So many of them."""
    return [message(destination, due_in) for _ in range(count)]


def ids(sent: list[DelayedMessage]) -> list[str]:
    """Their message_ids."""
    return [each.message_id for each in sent]


def open_store(
    url: str, mode: TransactionMode = TransactionMode.RECEIVE_ONLY, **options: Any
) -> SqlDelayedMessageStore:
    """The store at `url`, set up."""
    store = SqlDelayedMessageStore(url, **options)
    store.initialize(ENDPOINT, mode)
    store.setup_infrastructure()
    return store
