"""The endpoint that a command is about: its store, its transport, its delivery."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from delaystore.cli._files import require_file
from delaystore.cli._options import required
from delaystore.cli._unknown_endpoint import explained, require_tables
from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, StoreSetupError
from delaystore.service.opening import store_at, transport_at
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import DelayedMessageStore
from delaystore.stores.operable import Way
from delaystore.transports import Transport

READING = DelayedDeliverySettings(automatic_setup=False)
"""For commands that only read: no tables are created for a mistyped endpoint."""


def reading(error_queue: str) -> DelayedDeliverySettings:
    """As READING, for commands that look at an error queue; ConfigurationError for a name that cannot be."""
    try:
        return replace(READING, error_queue=error_queue)
    except ConfigurationError as error:
        raise ConfigurationError(f"--error-queue {str(error).removeprefix('error_queue ')}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Whose messages a command is about, as given on the command line; None: not given.

    `memory`: True where a store or transport in memory will do, which ends with the command.
    """

    store: str | None = None
    endpoint: str | None = None
    schema: str | None = None
    table: str | None = None
    transport: str | None = None
    memory: bool = False

    def open_store(self) -> DelayedMessageStore:
        """The store. ConfigurationError where none is given, it is in memory, or it takes no schema or table."""
        url = required(self.store, "store", "--store URL", "DELAYSTORE_STORE")
        self._check_lasting(url, "store", "a database, as in sqlite:///app.db")
        return store_at(url, self.schema, self.table)

    def open_transport(self, *, existing: bool = False) -> Transport:
        """The transport; SQL queues are in the schema. ConfigurationError where none is given, or it is in memory.

        `existing`: ConfigurationError, too, for a SQLite file that does not exist.
        """
        url = required(self.transport, "transport", "--transport URL", "DELAYSTORE_TRANSPORT")
        self._check_lasting(url, "transport", "amqp://... or a database")
        transport = transport_at(url, self.schema)
        if existing:
            require_file(url)
        return transport

    @contextmanager
    def open(
        self, settings: DelayedDeliverySettings = READING, *, native: bool = False, existing: bool = False
    ) -> Iterator["OpenedEndpoint"]:
        """Store, transport and delivery for the block, not started. ConfigurationError without a store or an endpoint.

        `existing`: UnknownEndpointError where the endpoint has no tables yet, or no SQLite file. So it is, too, if
        `settings` set up nothing.
        """
        endpoint = required(self.endpoint, "endpoint", "--endpoint NAME", "DELAYSTORE_ENDPOINT")
        with ExitStack() as stack:
            store = stack.enter_context(closing(self.open_store()))
            if existing or not settings.automatic_setup:
                require_file(self.store or "", may_create=existing)
            transport = None if self.transport is None else stack.enter_context(closing(self._opened(settings)))
            if native and (transport is None or transport.longest_native_delay is None):
                raise ConfigurationError(
                    "--native needs a --transport that delays natively, as amqp://HOST?delays=nservicebus-v2"
                )
            delivery = DelayedDelivery(endpoint, store, transport, settings, native=native, way=Way.CLI)
            stack.callback(delivery.stop)
            if existing:
                require_tables(store, endpoint)
            try:
                yield OpenedEndpoint(endpoint, settings.error_queue, store, transport, delivery)
            except StoreSetupError as error:
                if settings.automatic_setup and not existing:  # it is no typo: the tables cannot be made
                    raise
                raise explained(error, store, endpoint) from None

    def _opened(self, settings: DelayedDeliverySettings) -> Transport:
        return self.open_transport(existing=not settings.automatic_setup)

    def _check_lasting(self, url: str, what: str, instead: str) -> None:
        if not self.memory and url.partition(":")[0].partition("+")[0].lower() == "memory":
            raise ConfigurationError(
                f"a {what} in memory ends with this command, and each message in it would be lost; use {instead}"
            )


@dataclass(frozen=True, slots=True)
class OpenedEndpoint:
    """What the options name, opened. `transport`: None where none is given."""

    endpoint: str
    error_queue: str
    store: DelayedMessageStore
    transport: Transport | None
    delivery: DelayedDelivery
