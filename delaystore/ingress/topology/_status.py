"""How an ingress is doing on a broker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from delaystore.cascades import BrokerClient, BrokerSnapshot, QueueState
from delaystore.ingress.settings import IngressNames
from delaystore.transports.rabbitmq.queues import QueueAvailability, QueueLook, look_at, missing
from delaystore.transports.rabbitmq.topology.layout import Exchange

_UNKNOWN_BY_AMQP: Final = (
    "rates, unacknowledged messages, and messages in the plugin: only the management API shows them",
    "whether queues are bound to the output exchange: only the management API lists bindings",
)
_NO_AGE: Final = (
    "how long the oldest has waited: the broker does not say, as of most quorum queues, or messages have no timestamp"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """One queue of an ingress; None: not known. `role`: ingress, expired or rejected.

    `availability`: whether it is there.

    `ready`: messages that wait for a consumer. `messages`: with unacknowledged ones, and ones on their way to the
    expired queue. `publish_rate`, `deliver_rate`: messages a second, lately. `oldest`: when the message at the head
    was published, as it says itself.
    """

    role: str
    name: str
    availability: QueueAvailability
    ready: int | None = None
    messages: int | None = None
    unacknowledged: int | None = None
    consumers: int | None = None
    publish_rate: float | None = None
    deliver_rate: float | None = None
    oldest: datetime | None = None

    @property
    def most(self) -> int:
        """How many messages are known to be in it."""
        return max(self.ready or 0, self.messages or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressStatus:
    """An ingress on `broker` (host, port and virtual host). `queues`: the ingress queue first.

    `missing`: the exchanges that are not there. `bound`: how many queues are behind the output exchange.
    `waiting_in_plugin`: messages that wait in the delayed-message plugin for the exchange. None for both: not known, or
    not the plugin's. `unknown`: facts that could not be found out, a sentence each.
    """

    broker: str
    names: IngressNames
    queues: Sequence[QueueStatus]
    missing: Sequence[str] = ()
    bound: int | None = None
    waiting_in_plugin: int | None = None
    unknown: Sequence[str] = ()

    @property
    def problems(self) -> Sequence[str]:
        """Problems and their remedies, a sentence each."""
        return list(self._problems())

    @property
    def good(self) -> bool:
        """Whether there are no problems, as far as could be known."""
        return not self.problems

    def _problems(self) -> Iterator[str]:
        ingress, *others = self.queues
        for name in self.missing:
            yield f"exchange {name!r} is missing; correct the name, or run delaystore ingress create"
        for queue in self.queues:
            if queue.availability is not QueueAvailability.THERE:
                advice = "; run delaystore ingress create" if queue.availability is QueueAvailability.MISSING else ""
                yield f"queue {queue.name!r} is {queue.availability.value}{advice}"
        if ingress.availability is QueueAvailability.THERE and not ingress.consumers:
            yield f"no ingress consumes {ingress.name!r}; run delaystore serve, or delaystore ingress run"
        for queue in others:
            if queue.most:
                look = f"delaystore errors list --messages --error-queue {queue.name}"
                again = (
                    f", delaystore ingress replay {queue.name} publishes them again" if queue.role == "rejected" else ""
                )
                yield f"{queue.most:,} in {queue.name!r}; {look} shows them{again}"
        if self.bound == 0:
            yield f"no queue is bound to {self.names.out!r}: due messages go to the error queue"


def read_status(broker: BrokerClient, names: IngressNames) -> IngressStatus:
    """How the ingress is doing. Changes nothing. Raises TransportUnavailableError, TransportError."""
    looks = {name: look_at(broker.connections, name) for name in (names.queue, names.expired, names.rejected)}
    absent = [one.name for one in missing(broker.connections, [Exchange(names.exchange), Exchange(names.out)])]
    if broker.management is None:
        return IngressStatus(
            broker=broker.label,
            names=names,
            queues=_queues(looks, BrokerSnapshot()),
            missing=absent,
            unknown=_UNKNOWN_BY_AMQP,
        )
    broker.check_same_cluster()
    snapshot = broker.management.snapshot()
    queues = _queues(looks, snapshot)
    exchange = snapshot.exchanges.get(names.exchange)
    aged = queues[0].oldest is not None or not queues[0].most
    return IngressStatus(
        broker=broker.label,
        names=names,
        queues=queues,
        missing=absent,
        bound=len(snapshot.queues_behind(names.out)) if names.out in snapshot.exchanges else None,
        waiting_in_plugin=None if exchange is None else exchange.delayed,
        unknown=() if aged else (_NO_AGE,),
    )


def _queues(looks: dict[str, QueueLook], snapshot: BrokerSnapshot) -> list[QueueStatus]:
    roles = ("ingress", "expired", "rejected")
    return [
        _queue(role, name, look, snapshot.queues.get(name))
        for role, (name, look) in zip(roles, looks.items(), strict=True)
    ]


def _at_least(messages: int | None, ready: int | None) -> int | None:
    """The management API's count is some seconds old; AMQP shows the messages of this moment."""
    return None if messages is None else max(messages, ready or 0)


def _queue(role: str, name: str, look: QueueLook, state: QueueState | None) -> QueueStatus:
    there = look.availability is QueueAvailability.THERE
    ready, consumers = (look.ready, look.consumers) if there else (None, None)
    if state is None:
        return QueueStatus(role=role, name=name, availability=look.availability, ready=ready, consumers=consumers)
    return QueueStatus(
        role=role,
        name=name,
        availability=look.availability,
        ready=ready,
        consumers=consumers,
        messages=_at_least(state.messages, ready),
        unacknowledged=state.unacknowledged,
        publish_rate=state.publish_rate,
        deliver_rate=state.deliver_rate,
        oldest=None if state.oldest is None else datetime.fromtimestamp(state.oldest, UTC),
    )
