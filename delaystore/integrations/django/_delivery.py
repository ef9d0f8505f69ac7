"""Sending in Django's transactions."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.db import connections, transaction

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.integrations.django._database import store_engine, store_url
from delaystore.integrations.django._settings import django_settings
from delaystore.operations.changes import MessageChanges
from delaystore.stores.operable import Way
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.bound import BoundSqlStore

P = ParamSpec("P")
R = TypeVar("R")


def _enlisted(
    operation: Callable[Concatenate[EnlistedDelivery, P], R],
) -> Callable[Concatenate["DjangoDelivery", P], R]:
    """`operation` in the transaction of Django's connection, or in one of its own where none is open."""

    @wraps(operation)
    def call(self: "DjangoDelivery", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._transaction() as (delivery, connection):
            return operation(delivery.enlist(connection), *args, **kwargs)

    return call


class DjangoDelivery:
    """The operations of an EnlistedDelivery, on Django's own connection.

    Within `transaction.atomic` they are part of it: what is rolled back was never sent. Outside of it each is committed
    before it returns. Arguments and errors are those of EnlistedDelivery. Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: tuple[Any, SqlDelayedMessageStore, DelayedDelivery] | None = None

    send = _enlisted(EnlistedDelivery.send)
    send_many = _enlisted(EnlistedDelivery.send_many)
    cancel = _enlisted(EnlistedDelivery.cancel)
    reschedule = _enlisted(EnlistedDelivery.reschedule)
    get = _enlisted(EnlistedDelivery.get)

    @contextmanager
    def changing(self, by: str) -> Iterator[MessageChanges]:
        """Cancel, reschedule and send now in the block, as an operator whose changes are noted in the store as `by`."""
        with self._transaction() as (delivery, connection):
            yield delivery.enlist(connection).changes_as(Way.DJANGO, by)

    @contextmanager
    def reading(self) -> Iterator[BoundSqlStore]:
        """The store in Django's transaction, or in one of the block's own, to list and count what waits."""
        with self._transaction() as (_, connection):
            yield self.store.enlist(connection)

    @property
    def store(self) -> SqlDelayedMessageStore:
        """The store at the database that DELAYSTORE names; it opens no connection by itself."""
        return self._open()[0]

    @contextmanager
    def _transaction(self) -> Iterator[tuple[DelayedDelivery, Any]]:
        _, delivery, alias = self._open()
        connection = connections[alias]
        if connection.in_atomic_block or not connection.get_autocommit():
            yield delivery, connection
            return
        with transaction.atomic(using=alias):
            yield delivery, connection

    def _open(self) -> tuple[SqlDelayedMessageStore, DelayedDelivery, str]:
        """Store, delivery and the database's alias; made anew where the settings changed, as test runners do."""
        settings = django_settings()
        database = connections[settings.database].settings_dict
        key = (settings, store_url(database))
        with self._lock:
            if self._opened is None or self._opened[0] != key:
                store = SqlDelayedMessageStore(store_engine(database), schema=settings.schema, table=settings.table)
                self._opened = (key, store, DelayedDelivery(settings.endpoint, store, None, settings.delivery))
            _, store, delivery = self._opened
        return store, delivery, settings.database
