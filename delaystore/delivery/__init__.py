"""`DelayedDelivery`, which a program embeds to send delayed messages, alone or in its own transaction.

`_sending` makes a message of `send`'s arguments; `_asynchronous` is the same delivery for asyncio.
May be changed freely: everything but the signatures of the classes in `__all__`.
May import: the ground, `stores`, `transports`, `dispatcher`, `operations`.
"""

from delaystore.delivery._asynchronous import (
    AsyncDelayedDelivery,
    AsyncEnlistedDelivery,
    AsyncOperations,
    AsyncSchedules,
)
from delaystore.delivery._delivery import DelayedDelivery
from delaystore.delivery._sending import EnlistedDelivery, Sender

__all__ = [
    "AsyncDelayedDelivery",
    "AsyncEnlistedDelivery",
    "AsyncOperations",
    "AsyncSchedules",
    "DelayedDelivery",
    "EnlistedDelivery",
    "Sender",
]
