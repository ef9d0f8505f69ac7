"""A Dramatiq message as one that waits in a store."""

from collections.abc import Mapping
from typing import Any

from dramatiq.errors import DecodeError
from dramatiq.message import Message

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError
from delaystore.integrations._taken import waits_already
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.operable import Way


def keep_in_transaction(transaction: EnlistedDelivery, message: Message[Any], delay: float) -> None:
    """Store the message in somebody's transaction, `delay` in seconds. Raises what `send` raises."""
    transaction.send(
        message.queue_name,
        message.encode(),
        delay=delay,
        properties=_properties(message),
        message_id=message.message_id,
    )


def keep(delivery: DelayedDelivery, message: Message[Any], delay: float) -> None:
    """Store the message, unless it waits already; `delay` in seconds. Raises what `send` raises.

    Dramatiq enqueues a retry under the id of the message that failed: see `_taken.py`.
    """
    body, properties = message.encode(), _properties(message)
    try:
        delivery.send(message.queue_name, body, delay=delay, properties=properties, message_id=message.message_id)
    except MessageBeingDispatchedError:
        delivery.send(message.queue_name, body, delay=delay, properties=properties)
    except DuplicateMessageError:
        if not _waits(delivery, message, body, delay):
            delivery.send(message.queue_name, body, delay=delay, properties=properties)


def _waits(delivery: DelayedDelivery, message: Message[Any], body: bytes, delay: float) -> bool:
    """Whether the store has this message or a later retry of it, which no dispatcher has claimed; due as this is."""
    found = delivery.get(message.message_id)
    if not waits_already(found, body, message.options.get("retries", 0), lambda other: _retries(other.body)):
        return False
    outcome = delivery.changes_as(Way.DRAMATIQ).reschedule(message.message_id, delay=delay)
    return outcome is ManagementOutcome.DONE


def _retries(body: bytes) -> int:
    try:
        retries: int = Message.decode(body).options.get("retries", 0)
    except DecodeError:
        return 0
    return retries


def _properties(message: Message[Any]) -> Mapping[str, Any]:
    """As RabbitmqBroker's; a stored message is persistent anyway."""
    priority = message.options.get("broker_priority")
    return {} if priority is None else {"priority": priority}
