"""From an exchange of the delayed-message plugin to an ingress: what is declared when, and what people do."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from typing_extensions import override

from delaystore.cascades import ExchangeState, Snapshot
from delaystore.errors import ConfigurationError
from delaystore.ingress.names import IngressNames
from delaystore.ingress.topology._layout import IngressTopology, entrance_type_for
from delaystore.ingress.topology._plugin import PLUGIN_TYPE, PluginExchange, read_plugin_exchange

_BACKUP: Final = "before.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(ABC):
    """From `plugin` to `topology`."""

    plugin: PluginExchange
    topology: IngressTopology

    @abstractmethod
    def takes_place(self, exchanges: Mapping[str, ExchangeState]) -> bool:
        """Whether the exchange to publish to can be declared, given those that are there now."""

    @abstractmethod
    def steps(self, entrance: bool) -> Sequence[str]:
        """What is to be done, in this order, a step each. `entrance`: the exchange to publish to could be declared."""

    def _prepared(self) -> str:
        names, count = self.topology.names, len(self.topology.out_bindings)
        return (
            f"done by this command: {names.out!r} ({self.topology.out_type}) with the {count} bindings of "
            f"{self.plugin.name!r}, and the queue {names.queue!r}"
        )

    def _run(self) -> str:
        names = self.topology.names
        usual = IngressNames.of(names.exchange)
        queue = "" if names.queue == usual.queue else f" --queue {names.queue}"
        destination = "" if names.out == usual.out else f" --destination /exchanges/{quote(names.out, safe='')}"
        return f"run delaystore ingest --exchange {names.exchange}{queue}{destination}, and delaystore dispatch"

    def _publishers(self) -> str:
        return (
            f"publishers that declare {self.topology.names.exchange!r} declare it as {self.topology.entrance_type}, "
            "durable, without x-delayed-type; nothing else changes for them"
        )

    def _waiting(self) -> str:
        count = self.plugin.waiting
        return "" if count is None else f" ({count:,} now)"


class InPlace(Switch):
    """The exchange keeps its name: it is deleted, and another declared. Publishers pause."""

    @override
    def takes_place(self, exchanges: Mapping[str, ExchangeState]) -> bool:
        state = exchanges.get(self.plugin.name)
        return state is None or state.type != PLUGIN_TYPE

    @override
    def steps(self, entrance: bool) -> Sequence[str]:
        return [] if entrance else list(self._steps())

    def _steps(self) -> Iterator[str]:
        name, out = self.plugin.name, self.topology.names.out
        yield (
            f"{self._prepared()}; with --as NAME it prepares another exchange, and publishers change to it one by one, "
            "without a pause"
        )
        yield self._run()
        yield (
            f"programs that bind queues to {name!r} bind them to {out!r} as well; run this command again, which copies "
            "what was bound meanwhile"
        )
        yield f"export the definitions, which keep all bindings: rabbitmqctl export_definitions {_BACKUP}"
        sources = sorted({repr(one.source) for one in self.plugin.sources})
        through = f", and those of {', '.join(sources)}, which lead to it" if sources else ""
        yield f"stop the publishers of {name!r}{through}: what they publish until it is there again is lost or refused"
        yield from self._about_what_waits()
        yield (
            f"delete {name!r}, and declare it anew at once: delaystore ingest create {name} --definitions {_BACKUP} "
            "--replace"
        )
        yield f"{self._publishers()}; start them"
        yield f"programs bind their queues to {out!r} only: what is bound to {name!r} gets messages at once"
        if self.plugin.survives(self.topology.entrance_type):
            yield (
                "keep the plugin enabled for as long as your longest delay, and then disable it: to disable it deletes "
                "what waits in it"
            )

    def _about_what_waits(self) -> Iterator[str]:
        if self.plugin.survives(self.topology.entrance_type):
            yield (
                f"what waits in the plugin{self._waiting()} stays there; when it is due it comes to "
                f"{self.topology.names.queue!r}, and goes on at once (seen with RabbitMQ 3.10.8 and 4.0.5: try yours). "
                "What falls due in the instant in which the exchange is missing is lost: if nothing may be, wait until "
                "nothing waits, or pass --as"
            )
        else:
            yield (
                f"wait until nothing waits in the plugin{self._waiting()}; delaystore ingest status tells: what waits "
                "then is lost when the exchange is deleted"
            )


class NewName(Switch):
    """Publishers change to an exchange of another name, one by one. Both work meanwhile."""

    @override
    def takes_place(self, exchanges: Mapping[str, ExchangeState]) -> bool:
        return True

    @override
    def steps(self, entrance: bool) -> Sequence[str]:
        return list(self._steps())

    def _steps(self) -> Iterator[str]:
        old, new, out = self.plugin.name, self.topology.names.exchange, self.topology.names.out
        yield f"{self._prepared()}; publish nothing to {new!r} yet"
        yield self._run()
        yield (
            f"programs that bind queues to {old!r} bind them to {out!r} as well; run this command again, which copies "
            "what was bound meanwhile"
        )
        yield f"publishers change from {old!r} to {new!r}, one by one; {self._publishers()}"
        for source in sorted({one.source for one in self.plugin.sources}):
            yield (
                f"exchange {source!r} leads to {old!r}: bind it to {new!r} with the same keys, then unbind it from "
                f"{old!r}; what it gets in between comes twice, so pause its publishers if that must not be"
            )
        yield (
            f"wait until nobody publishes to {old!r} and nothing waits in the plugin{self._waiting()}: "
            f"delaystore ingest status {old} tells"
        )
        yield f"delete {old!r}, and disable the plugin once no exchange of its type is left; it deletes what waits"


def switch_from_plugin(
    snapshot: Snapshot,
    exchange: str,
    *,
    new_name: str | None = None,
    queue: str | None = None,
    out: str | None = None,
    entrance_type: str | None = None,
    live: Snapshot | None = None,
) -> Switch:
    """How to get from the plugin's `exchange` to an ingress. `new_name` None: of the same name.

    `queue`, `out`: names for these, in place of those made from the exchange's. `entrance_type`: of the exchange to
    publish to; None: that of the plugin's bindings, where it can be. `live`: what is there now, where `snapshot` is of
    an export: bindings to and from what is gone are left out.
    Raises TransportSetupError where it is no exchange of the plugin, ConfigurationError for names that cannot be.
    """
    if new_name == exchange:
        raise ConfigurationError(f"--as {exchange!r} is the name that it has; give a new one, or leave --as out")
    names = IngressNames.of(new_name or exchange, queue=queue, out=out)
    if names.out == exchange:
        raise ConfigurationError(f"{exchange!r} delays what it gets, so it cannot be OUT; name another with --out")
    plugin = read_plugin_exchange(snapshot, exchange, names.out)
    if live is not None:
        plugin = plugin.without_the_gone(live)
    in_place = new_name is None
    topology = IngressTopology(
        names=names,
        out_type=plugin.inner_type,
        entrance_type=entrance_type or entrance_type_for(plugin.inner_type),
        out_arguments=plugin.arguments,
        out_bindings=plugin.copied_bindings(names.out),
        sources=plugin.sources if in_place else (),
        old_keys=plugin.direct_keys if in_place else (),
    )
    return InPlace(plugin=plugin, topology=topology) if in_place else NewName(plugin=plugin, topology=topology)
