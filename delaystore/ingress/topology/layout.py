"""The parts of an ingress on a broker, as data; an exchange of the delayed-message plugin that it may replace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from delaystore.cascades import BrokerSnapshot, DeclaredTopology, Finding, FindingKind, LayoutWords
from delaystore.cascades.policies import applying
from delaystore.errors import ConfigurationError, TransportSetupError
from delaystore.ingress.settings import IngressNames
from delaystore.transports.rabbitmq.topology.layout import (
    ALTERNATE_EXCHANGE,
    ANY_WORDS,
    Binding,
    DestinationKind,
    Exchange,
    Layout,
    Queue,
    fanout_queue,
)

CATCH_ALL_KEYS: Final[Mapping[str, str]] = {"topic": ANY_WORDS, "fanout": "", "headers": ""}
"""By which routing key a binding takes everything, for each type of exchange that has such a binding.

A headers exchange gives everything to a binding without arguments.
"""
GIVEN_BACK: Final = 2**31 - 1
"""The delivery limit: no consumer gives a message back so often, and every client can read the number.

RabbitMQ 4 has a limit of 20 by default, and 3 takes -1 for 0.
"""
_KEPT: Final[Mapping[str, Any]] = {"x-queue-type": "quorum", "x-delivery-limit": GIVEN_BACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressTopology:
    """An ingress on a broker. `exchange_type`: of the exchange to publish to. `out_type`: as users' bindings need it.

    `out_arguments`, `out_bindings`: of the exchange `names.out`, copied from another. `sources`: bindings that lead
    from other exchanges to the one to publish to.
    `old_keys`: by which the ingress queue is bound as well, for messages in a plugin; see `PluginExchange`.
    Raises ConfigurationError for an ingress exchange that cannot give everything to one queue.
    """

    names: IngressNames
    out_type: str
    exchange_type: str
    out_arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    out_bindings: tuple[Binding, ...] = ()
    sources: tuple[Binding, ...] = ()
    old_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.exchange_type not in CATCH_ALL_KEYS:
            raise ConfigurationError(
                f"a {self.exchange_type} exchange cannot give every message to the ingress queue; pass --exchange-type "
                "fanout, or topic, and let your publishers declare it with that type: their routing keys stay the same"
            )

    @property
    def ingress_exchange(self) -> Layout:
        """The exchange to publish to, and what leads from it to the ingress queue and into it.

        Declared last, in one go: messages published before it is bound would be dropped.
        """
        exchange, queue = self.names.exchange, self.names.queue
        keys = dict.fromkeys(
            (*self.old_keys, CATCH_ALL_KEYS[self.exchange_type])
        )  # messages in the plugin cannot pause
        bindings = (Binding(exchange, queue, DestinationKind.QUEUE, key) for key in keys)
        return Layout(
            exchanges=(Exchange(exchange, self.exchange_type),),
            bindings=(*bindings, *self.sources),
        )

    @property
    def behind(self) -> Layout:
        """Everything else. It takes no message before the ingress exchange is there."""
        out = Layout(
            exchanges=(Exchange(self.names.out, self.out_type, self.out_arguments),), bindings=self.out_bindings
        )
        return fanout_queue(self.names.expired, _KEPT) + Layout(queues=self._own_queues) + out

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All exchanges of it."""
        return self.behind.exchanges + self.ingress_exchange.exchanges

    @property
    def ends(self) -> frozenset[str]:
        """Exchanges to which others may bind any queue."""
        return frozenset({self.names.out, self.names.expired})

    @property
    def _own_queues(self) -> tuple[Queue, ...]:
        ingress = {
            **_KEPT,
            "x-dead-letter-exchange": self.names.expired,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        return Queue(self.names.rejected, _KEPT), Queue(self.names.queue, ingress)


def exchange_type_for(out_type: str) -> str:
    """The type of the exchange to publish to, if none is given: the output exchange's, if that type can give
    everything to one queue.

    Publishers that declare their exchange then name the type that they know. A fanout otherwise.
    """
    return out_type if out_type in CATCH_ALL_KEYS else "fanout"


PLUGIN_TYPE: Final = "x-delayed-message"
_INNER_TYPE: Final = "x-delayed-type"
_BY_ANY_BINDING: Final = frozenset({"fanout", "headers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginExchange:
    """`inner_type`: its x-delayed-type. `arguments`: the others.

    `bindings`: from it. `sources`: bindings that lead to it from other exchanges. `waiting`: messages that wait in the
    plugin; None: unknown, as in an export. `remarks`: parts that a copy lacks, and what to do, a sentence each.
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

    def without_the_gone(self, live: BrokerSnapshot) -> "PluginExchange":
        """Without bindings to and from parts that `live` lacks; `remarks` names each."""
        bindings = tuple(one for one in self.bindings if _can_be_bound(one, live))
        sources = tuple(one for one in self.sources if one.source in live.exchanges)
        gone = {*self.bindings, *self.sources} - {*bindings, *sources}
        remarks = [f"{one} is left out: one of the two is gone, or exclusive" for one in sorted(gone, key=str)]
        return replace(self, bindings=bindings, sources=sources, remarks=(*self.remarks, *remarks))

    def survives(self, exchange_type: str) -> bool:
        """Whether messages in the plugin arrive, if an exchange of its name and of that type takes its place.

        The plugin delivers due messages by the bindings that the name has by then, as exchanges of its inner type do:
        also if it is another exchange since. A topic exchange searches a tree of its own, which others do not fill.
        A direct one looks for the routing key itself, so `direct_keys` must be bound.
        """
        return self.inner_type in (*_BY_ANY_BINDING, "direct") or self.inner_type == exchange_type == "topic"

    @property
    def direct_keys(self) -> tuple[str, ...]:
        """The routing keys of its bindings, where only these lead its messages onward; empty for other inner types."""
        if self.inner_type != "direct":
            return ()
        return tuple(dict.fromkeys(one.routing_key for one in self.bindings))

    def _is_itself(self, binding: Binding) -> bool:
        return binding.kind is DestinationKind.EXCHANGE and binding.destination == self.name


def _can_be_bound(binding: Binding, snapshot: BrokerSnapshot) -> bool:
    """Whether its destination exists, and is not exclusive: only the program that made such a queue may bind it."""
    if binding.kind is DestinationKind.EXCHANGE:
        return binding.destination in snapshot.exchanges
    queue = snapshot.queues.get(binding.destination)
    return queue is not None and not queue.exclusive


def read_plugin_exchange(snapshot: BrokerSnapshot, name: str, out: str) -> PluginExchange:
    """The plugin's exchange `name`, to be copied to `out`. Raises TransportSetupError where it is none."""
    exchange = snapshot.exchanges.get(name)
    if exchange is None:
        raise TransportSetupError(f"there is no exchange {name!r} in this virtual host; check its name")
    if exchange.type != PLUGIN_TYPE:
        raise TransportSetupError(
            f"exchange {name!r} is of type {exchange.type}, and not of the delayed-message plugin ({PLUGIN_TYPE}): it "
            "delays nothing, and there is nothing to copy. Check its name; to make it lead to an ingress as it is, "
            "pass --type TYPE, the type of the output exchange, in place of --from-plugin or --definitions"
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


def _is_to_copy(binding: Binding, name: str, snapshot: BrokerSnapshot) -> bool:
    queue = snapshot.queues.get(binding.destination) if binding.kind is DestinationKind.QUEUE else None
    return binding.source == name and not (queue is not None and queue.exclusive)


def _sources(snapshot: BrokerSnapshot, name: str) -> list[Binding]:
    return [
        one
        for one in snapshot.bindings
        if one.kind is DestinationKind.EXCHANGE and one.destination == name and one.source != name
    ]


def _alternate_by_policy(snapshot: BrokerSnapshot, name: str, out: str) -> str | None:
    """The alternate exchange that a policy gives to `name`, and would not give to `out`. None: there is none."""
    alternate = snapshot.alternate_exchange(name)
    if alternate is None or ALTERNATE_EXCHANGE in snapshot.exchanges[name].arguments:
        return None
    policy = applying(snapshot.policies, out)
    same = policy is not None and policy.definition.get(ALTERNATE_EXCHANGE) == alternate
    return None if same else alternate


def _remarks(snapshot: BrokerSnapshot, name: str, out: str, alternate: str | None) -> list[str]:
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


_SETTINGS: Final = frozenset({"type", "durable", "auto_delete", "internal", None})
"""Of an exchange, beside its arguments. None: the broker did not say which."""


def declared(topology: IngressTopology, *, ingress_exchange: bool = True) -> DeclaredTopology:
    """The topology to declare. `ingress_exchange` False: all but the exchange to publish to."""
    return DeclaredTopology(
        stages=[topology.behind, topology.ingress_exchange] if ingress_exchange else [topology.behind],
        words=words_of(topology.names),
        ends=topology.ends,
        exchanges_stay=True,
        relevant=partial(_own_findings, topology),
    )


def words_of(names: IngressNames) -> LayoutWords:
    """The words for the ingress of these names."""
    return LayoutWords(
        layout="ingress",
        create="delaystore ingress create",
        verify="delaystore ingress verify",
        another="choose its own type (--type, --exchange-type) or other names (--queue, --output-exchange), or delete "
        "it once it is empty and unused",
        astray=f"leads around the delay: messages arrive at once, and again when they are due; bind to {names.out!r} "
        "in its place, and unbind this",
        by_management=("which bindings are missing, or lead around the delay: only the management API lists them",),
        emptying="empty and stop it",
    )


def _own_findings(topology: IngressTopology, findings: Iterable[Finding]) -> list[Finding]:
    """Leave out findings about what users may have as they like, and about the effects of the plugin's exchange.

    Users may have: arguments of exchanges that `topology` does not mention, and more bindings to the ingress queue.
    """
    found = list(findings)
    plugins = next((one for one in found if PLUGIN_TYPE in one.text), None)
    if plugins is not None:
        text = "is of the delayed-message plugin; pass --from-plugin, which copies it"
        name = topology.names.exchange
        about_it = (str(Exchange(name)), f" from exchange {name!r} ")
        others = [one for one in found if not any(words in one.subject for words in about_it)]
        found = [*others, replace(plugins, text=text)]
    return [one for one in found if _is_own(topology, one)]


def _is_own(topology: IngressTopology, finding: Finding) -> bool:
    names, exchanges = topology.names, {str(one): {*_SETTINGS, *one.arguments} for one in topology.exchanges}
    if finding.kind is FindingKind.EXTRA_BINDING:
        inward = Binding(names.exchange, names.queue, DestinationKind.QUEUE)
        return not finding.subject.endswith(str(inward).partition("from")[2])
    if finding.kind is FindingKind.INEQUIVALENT and finding.subject in exchanges:
        return finding.argument in exchanges[finding.subject]
    return True
