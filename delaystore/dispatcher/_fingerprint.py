"""What is kept of a message to know it again."""

from collections.abc import Mapping
from dataclasses import fields
from hashlib import blake2b

from delaystore.message import DelayedMessage

ATTEMPTS = frozenset({"failure_count", "next_attempt"})
"""What giving way changes of a message."""


def fingerprint(message: DelayedMessage, without: frozenset[str] = frozenset()) -> bytes:
    """The same for messages that agree in everything, but for the fields `without`."""
    names = [field.name for field in fields(message) if field.name != "body" and field.name not in without]
    facts = [getattr(message, name) for name in names]
    text = repr([dict(fact) if isinstance(fact, Mapping) else fact for fact in facts])
    digest = blake2b(text.encode(), digest_size=16)
    digest.update(message.body)
    return digest.digest()
