"""Creating, verifying and deleting an ingress, and switching to one from the delayed-message plugin."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pika import exceptions
from typing_extensions import override

from delaystore.cascades import (
    STATISTICS_AGE,
    BrokerClient,
    BrokerSnapshot,
    Creation,
    CreationPlan,
    Deletion,
    DeletionCheck,
    ExchangeState,
    Finding,
    FindingKind,
    QueueState,
    Verification,
    delete_topology,
    uses_of,
)
from delaystore.errors import ConfigurationError, TransportSetupError
from delaystore.ingress.settings import IngressNames
from delaystore.ingress.topology.layout import (
    CATCH_ALL_KEYS,
    GIVEN_BACK,
    PLUGIN_TYPE,
    IngressTopology,
    PluginExchange,
    declared,
    exchange_type_for,
    read_plugin_exchange,
    words_of,
)
from delaystore.text import counted
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import frames_of
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Part, Queue


def create(
    broker: BrokerClient,
    topology: IngressTopology,
    *,
    ingress_exchange: bool = True,
    dry_run: bool = False,
    on_declared: Callable[[Part], object] = lambda _part: None,
) -> Creation:
    """Declare the ingress. May be run again: then nothing changes.

    An exchange that exists needs the right type. Its arguments may be its owner's, so it is not declared again.

    Args:
        broker: The virtual host.
        topology: The parts to declare.
        ingress_exchange: False: everything but the exchange to publish to.
        dry_run: Declare nothing, and report the parts that would be declared.
        on_declared: Called after each part.

    Returns:
        The declared parts.

    Raises:
        TopologyRefusedError: A finding blocks it, and nothing was declared. It is a TransportSetupError.
        DeclarationError: The broker refuses a part anyway. The text lists the parts declared before.
        TransportUnavailableError, TransportError: The broker does not answer.

    """
    plan = CreationPlan(broker, declared(topology, ingress_exchange=ingress_exchange))
    return plan.carry_out(dry_run=dry_run, on_declared=on_declared)


_HARM: Final = {
    "expires": "deletes the queue when it is unused for that long, and what is in it",
    "message-ttl": "takes out messages that wait longer, while delaystore does not run",
}
_DROPPING: Final = {
    "max-length": "drops what is more",
    "max-length-bytes": "drops what is more",
}
"""Of queues that do not refuse messages beyond their limit."""
_BEYOND_LIMIT: Final = "takes out what was given back more often"


def verify(
    broker: BrokerClient,
    names: IngressNames,
    *,
    out_type: str | None = None,
    exchange_type: str | None = None,
    passive: bool = False,
) -> Verification:
    """Verify the broker's version and feature flags, the user's permissions, and every part of the ingress.

    Uses the management API where there is one, otherwise what AMQP reports. Changes nothing.

    Args:
        broker: The virtual host.
        names: The names of the ingress' parts.
        out_type: The type of the output exchange. None: any type that can work.
        exchange_type: The type of the ingress exchange. None: the same.
        passive: The user may not declare: only passive declares are made, and permissions are not checked.

    Returns:
        The findings; none, if the ingress is as it should be.

    Raises:
        ConfigurationError: Neither a type nor a management API is given.
        TransportUnavailableError, TransportError: The broker does not answer.

    """
    topology = _topology(broker, names, out_type, exchange_type)
    found = declared(topology).check(broker, declaring=not passive)
    if found.snapshot is None:
        unknown = "whether policies do to the queues what must not be: only the management API shows them"
        return Verification.of(broker, found, unchecked=[unknown])
    return Verification.of(broker, found, _by_snapshot(names, found.snapshot))


def _topology(
    broker: BrokerClient, names: IngressNames, out_type: str | None, exchange_type: str | None
) -> IngressTopology:
    """With the types that the exchanges have, where none are given."""
    if broker.management is None:
        if out_type is None:
            raise ConfigurationError(
                "AMQP does not report the type of the output exchange; pass --type TYPE, or --management URL"
            )
        return IngressTopology(
            names=names, out_type=out_type, exchange_type=exchange_type or exchange_type_for(out_type)
        )
    exchanges = broker.management.exchanges()
    actual = {one: exchanges[one].type for one in (names.exchange, names.out) if one in exchanges}
    out_type = out_type or actual.get(names.out, "topic")
    there = actual.get(names.exchange)
    usual = exchange_type_for(out_type) if there is None or there not in CATCH_ALL_KEYS else there
    return IngressTopology(names=names, out_type=out_type, exchange_type=exchange_type or usual)


def _by_snapshot(names: IngressNames, snapshot: BrokerSnapshot) -> Iterator[Finding]:
    behind = snapshot.queues_behind(names.out)
    if names.queue in behind:
        text = (
            f"leads back to the queue {names.queue!r}, so due messages would loop; remove the bindings that lead there"
        )
        yield Finding(FindingKind.EXTRA_BINDING, f"exchange {names.out!r}", text)
    if names.out in snapshot.exchanges and not behind:
        text = "leads to no queue, so due messages go to the error queue; bind your queues to it"
        yield Finding(FindingKind.UNDELIVERABLE, f"exchange {names.out!r}", text)
    for name in (names.queue, names.expired, names.rejected):
        queue = snapshot.queues.get(name)
        if queue is not None:
            yield from _harm_by_policy(queue)


def _harm_by_policy(queue: QueueState) -> Iterator[Finding]:
    policy = queue.policy_definition
    harm = _HARM if queue.arguments.get("x-overflow") == "reject-publish" else {**_HARM, **_DROPPING}
    what = {setting: why for setting, why in harm.items() if setting in policy}
    if 0 <= policy.get("delivery-limit", GIVEN_BACK) < GIVEN_BACK:
        what["delivery-limit"] = _BEYOND_LIMIT
    for setting, why in what.items():
        text = f"a policy sets {setting} {policy[setting]}, which {why}; leave this queue out of the policy's pattern"
        yield Finding(FindingKind.POLICY, f"queue {queue.name!r}", text)


_NO_MANAGEMENT: Final = (
    "only the management API counts every message, and lists other users of the exchanges; pass --management URL"
)


def delete(
    broker: BrokerClient,
    names: IngressNames,
    *,
    with_output: bool = False,
    force: bool = False,
    statistics_age: float = STATISTICS_AGE,
    on_deleted: Callable[[Exchange | Queue], object] = lambda _part: None,
) -> Deletion[DeletionCheck]:
    """Delete the ingress. May be run again.

    The ingress exchange stays where others are bound to it, or where it is the plugin's. The output exchange stays
    where anything is bound to it.

    Args:
        broker: The virtual host.
        names: The names of the ingress' parts.
        with_output: Delete the output exchange too, even with bindings.
        force: Delete although messages are lost, and consumers lose their queue.
        statistics_age: Seconds between the two checks before the deletion.
        on_deleted: Called after each part.

    Returns:
        The deleted parts.

    Raises:
        TopologyInUseError: Messages are in it, or programs consume from it, without `force`.
        ConfigurationError, TransportError: As `check_deletion` and `delete_topology`.

    """
    return delete_topology(
        broker,
        lambda: check_deletion(broker, names, with_output=with_output),
        words_of(names),
        force=force,
        statistics_age=statistics_age,
        on_deleted=on_deleted,
    )


def check_deletion(broker: BrokerClient, names: IngressNames, *, with_output: bool = False) -> DeletionCheck:
    """Check the parts that `delete` would delete, and whether it may. Changes nothing.

    Args:
        broker: The virtual host.
        names: The names of the ingress' parts.
        with_output: Whether the output exchange would be deleted too, even with bindings.

    Returns:
        The parts that exist, and why others stay.

    Raises:
        ConfigurationError: There is no management API.
        TransportUnavailableError, TransportError: The broker does not answer.

    """
    if broker.management is None:
        raise ConfigurationError(_NO_MANAGEMENT)
    broker.check_same_cluster()
    snapshot = broker.management.snapshot()
    exchanges, kept = _exchanges(names, snapshot, with_output)
    queues = [Queue(name) for name in (names.queue, names.expired, names.rejected) if name in snapshot.queues]
    inward = sorted((one for one in snapshot.bindings if _leads_to_queue(one, names.queue)), key=str)
    gone = {one.name for one in exchanges}
    others = [one for one in snapshot.bindings if {one.source, _exchange_of(one)} & gone and not _is_own(one, names)]
    return DeletionCheck(
        exchanges=exchanges,
        queues=queues,
        kept=kept,
        uses=uses_of(broker, queues, broker.management.message_counts()),
        cut_off=sorted(others, key=str),
        upstream=[*(one for one in exchanges if one.name == names.exchange), *inward],
        restoring=[*_upstream_of(names, exchanges, snapshot), *inward],
    )


def _exchanges(names: IngressNames, snapshot: BrokerSnapshot, with_output: bool) -> tuple[list[Exchange], list[str]]:
    """The exchanges that go, and why others stay."""
    going: list[Exchange] = []
    kept: list[str] = []
    for name, why in (
        (names.exchange, _why_exchange_stays(names, snapshot)),
        (names.expired, None),
        (names.out, None if with_output else _why_out_stays(names, snapshot)),
    ):
        state = snapshot.exchanges.get(name)
        if state is not None and why is None:
            going.append(Exchange(name, state.type, state.arguments))
        elif state is not None:
            kept.append(f"exchange {name!r} stays: {why}")
    return going, kept


def _why_exchange_stays(names: IngressNames, snapshot: BrokerSnapshot) -> str | None:
    state = snapshot.exchanges.get(names.exchange)
    if state is not None and state.type == PLUGIN_TYPE:
        return "it is the delayed-message plugin's"
    others = [one for one in snapshot.bindings if one.source == names.exchange and not _is_own(one, names)]
    return f"{others[0].kind} {others[0].destination!r} is bound to it, too" if others else None


def _why_out_stays(names: IngressNames, snapshot: BrokerSnapshot) -> str | None:
    count = sum(1 for one in snapshot.bindings if names.out in (one.source, _exchange_of(one)))
    return f"it has {counted(count, 'binding')}; --delete-output-exchange deletes it, too" if count else None


def _upstream_of(names: IngressNames, exchanges: Sequence[Exchange], snapshot: BrokerSnapshot) -> list[Part]:
    """The exchange to publish to, if it goes, and what leads to it."""
    ingress_exchange: list[Part] = [one for one in exchanges if one.name == names.exchange]
    return [
        *ingress_exchange,
        *(one for one in snapshot.bindings if ingress_exchange and _exchange_of(one) == names.exchange),
    ]


def _is_own(binding: Binding, names: IngressNames) -> bool:
    """Whether it leads from one of the ingress' exchanges into its queue."""
    return _leads_to_queue(binding, names.queue if binding.source == names.exchange else names.expired)


