"""Options of `delaystore ingress`, and the plan they make."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delaystore.cli._commands import Offered
from delaystore.cli._options import DEFAULT_ERROR_QUEUE, AuditOption, environment_option, error_queue_option
from delaystore.errors import ConfigurationError
from delaystore.ingress.settings import IngressOnDuplicate, IngressOnRepeat, IngressSettings
from delaystore.settings import DelayedDeliverySettings

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient, BrokerSnapshot
    from delaystore.ingress.topology import IngressNames, IngressTopology, Switch
    from delaystore.server.configuration.ingress import IngressConfiguration


class ExchangeType(StrEnum):
    """The types of exchanges that every RabbitMQ has."""

    DIRECT = "direct"
    TOPIC = "topic"
    FANOUT = "fanout"
    HEADERS = "headers"


_EXCHANGE: Final = "DELAYSTORE_INGRESS_EXCHANGE"
ExchangeArgument = Annotated[
    str, typer.Argument(metavar="EXCHANGE", envvar=_EXCHANGE, help="Exchange that programs publish to.")
]
OutputExchange = Annotated[
    str | None,
    environment_option(
        "--output-exchange",
        "Output exchange for due messages; bind your queues to it. Default: EXCHANGE.out.",
        metavar="NAME",
        group="ingress",
    ),
]
QueueOption = Annotated[
    str | None,
    environment_option(
        "--queue",
        "Ingress queue, which gets all messages of EXCHANGE. Default: EXCHANGE.ingress.",
        metavar="NAME",
        group="ingress",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameOptions:
    """The exchanges and the queue of an ingress, as given on the command line."""

    exchange: ExchangeArgument
    output_exchange: OutputExchange = None
    queue: QueueOption = None

    def names(self) -> "IngressNames":
        """The names, with defaults. Raises ConfigurationError."""
        from delaystore.ingress.topology import IngressNames

        return IngressNames.of(self.exchange, queue=self.queue, out=self.output_exchange)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedNameOptions(NameOptions):
    """The same, with the types of the exchanges; None: not given."""

    out_type: Annotated[
        ExchangeType | None,
        environment_option(
            "--type",
            "Type of the output exchange, as the bindings of your queues need.",
            metavar="TYPE",
            group="ingress",
        ),
    ] = None
    exchange_type: Annotated[
        ExchangeType | None,
        environment_option(
            "--exchange-type",
            "Type of EXCHANGE: topic, fanout or headers, as publishers declare it. Default: the type of the output "
            "exchange, or fanout if it is direct.",
            metavar="TYPE",
            group="ingress",
        ),
    ] = None

    @property
    def exchange_type_name(self) -> str | None:
        """The type of the ingress exchange; None: not given."""
        return None if self.exchange_type is None else self.exchange_type.value


TypedNames = Annotated[TypedNameOptions, Offered("exchange", "out_type", "exchange_type", "output_exchange", "queue")]
_GROUP = "ingress_run"
_DEFAULTS: Final = IngressSettings(queue="any")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressOptions:
    """The options of `delaystore ingress run` about which queue is consumed, and where its messages go."""

    exchange: Annotated[
        str | None,
        typer.Argument(
            metavar="EXCHANGE",
            envvar=_EXCHANGE,
            help="Exchange that programs publish to: reads EXCHANGE.ingress, and forwards to EXCHANGE.out with the "
            "same routing keys.",
        ),
    ] = None
    queue: Annotated[
        str | None,
        environment_option("--queue", "Ingress queue, in place of EXCHANGE.ingress.", metavar="NAME", group="ingress"),
    ] = None
    destination: Annotated[
        str | None,
        environment_option(
            "--destination",
            "Destination of messages that name none: /exchanges/NAME, by their own routing keys; header, or "
            "header:NAME; or one queue or address. Default: /exchanges/EXCHANGE.out, or header for a queue "
            "NAME.Timeouts.",
            metavar="RULE",
            group=_GROUP,
        ),
    ] = None
    delay_headers: Annotated[
        str | None,
        environment_option(
            "--delay-headers",
            "Delay formats to read, in order of precedence: x-delay, amqp1, due-time, nservicebus. Default: all except "
            "nservicebus, whose messages name any queue and cancel others; all for a queue NAME.Timeouts.",
            metavar="NAMES",
            group=_GROUP,
        ),
    ] = None
    allow_destination: Annotated[
        list[str] | None,
        environment_option(
            "--allow-destination",
            "Queue or address that messages may name, with the wildcards * and ?; repeatable. Default: all except "
            "delaystore's own queues.",
            metavar="PATTERN",
            group=_GROUP,
        ),
    ] = None
    count_from: Annotated[
        str,
        environment_option(
            "--count-from",
            "Start of a delay: received by the broker, if it reports the time; sent, by the property timestamp; taken "
            "from the queue.",
            metavar="WHEN",
            group=_GROUP,
        ),
    ] = "received"
    on_duplicate: Annotated[
        IngressOnDuplicate,
        environment_option(
            "--on-duplicate",
            "Result if a message with the same id waits: deliver both, keep the first, or replace it.",
            metavar="both|keep|replace",
            group=_GROUP,
        ),
    ] = IngressOnDuplicate.BOTH
    on_repeat: Annotated[
        IngressOnRepeat,
        environment_option(
            "--on-repeat",
            "Result if a message with the same id was delivered already, by the history: deliver again, or drop.",
            metavar="deliver|drop",
            group=_GROUP,
        ),
    ] = IngressOnRepeat.DELIVER
    direct_below: Annotated[
        str,
        environment_option(
            "--direct-below",
            "Forward messages with a shorter delay at once, without the store. Default: none.",
            metavar="DURATION",
            group=_GROUP,
        ),
    ] = "0s"
    rejected_queue: Annotated[
        str | None,
        environment_option(
            "--rejected-queue",
            "Queue for messages that cannot be stored. Default: QUEUE.rejected.",
            metavar="NAME",
            group=_GROUP,
        ),
    ] = None
    error_queue: Annotated[
        str,
        error_queue_option(
            "Error queue of the endpoint; messages cannot name it, unless it is allowed by its full name.", _GROUP
        ),
    ] = DEFAULT_ERROR_QUEUE
    batch_size: Annotated[
        int,
        environment_option(
            "--batch-size", "Maximum number of messages stored at once.", metavar="NUMBER", group=_GROUP
        ),
    ] = _DEFAULTS.batch_size
    prefetch: Annotated[
        int,
        environment_option("--prefetch", "Maximum number of unacknowledged messages.", metavar="NUMBER", group=_GROUP),
    ] = _DEFAULTS.prefetch
    memory_bytes: Annotated[
        int,
        environment_option(
            "--memory-bytes",
            "Maximum size of bodies in memory, in bytes; reading pauses above it.",
            metavar="NUMBER",
            group=_GROUP,
        ),
    ] = _DEFAULTS.memory_bytes
    max_body_bytes: Annotated[
        int,
        environment_option(
            "--max-body-bytes",
            "Maximum size of a body in bytes; a longer body is rejected.",
            metavar="NUMBER",
            group=_GROUP,
        ),
    ] = DelayedDeliverySettings().max_body_bytes
    audit: AuditOption = DelayedDeliverySettings().audit

    def configuration(self) -> "IngressConfiguration":
        """The same as a configuration. Raises ConfigurationError, which names the option."""
        from delaystore.server.configuration.ingress import IngressConfiguration
        from delaystore.server.configuration.tables import ConfigurationReader, FromOptions

        if self.queue is None and self.exchange is None:
            raise ConfigurationError(
                "which messages? name the exchange that programs publish to (EXCHANGE), or the queue (--queue NAME)"
            )
        given = {name: getattr(self, name) for name in IngressConfiguration.__struct_fields__ if name != "broker"}
        reader = ConfigurationReader(IngressConfiguration, FromOptions({("exchange",): "EXCHANGE"}))
        return reader.read(IngressConfiguration, {name: value for name, value in given.items() if value is not None})

    def delivery_settings(self) -> DelayedDeliverySettings:
        """The settings of the endpoint. Raises ConfigurationError, which names the option."""
        try:
            return DelayedDeliverySettings(max_body_bytes=self.max_body_bytes, audit=self.audit)
        except ConfigurationError as error:
            raise ConfigurationError(f"--{str(error).replace('_', '-', 2)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateOptions(TypedNameOptions):
    """The options of `delaystore ingress create`, and their meaning. Raises ConfigurationError for names that cannot
    be.
    """

    from_plugin: Annotated[
        bool,
        environment_option(
            "--from-plugin",
            "Copy EXCHANGE of the delayed-message plugin: the output exchange gets its type, bindings and "
            "arguments. Print the steps for publishers.",
            group="ingress_create",
        ),
    ] = False
    new_exchange: Annotated[
        str | None,
        environment_option(
            "--new-exchange",
            "With --from-plugin: publishers change to this exchange one by one, without a pause.",
            metavar="NAME",
            group="ingress_create",
        ),
    ] = None
    definitions: Annotated[
        Path | None,
        environment_option(
            "--definitions",
            "As --from-plugin, with EXCHANGE as in this export of definitions. With --dry-run no broker is asked, "
            "unless you pass --broker.",
            metavar="FILE",
            group="ingress_create",
        ),
    ] = None
    replace: Annotated[
        bool,
        environment_option(
            "--replace",
            "With --definitions: delete the plugin's EXCHANGE, and declare the new one at once.",
            group="ingress_create",
        ),
    ] = False

    def __post_init__(self) -> None:
        if not self.is_of_plugin and self.new_exchange is not None:
            raise ConfigurationError(
                "--new-exchange applies only to an exchange of the plugin; pass --from-plugin, too"
            )
        if self.is_of_plugin and self.out_type is not None:
            raise ConfigurationError("the plugin's exchange names its type, so --type is not needed; leave --type out")
        if not self.is_of_plugin and self.out_type is None:
            raise ConfigurationError("which type do the bindings of your queues need? pass --type TYPE")
        if self.replace and (self.definitions is None or self.new_exchange is not None):
            raise ConfigurationError(
                "--replace deletes EXCHANGE, with its bindings; pass --definitions FILE, which keeps them, and leave "
                "--new-exchange out"
            )

    @property
    def is_of_plugin(self) -> bool:
        """Whether an exchange of the plugin is to be copied."""
        return self.from_plugin or self.definitions is not None

    def topology(self) -> "IngressTopology":
        """The exchanges and queues to declare, where no exchange of the plugin is copied."""
        from delaystore.ingress.topology import IngressTopology, exchange_type_for

        assert self.out_type is not None
        return IngressTopology(
            names=self.names(),
            out_type=self.out_type.value,
            exchange_type=self.exchange_type_name or exchange_type_for(self.out_type.value),
        )

    def switch(self, snapshot: "BrokerSnapshot", live: "BrokerSnapshot | None" = None) -> "Switch":
        """How to get from the plugin's exchange in `snapshot` to an ingress. `live`: see `switch_from_plugin`."""
        from delaystore.ingress.topology import switch_from_plugin

        return switch_from_plugin(
            snapshot,
            self.exchange,
            new_name=self.new_exchange,
            queue=self.queue,
            out=self.output_exchange,
            exchange_type=self.exchange_type_name,
            live=live,
        )

    def exported(self, virtual_host: str | None) -> "BrokerSnapshot | None":
        """The export's part about the virtual host (None: the one that has the exchange). None: there is no export."""
        from delaystore.cascades import Definitions

        if self.definitions is None:
            return None
        definitions = Definitions(self.definitions)
        return definitions.snapshot(virtual_host or definitions.virtual_host_with(self.exchange))


