"""Copies of messages: changed ones, and ones that share no dict with the store."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from delaystore.message import DelayedMessage


def copied(message: DelayedMessage) -> DelayedMessage:
    """`message` with headers and properties of its own."""
    if not message.headers and not message.properties:
        return message
    return replace(message, headers=_copied(message.headers), properties=_copied(message.properties))


def after_failure(message: DelayedMessage, next_attempt: datetime) -> DelayedMessage:
    """`message` with one more failure, to be shown again at `next_attempt`."""
    return replace(message, failure_count=message.failure_count + 1, next_attempt=next_attempt)


def rescheduled(message: DelayedMessage, due_time: datetime) -> DelayedMessage:
    """`message` due at `due_time`, as if it had never failed."""
    return replace(message, due_time=due_time, failure_count=0, next_attempt=None)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
