"""What is kept of a message to know it again."""

from collections.abc import Mapping
from dataclasses import fields
from hashlib import blake2b

from delaystore.message import DelayedMessage, UnreadableMessage

ATTEMPTS = frozenset({"failure_count", "next_attempt"})
"""What giving way changes of a message."""


def is_named(message: DelayedMessage) -> bool:
    """Whether the store has it under its message_id, by which it can be asked for."""
    return not isinstance(message, UnreadableMessage) or message.stored_id is None


def fingerprint(message: DelayedMessage, without: frozenset[str] = frozenset()) -> bytes:
    """The same for messages that agree in everything, but for the fields `without`."""
    names = [field.name for field in fields(message) if field.name != "body" and field.name not in without]
    facts = [getattr(message, name) for name in names]
    text = repr([dict(fact) if isinstance(fact, Mapping) else fact for fact in facts])
    digest = blake2b(text.encode(), digest_size=16)
    digest.update(message.body)
    return digest.digest()
