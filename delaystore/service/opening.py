"""Opening the store and the transport of an endpoint, which its components share."""

import threading
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher.dispatcher import Dispatcher, check_pair
from delaystore.errors import ConfigurationError
from delaystore.stores import DelayedMessageStore, open_store
from delaystore.transports import Transport, open_transport

if TYPE_CHECKING:
    from delaystore.service.configuration.tree import EndpointConfiguration


def store_at(url: str, schema: str | None, table: str | None) -> DelayedMessageStore:
    """The store; raises ConfigurationError, also where it takes no schema or table. It connects to nothing yet."""
    store = open_store(url)
    if schema is None and table is None:
        return store
    from delaystore.stores.sql import SqlDelayedMessageStore

    store.close()
    if not isinstance(store, SqlDelayedMessageStore):
        raise ConfigurationError("a schema and a table go with a SQL store only; leave them out")
    return SqlDelayedMessageStore(url, schema=schema, table=table)


def transport_at(url: str, schema: str | None) -> Transport:
    """The transport, whose SQL queues are in the schema. Raises ConfigurationError. It connects to nothing yet."""
    transport = open_transport(url)
    if schema is None:
        return transport
    from delaystore.transports.sql_queue import SqlQueueTransport

    if not isinstance(transport, SqlQueueTransport):
        return transport
    transport.close()
    return SqlQueueTransport(url, schema=schema)


class OpenedEndpoint:
    """One endpoint, opened; nothing is connected yet. `delivery`: for the page, and for the control queue.

    Raises ConfigurationError for what cannot work, MissingDependencyError.
    """

    def __init__(self, name: str, configuration: "EndpointConfiguration") -> None:
        self.name: Final = name
        self._lock = threading.Lock()
        self._prepared = False
        self._dispatcher: Dispatcher | None = None
        with ExitStack() as opened:
            self.store: Final = store_at(configuration.store.value, configuration.schema, configuration.table)
            opened.callback(self.store.close)
            self.transport: Final = transport_at(configuration.transport.value, configuration.schema)
            opened.callback(self.transport.close)
            self.check(configuration)
            settings = replace(configuration.settings(), automatic_setup=False)
            self.delivery: Final = DelayedDelivery(name, self.store, self.transport, settings)
            opened.pop_all()

    def check(self, configuration: "EndpointConfiguration") -> None:
        """Raise ConfigurationError, or UnsupportedModeError, where the components could not work so."""
        try:
            check_pair(self.store, self.transport, configuration.settings())
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("handover_horizon", "handover", 1)) from None

    def dispatched_by(self, dispatcher: Dispatcher) -> None:
        """Have `wake_up` wake that dispatcher from now on."""
        self._dispatcher = dispatcher

    def wake_up(self, due_time: datetime) -> None:
        """Have the dispatcher begin a pass at that time: a component of this process has stored something."""
        if self._dispatcher is not None:
            self._dispatcher.wake_up(due_time)

    def prepare(self) -> None:
        """Set up the store's tables, once. Raises StoreError; StoreUnavailableError: try again."""
        with self._lock:
            if not self._prepared:
                self.store.setup_infrastructure()
                self._prepared = True

    def close(self) -> None:
        """Close store and transport; may be called twice."""
        self.transport.close()
        self.store.close()
