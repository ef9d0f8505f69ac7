"""An exchange of the delayed-message plugin, as it is on a broker or in an export of its definitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delaystore.cascades import Snapshot
from delaystore.cascades.policies import applying
from delaystore.errors import TransportSetupError
from delaystore.transports.rabbitmq.topology.layout import ALTERNATE_EXCHANGE, Binding, DestinationKind

PLUGIN_TYPE: Final = "x-delayed-message"
_INNER_TYPE: Final = "x-delayed-type"
_BY_ANY_BINDING: Final = frozenset({"fanout", "headers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginExchange:
    """`inner_type`: its x-delayed-type. `arguments`: the others.

    `bindings`: from it. `sources`: bindings that lead to it from other exchanges. `waiting`: messages that wait in the
    plugin; None: unknown, as in an export. `remarks`: what a copy does not have, and what to do, a sentence each.
    """

    name: str
    inner_type: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    bindings: tuple[Binding, ...] = ()
    sources: tuple[Binding, ...] = ()
    waiting: int | None = None
    remarks: tuple[str, ...] = ()

    def copied_bindings(self, out: str) -> tuple[Binding, ...]:
        """Its bindings, as bindings from the exchange `out`."""
        return tuple(
            replace(one, source=out, destination=out if self._is_itself(one) else one.destination)
            for one in self.bindings
        )

    def without_the_gone(self, live: Snapshot) -> "PluginExchange":
        """Without bindings to and from what `live` does not have; each is told in `remarks`."""
        bindings = tuple(one for one in self.bindings if _can_be_bound(one, live))
        sources = tuple(one for one in self.sources if one.source in live.exchanges)
        gone = {*self.bindings, *self.sources} - {*bindings, *sources}
        remarks = [f"{one} is left out: one of the two is gone, or exclusive" for one in sorted(gone, key=str)]
        return replace(self, bindings=bindings, sources=sources, remarks=(*self.remarks, *remarks))

    def survives(self, entrance_type: str) -> bool:
        """Whether what waits in the plugin arrives, if an exchange of its name and of that type takes its place.

        The plugin delivers what is due by the bindings that the name has by then, as exchanges of its inner type do:
        also if it is another exchange since. A topic exchange looks into a tree of its own, which others do not fill.
        A direct one looks for the routing key itself, so `direct_keys` must be bound.
        """
        return self.inner_type in (*_BY_ANY_BINDING, "direct") or self.inner_type == entrance_type == "topic"

    @property
    def direct_keys(self) -> tuple[str, ...]:
        """The routing keys of its bindings, where only these lead what waits onward; empty for other inner types."""
        if self.inner_type != "direct":
            return ()
        return tuple(dict.fromkeys(one.routing_key for one in self.bindings))

    def _is_itself(self, binding: Binding) -> bool:
        return binding.kind is DestinationKind.EXCHANGE and binding.destination == self.name


def _can_be_bound(binding: Binding, snapshot: Snapshot) -> bool:
    """Whether what it leads to is there, and not exclusive: only the program that made such a queue may bind it."""
    if binding.kind is DestinationKind.EXCHANGE:
        return binding.destination in snapshot.exchanges
    queue = snapshot.queues.get(binding.destination)
    return queue is not None and not queue.exclusive


def read_plugin_exchange(snapshot: Snapshot, name: str, out: str) -> PluginExchange:
    """The plugin's exchange `name`, to be copied to `out`. Raises TransportSetupError where it is none."""
    exchange = snapshot.exchanges.get(name)
    if exchange is None:
        raise TransportSetupError(f"there is no exchange {name!r} in this virtual host; check its name")
    if exchange.type != PLUGIN_TYPE:
        raise TransportSetupError(
            f"exchange {name!r} is of type {exchange.type}, and not of the delayed-message plugin ({PLUGIN_TYPE}): it "
            "delays nothing, and there is nothing to copy. Check its name; to make it lead to an ingress as it is, "
            "pass --type TYPE, which OUT gets, in place of --from-plugin or --definitions"
        )
    arguments = {key: value for key, value in exchange.arguments.items() if key != _INNER_TYPE}
    alternate = _alternate_by_policy(snapshot, name, out)
    return PluginExchange(
        name=name,
        inner_type=str(exchange.arguments.get(_INNER_TYPE)),
        arguments=arguments if alternate is None else {**arguments, ALTERNATE_EXCHANGE: alternate},
        bindings=tuple(sorted((one for one in snapshot.bindings if _is_to_copy(one, name, snapshot)), key=str)),
        sources=tuple(sorted(_sources(snapshot, name), key=str)),
        waiting=exchange.delayed,
        remarks=tuple(_remarks(snapshot, name, out, alternate)),
    )


def _is_to_copy(binding: Binding, name: str, snapshot: Snapshot) -> bool:
    queue = snapshot.queues.get(binding.destination) if binding.kind is DestinationKind.QUEUE else None
    return binding.source == name and not (queue is not None and queue.exclusive)


def _sources(snapshot: Snapshot, name: str) -> list[Binding]:
    return [
        one
        for one in snapshot.bindings
        if one.kind is DestinationKind.EXCHANGE and one.destination == name and one.source != name
    ]


def _alternate_by_policy(snapshot: Snapshot, name: str, out: str) -> str | None:
    """The alternate exchange that a policy gives to `name`, and would not give to `out`. None: there is none."""
    alternate = snapshot.alternate_exchange(name)
    if alternate is None or ALTERNATE_EXCHANGE in snapshot.exchanges[name].arguments:
        return None
    policy = applying(snapshot.policies, out)
    same = policy is not None and policy.definition.get(ALTERNATE_EXCHANGE) == alternate
    return None if same else alternate


def _remarks(snapshot: Snapshot, name: str, out: str, alternate: str | None) -> list[str]:
    exchange, policy = snapshot.exchanges[name], applying(snapshot.policies, name)
    said = []
    if not exchange.durable or exchange.auto_delete or exchange.internal:
        said.append(f"{name!r} is not durable, or is deleted by itself, or internal; {out!r} is durable, and neither")
    if alternate is not None and policy is not None:
        said.append(f"policy {policy.name!r} gives {name!r} alternate exchange {alternate!r}; {out!r} gets it itself")
    others = set(policy.definition) - {ALTERNATE_EXCHANGE} if policy is not None else set()
    if policy is not None and others and applying(snapshot.policies, out) != policy:
        said.append(f"policy {policy.name!r} does not apply to {out!r}: {', '.join(sorted(others))}")
    bound = {one.destination for one in snapshot.bindings if one.source == name and one.kind is DestinationKind.QUEUE}
    for queue in sorted(bound):
        state = snapshot.queues.get(queue)
        if state is not None and (state.auto_delete or state.exclusive or not state.durable):
            said.append(f"queue {queue!r} does not last: the program that makes it must bind it to {out!r} itself")
    return said