ToCreate = Annotated[
    CreateOptions,
    Offered(
        "exchange",
        "out_type",
        "exchange_type",
        "output_exchange",
        "queue",
        "from_plugin",
        "new_exchange",
        "definitions",
        "replace",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePlan:
    """The exchanges and queues to declare.

    `ingress_exchange`: whether the ingress exchange, too. `switch`: from the plugin; None: no exchange is copied.
    """

    topology: "IngressTopology"
    ingress_exchange: bool = True
    switch: "Switch | None" = None


def plan_for(wish: CreateOptions, client: "BrokerClient") -> CreatePlan:
    """The plan for the broker as it is now. Raises ConfigurationError, TransportError."""
    if not wish.is_of_plugin:
        return CreatePlan(topology=wish.topology())
    if client.management is None:
        raise ConfigurationError(
            "only the management API lists the plugin's exchanges; pass --management URL, or to see the "
            "changes first, --definitions FILE with --dry-run"
        )
    client.check_same_cluster()
    live = client.management.snapshot()
    exported = wish.exported(client.broker.virtual_host)
    switch = wish.switch(live) if exported is None else wish.switch(exported, live)
    return CreatePlan(topology=switch.topology, ingress_exchange=switch.takes_place(live.exchanges), switch=switch)


def plan_from(wish: CreateOptions, exported: "BrokerSnapshot") -> CreatePlan:
    """The plan for the broker of an export. Raises ConfigurationError, TransportError."""
    switch = wish.switch(exported)
    return CreatePlan(topology=switch.topology, ingress_exchange=switch.takes_place(exported.exchanges), switch=switch)