def _leads_to_queue(binding: Binding, queue: str) -> bool:
    return binding.kind is DestinationKind.QUEUE and binding.destination == queue


def _exchange_of(binding: Binding) -> str | None:
    """The exchange that it leads to. None: it leads to a queue."""
    return binding.destination if binding.kind is DestinationKind.EXCHANGE else None


_BACKUP: Final = "before.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(ABC):
    """From `plugin` to `topology`."""

    plugin: PluginExchange
    topology: IngressTopology

    @abstractmethod
    def takes_place(self, exchanges: Mapping[str, ExchangeState]) -> bool:
        """Whether the exchange to publish to can be declared, given the exchanges that are there now."""

    @abstractmethod
    def steps(self, ingress_exchange: bool) -> Sequence[str]:
        """The steps to do, in this order. `ingress_exchange`: whether that could be declared."""

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
        return f"run delaystore ingress run {names.exchange}{queue}{destination}, and delaystore dispatch"

    def _publishers(self) -> str:
        return (
            f"publishers that declare {self.topology.names.exchange!r} declare it as {self.topology.exchange_type}, "
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
    def steps(self, ingress_exchange: bool) -> Sequence[str]:
        return [] if ingress_exchange else list(self._steps())

    def _steps(self) -> Iterator[str]:
        name, out = self.plugin.name, self.topology.names.out
        yield (
            f"{self._prepared()}; with --new-exchange NAME it prepares another exchange, and publishers change to it "
            "one by one, without a pause"
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
        yield from self._about_waiting_messages()
        yield (
            f"delete {name!r}, and declare it again at once: delaystore ingress create {name} --definitions {_BACKUP} "
            "--replace"
        )
        yield f"{self._publishers()}; start them"
        yield f"programs bind their queues to {out!r} only: what is bound to {name!r} gets messages at once"
        if self.plugin.survives(self.topology.exchange_type):
            yield (
                "keep the plugin enabled for as long as your longest delay, and then disable it: disabling deletes "
                "the messages in it"
            )

    def _about_waiting_messages(self) -> Iterator[str]:
        if self.plugin.survives(self.topology.exchange_type):
            yield (
                f"messages in the plugin{self._waiting()} stay there; when they are due they come to "
                f"{self.topology.names.queue!r}, and go on at once (seen with RabbitMQ 3.10.8 and 4.0.5: try yours). "
                "Messages that fall due in the instant in which the exchange is missing are lost: if none may be, wait "
                "until the plugin has no messages, or pass --new-exchange"
            )
        else:
            yield (
                f"wait until the plugin has no messages{self._waiting()}, as delaystore ingress status shows: the "
                "others are lost when the exchange is deleted"
            )


class NewName(Switch):
    """Publishers change to an exchange of another name, one by one. Both work meanwhile."""

    @override
    def takes_place(self, exchanges: Mapping[str, ExchangeState]) -> bool:
        return True

    @override
    def steps(self, ingress_exchange: bool) -> Sequence[str]:
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
            f"wait until no program publishes to {old!r} and the plugin has no messages{self._waiting()}: "
            f"delaystore ingress status {old} shows that"
        )
        yield f"delete {old!r}, and disable the plugin once no exchange of its type is left; that deletes its messages"


def switch_from_plugin(
    snapshot: BrokerSnapshot,
    exchange: str,
    *,
    new_name: str | None = None,
    queue: str | None = None,
    out: str | None = None,
    exchange_type: str | None = None,
    live: BrokerSnapshot | None = None,
) -> Switch:
    """Plan the way from an exchange of the delayed-message plugin to an ingress.

    Args:
        snapshot: The broker, or an export of its definitions.
        exchange: The plugin's exchange.
        new_name: The ingress exchange. None: the same name.
        queue: The ingress queue. None: named after the exchange.
        out: The output exchange. None: named after the exchange.
        exchange_type: The type of the ingress exchange. None: the type of the plugin's bindings, where possible.
        live: The broker now, where `snapshot` is of an export: bindings of deleted queues are left out.

    Returns:
        The plan.

    Raises:
        TransportSetupError: It is no exchange of the plugin.
        ConfigurationError: The names cannot work.

    """
    if new_name == exchange:
        raise ConfigurationError(
            f"--new-exchange {exchange!r} is the present name of the exchange; give a new one, "
            "or leave --new-exchange out"
        )
    names = IngressNames.of(new_name or exchange, queue=queue, out=out)
    if names.out == exchange:
        raise ConfigurationError(
            f"{exchange!r} delays its messages, so it cannot be the output exchange; name another with "
            "--output-exchange"
        )
    plugin = read_plugin_exchange(snapshot, exchange, names.out)
    if live is not None:
        plugin = plugin.without_the_gone(live)
    in_place = new_name is None
    topology = IngressTopology(
        names=names,
        out_type=plugin.inner_type,
        exchange_type=exchange_type or exchange_type_for(plugin.inner_type),
        out_arguments=plugin.arguments,
        out_bindings=plugin.copied_bindings(names.out),
        sources=plugin.sources if in_place else (),
        old_keys=plugin.direct_keys if in_place else (),
    )
    return InPlace(plugin=plugin, topology=topology) if in_place else NewName(plugin=plugin, topology=topology)


def replace_exchange(
    broker: BrokerClient, switch: Switch, on_declared: Callable[[Part], object] = lambda _part: None
) -> Creation:
    """Delete the plugin's exchange and at once declare the ingress exchange in its place. All else is declared before.

    In between, for some milliseconds, messages published there are refused, and messages that fall due in the plugin
    are lost: it delivers to any exchange of that name. If the process dies here, `create` declares the rest.

    Args:
        broker: The virtual host.
        switch: Read from an export, which keeps the bindings that vanish with the exchange.
        on_declared: Called after each part.

    Returns:
        The declared parts.

    Raises:
        TransportSetupError: Messages wait in the plugin that would be lost, or the exchange has changed since the
            export.
        ConfigurationError: There is no management API.
        DeclarationError, TransportUnavailableError, TransportError: As `create`.

    """
    if broker.management is None:
        raise ConfigurationError("AMQP does not show the plugin's exchanges; pass --management URL")
    plugin, topology = switch.plugin, switch.topology
    live = read_plugin_exchange(broker.management.snapshot(), plugin.name, topology.names.out)
    _refuse_change(plugin, live)
    if live.waiting and not plugin.survives(topology.exchange_type):
        raise TransportSetupError(
            f"{live.waiting:,} messages wait in the plugin for {plugin.name!r}, and would be lost, as the new exchange "
            f"is no {plugin.inner_type} one: wait until they have arrived"
        )
    prepared = create(broker, topology, ingress_exchange=False, on_declared=on_declared)
    _swap(broker, topology)
    done = create(broker, topology, on_declared=on_declared)
    return Creation(
        broker=done.broker,
        version=done.version,
        missing=[*prepared.missing, *done.missing],
        declared=prepared.declared + len(topology.ingress_exchange.parts),
        unchecked=done.unchecked,
    )


def _refuse_change(exported: PluginExchange, live: PluginExchange) -> None:
    for what in ("inner_type", "arguments", "bindings", "sources"):
        if getattr(exported, what) != getattr(live, what):
            raise TransportSetupError(
                f"exchange {live.name!r} has other {what.replace('_', ' ')} than in the export: export the definitions "
                "again"
            )


def _swap(broker: BrokerClient, topology: IngressTopology) -> None:
    """Delete, declare and bind, in frames that are sent at once and ask for no answer: so that the gap is short."""
    (exchange,), bindings = topology.ingress_exchange.exchanges, topology.ingress_exchange.bindings
    try:
        with broker.connections.channel() as channel, quiet_pika():
            frames = frames_of(channel)
            frames.exchange_delete(exchange.name)
            frames.exchange_declare(exchange.name, exchange.type, durable=True)
            for one in bindings:
                if one.source == exchange.name:
                    frames.queue_bind(one.destination, one.source, one.routing_key)
            channel.exchange_declare(exchange.name, passive=True)  # its answer comes after all these are done
    except exceptions.ChannelClosedByBroker as error:
        raise TransportSetupError(
            f"{exchange} cannot be replaced: {reason_of(error)}; correct that, and run the same command again"
        ) from None
