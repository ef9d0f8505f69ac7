"""Tasks in the caller's transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from delaystore.delivery import DelayedDelivery, EnlistedDelivery

_transaction: Final[ContextVar[Any]] = ContextVar("delaystore_celery_transaction", default=None)


@contextmanager
def tasks_in(connection_or_session: Any) -> Iterator[None]:
    """Within the block, tasks are stored, and revoked there, in the transaction of what `DelayedDelivery.enlist` takes.

    A rollback undoes that. What does not concern the store goes to the broker at once, as ever. Retries are stored by
    themselves: the exception that ends the attempt would roll them back. Other threads have no part in it.
    """
    token = _transaction.set(connection_or_session)
    try:
        yield
    finally:
        _transaction.reset(token)


def transaction() -> Any:
    """What the block around was given; None: there is none."""
    return _transaction.get()


def enlisted(delivery: DelayedDelivery) -> EnlistedDelivery | None:
    """`delivery` in the transaction of the block around; None: there is none."""
    target = transaction()
    return None if target is None else delivery.enlist(target)
