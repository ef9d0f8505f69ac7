"""What `delaystore ingest create` is to do, by its options."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delaystore.cli._ingest.options import ExchangeType
from delaystore.errors import ConfigurationError

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient, Snapshot
    from delaystore.ingress.topology import IngressTopology, Switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The options of `delaystore ingest create`, and what they mean. Raises ConfigurationError for what cannot be."""

    exchange: str
    out_type: ExchangeType | None
    exchange_type: ExchangeType | None
    out: str | None
    queue: str | None
    from_plugin: bool
    new_name: str | None
    definitions: Path | None
    replace: bool

    def __post_init__(self) -> None:
        if not self.is_of_plugin and self.new_name is not None:
            raise ConfigurationError("--as is about an exchange of the plugin; pass --from-plugin, too")
        if self.is_of_plugin and self.out_type is not None:
            raise ConfigurationError("the plugin's exchange has a type for its bindings; leave --type out")
        if not self.is_of_plugin and self.out_type is None:
            raise ConfigurationError("which type do the bindings of your queues need? pass --type TYPE")
        if self.replace and (self.definitions is None or self.new_name is not None):
            raise ConfigurationError(
                "--replace deletes E, with its bindings; pass --definitions FILE, which keeps them, and leave --as out"
            )

    @property
    def is_of_plugin(self) -> bool:
        """Whether an exchange of the plugin is to be copied."""
        return self.from_plugin or self.definitions is not None

    def topology(self) -> "IngressTopology":
        """What is to be there, where no exchange of the plugin is copied."""
        from delaystore.ingress.topology import IngressNames, IngressTopology, entrance_type_for

        assert self.out_type is not None
        return IngressTopology(
            names=IngressNames.of(self.exchange, queue=self.queue, out=self.out),
            out_type=self.out_type.value,
            entrance_type=self._entrance_type or entrance_type_for(self.out_type.value),
        )

    def switch(self, snapshot: "Snapshot", live: "Snapshot | None" = None) -> "Switch":
        """How to get from the plugin's exchange in `snapshot` to an ingress. `live`: see `switch_from_plugin`."""
        from delaystore.ingress.topology import switch_from_plugin

        return switch_from_plugin(
            snapshot,
            self.exchange,
            new_name=self.new_name,
            queue=self.queue,
            out=self.out,
            entrance_type=self._entrance_type,
            live=live,
        )

    def exported(self, virtual_host: str | None) -> "Snapshot | None":
        """What the export holds of the virtual host (None: of the one that has E). None: there is no export."""
        from delaystore.cascades import Definitions

        if self.definitions is None:
            return None
        definitions = Definitions(self.definitions)
        return definitions.snapshot(virtual_host or definitions.virtual_host_with(self.exchange))

    @property
    def _entrance_type(self) -> str | None:
        return None if self.exchange_type is None else self.exchange_type.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be declared. `entrance`: whether E, too. `switch`: from the plugin; None: no exchange is copied."""

    topology: "IngressTopology"
    entrance: bool = True
    switch: "Switch | None" = None


def plan_for(wish: Wish, client: "BrokerClient") -> Plan:
    """The plan for what is on the broker now. Raises ConfigurationError, TransportError."""
    if not wish.is_of_plugin:
        return Plan(topology=wish.topology())
    if client.management is None:
        raise ConfigurationError(
            "only the management API tells of the plugin's exchanges; pass --management URL, or to see what would be "
            "done, --definitions FILE with --dry-run"
        )
    client.check_same_cluster()
    live = client.management.snapshot()
    exported = wish.exported(client.broker.virtual_host)
    switch = wish.switch(live) if exported is None else wish.switch(exported, live)
    return Plan(topology=switch.topology, entrance=switch.takes_place(live.exchanges), switch=switch)


def plan_from(wish: Wish, exported: "Snapshot") -> Plan:
    """The plan for what was on a broker. Raises ConfigurationError, TransportError."""
    switch = wish.switch(exported)
    return Plan(topology=switch.topology, entrance=switch.takes_place(exported.exchanges), switch=switch)
