"""A task as a message that waits in a store."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from delaystore.bridge import in_thread
from delaystore.delivery import AsyncDelayedDelivery, AsyncEnlistedDelivery, DelayedDelivery, EnlistedDelivery
from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError
from delaystore.integrations._taken import waits_already
from delaystore.integrations.taskiq._publishing import Published
from delaystore.message import DelayedMessage
from delaystore.stores.abc import ManagementOutcome

RETRIES: Final = "_retries"
"""The label in which taskiq's middleware counts."""


Delivery = DelayedDelivery | AsyncDelayedDelivery
Transaction = EnlistedDelivery | AsyncEnlistedDelivery


async def keep_in_transaction(transaction: Transaction, task: Published, delay: float) -> None:
    """Store the task in somebody's transaction, `delay` in seconds. Raises what `send` raises."""
    sent = transaction.send(task.destination, task.body, message_id=task.message_id, **_options(task, delay))
    if isawaitable(sent):
        await sent


async def keep(delivery: Delivery, task: Published, delay: float) -> None:
    """Store the task, unless it waits already; `delay` in seconds. Raises what `send` raises.

    taskiq kicks a retry under the id of the task that failed: see `_taken.py`.
    """
    options = _options(task, delay)
    try:
        await _call(delivery, delivery.send, task.destination, task.body, message_id=task.message_id, **options)
    except MessageBeingDispatchedError:
        await _call(delivery, delivery.send, task.destination, task.body, **options)
    except DuplicateMessageError:
        if not await _waits(delivery, task, delay):
            await _call(delivery, delivery.send, task.destination, task.body, **options)


async def _waits(delivery: Delivery, task: Published, delay: float) -> bool:
    """Whether the store has this task or a later retry of it, which no dispatcher has claimed; due as this is."""
    found: DelayedMessage | None = await _call(delivery, delivery.get, task.message_id)
    if not waits_already(found, task.body, _retries(task.headers), lambda other: _retries(other.headers)):
        return False
    outcome = await _call(delivery, delivery.reschedule, task.message_id, delay=delay)
    return outcome is ManagementOutcome.DONE


async def _call(delivery: Delivery, operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What an operation of `delivery` returns."""
    if isinstance(delivery, DelayedDelivery):
        return await in_thread("delaystore-taskiq", partial(operation, *arguments, **options))
    return await operation(*arguments, **options)


def _retries(headers: Mapping[str, Any]) -> int:
    try:
        return int(headers.get(RETRIES, 0))
    except (TypeError, ValueError):
        return 0


def _options(task: Published, delay: float) -> dict[str, Any]:
    return {"delay": delay, "headers": task.headers, "properties": task.properties}
