"""From options to the things they name."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from delaystore.cli.files import require_file
from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.registry import open_store
from delaystore.transports.abc import Transport
from delaystore.transports.registry import open_transport

READING = DelayedDeliverySettings(automatic_setup=False)
"""For commands that only look: a mistyped endpoint shall not get tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whose messages a command is about, as given on the command line.

    `memory`: whether what is lost when the command ends will do.
    """

    store: str | None
    endpoint: str | None
    schema: str | None = None
    table: str | None = None
    transport: str | None = None
    memory: bool = False

    def open_store(self) -> DelayedMessageStore:
        """The store; ConfigurationError where it is not given, in memory, or has no schema or table to choose."""
        url = required(self.store, "store", "--store URL", "DELAYSTORE_STORE")
        self._check_lasting(url, "store", "a database, as in sqlite:///app.db")
        store = open_store(url)
        if self.schema is None and self.table is None:
            return store
        from delaystore.stores.sql import SqlDelayedMessageStore

        if not isinstance(store, SqlDelayedMessageStore):
            raise ConfigurationError("--schema and --table go with a SQL store only; leave them out")
        store.close()
        return SqlDelayedMessageStore(url, schema=self.schema, table=self.table)

    def open_transport(self, *, existing: bool = False) -> Transport:
        """The transport; SQL queues lie in the schema given. ConfigurationError where it is not given, or in memory.

        `existing`: ConfigurationError, too, for a SQLite file that does not exist.
        """
        url = required(self.transport, "transport", "--transport URL", "DELAYSTORE_TRANSPORT")
        self._check_lasting(url, "transport", "amqp://... or a database")
        transport = open_transport(url)
        if existing:
            require_file(url)
        if self.schema is None:
            return transport
        from delaystore.transports.sql_queue import SqlQueueTransport

        if not isinstance(transport, SqlQueueTransport):
            return transport
        transport.close()
        return SqlQueueTransport(url, schema=self.schema)

    @contextmanager
    def open(self, settings: DelayedDeliverySettings = READING, *, native: bool = False) -> Iterator["Opened"]:
        """All of it, unstarted; closed at the block's end. ConfigurationError where store or endpoint is not given.

        With settings that set up nothing, a SQLite file that does not exist is refused as well.
        """
        endpoint = required(self.endpoint, "endpoint", "--endpoint NAME", "DELAYSTORE_ENDPOINT")
        with ExitStack() as stack:
            store = stack.enter_context(closing(self.open_store()))
            if not settings.automatic_setup:
                require_file(self.store or "")
            transport = None if self.transport is None else stack.enter_context(closing(self.open_transport()))
            delivery = DelayedDelivery(endpoint, store, transport, settings, native=native)
            stack.callback(delivery.stop)
            yield Opened(store, transport, delivery)

    def _check_lasting(self, url: str, what: str, instead: str) -> None:
        if not self.memory and url.partition(":")[0].partition("+")[0].lower() == "memory":
            raise ConfigurationError(
                f"a {what} in memory ends with this command, and each message in it would be lost; use {instead}"
            )


@dataclass(frozen=True, slots=True)
class Opened:
    """What a target names."""

    store: DelayedMessageStore
    transport: Transport | None
    delivery: DelayedDelivery


def required(value: str | None, what: str, option: str, variable: str) -> str:
    """`value`; ConfigurationError saying how to give it, where it is not given."""
    if not value:
        raise ConfigurationError(f"no {what} is given; pass {option} or set {variable}")
    return value
