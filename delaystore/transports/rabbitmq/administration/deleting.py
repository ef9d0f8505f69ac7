"""Deleting a cascade, unless messages wait in it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pika import exceptions

from delaystore.errors import TransportError, TransportSetupError, TransportUnavailableError
from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.declaring import declare, exists, named, things
from delaystore.transports.rabbitmq.administration.policies import complete_layout, policy_for
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.logs import quiet_pika
from delaystore.transports.rabbitmq.management import Management
from delaystore.transports.rabbitmq.reasons import reason_of
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Binding, Exchange, Queue

STATISTICS_AGE: Final = 6.0
"""Seconds. Brokers count every 5 by default, so what was counted so much later is not older than the first look."""
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What there is to delete.

    `parts`: the exchanges and queues that are there. `waiting`: messages by queue, those that are stuck among them;
    None for a queue that nobody could count. `destinations`: bindings that vanish with the delivery exchange, where
    the management API lists them. `policy`: the name of ours, if it is there. `unknowable`: there is no management API,
    so that nobody will ever count.
    """

    parts: Sequence[Exchange | Queue]
    waiting: Mapping[str, int | None]
    destinations: Sequence[Binding]
    policy: str | None
    unknowable: bool = False

    @property
    def messages(self) -> int:
        """All that is known to wait."""
        return sum(count or 0 for count in self.waiting.values())

    @property
    def refusable(self) -> bool:
        """Whether there is an obstacle that a second look would not change, as it may that a queue is not counted."""
        return self.messages > 0 or (self.unknowable and bool(self.waiting))

    @property
    def obstacle(self) -> str | None:
        """Why it must not be deleted without force; None: nothing waits."""
        if self.messages:
            queues = sum(1 for count in self.waiting.values() if count)
            return f"{self.messages:,} messages wait in {queues} of its queues, and would be lost"
        if self.unknowable and self.waiting:
            return "without the management API (--management URL) nobody can know whether messages wait in it"
        uncounted = [name for name, count in self.waiting.items() if count is None]
        if uncounted:
            return f"nobody can know whether messages wait in {uncounted[0]!r}" + (
                f" and {len(uncounted) - 1} more queues" if len(uncounted) > 1 else ""
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What was deleted. `lost`: messages that went with the queues, as far as the broker said."""

    survey: Survey
    deleted: Sequence[Exchange | Queue]
    policy: str | None
    lost: int


class MessagesWaitError(TransportError):
    """A cascade that must not be deleted: messages wait in it, or may. `survey` says where."""

    def __init__(self, survey: Survey, note: str = "") -> None:
        self.survey = survey
        super().__init__(f"the cascade is not deleted: {survey.obstacle}{note}; let them arrive, or pass --force")

    def __reduce__(self) -> tuple[type["MessagesWaitError"], tuple[Survey]]:
        return type(self), (self.survey,)


def survey(broker: Administered, topology: CascadeTopology) -> Survey:
    """Look at what `delete` would delete. Raises TransportUnavailableError, TransportError."""
    layout = complete_layout(topology)
    parts = [part for part in things(layout) if exists(broker.connections, part)]
    queues = [part for part in parts if isinstance(part, Queue)]
    management = broker.management
    if management is None:
        uncounted = {queue.name: _ready(broker.connections, queue.name) or None for queue in queues}
        return Survey(parts=parts, waiting=uncounted, destinations=(), policy=None, unknowable=True)
    broker.check_same_cluster()
    ours = policy_for(topology)
    own = frozenset(layout.bindings)
    return Survey(
        parts=parts,
        waiting=_counts(broker.connections, management, queues),
        destinations=[binding for binding in management.bindings(topology.delivery) if binding not in own],
        policy=ours.name if ours is not None and management.policy(ours.name) is not None else None,
    )


def delete(
    broker: Administered,
    topology: CascadeTopology,
    *,
    force: bool = False,
    statistics_age: float = STATISTICS_AGE,
    on_deleted: Callable[[Exchange | Queue], object] = lambda _part: None,
) -> Deletion:
    """Delete the cascade's exchanges and queues, and our policy; destinations stay, unbound from it.

    Raises MessagesWaitError where messages wait, or where that cannot be known (no management API), unless `force`.
    It looks twice, `statistics_age` seconds apart, since the broker's counts are up to 5 seconds old; and once more
    when nothing can be published into the levels any more, after which it restores them if something has come.
    What was published without the levels' exchanges, as by a plugin, is not protected. May be run again.
    """
    found = survey(broker, topology)
    if not force:
        if found.refusable:
            raise MessagesWaitError(found)
        time.sleep(statistics_age if found.waiting else 0)
        found = survey(broker, topology)
        _refuse_waiting(found)
    run = _Run(broker, topology, on_deleted)
    run.close_entrances(found, force)
    run.delete_rest(found)
    policy = None
    if found.policy is not None and broker.management is not None:
        policy = found.policy if broker.management.delete_policy(found.policy) else None
    return Deletion(survey=found, deleted=tuple(run.deleted), policy=policy, lost=run.lost)


class _Run:
    """One deletion, and what it has done so far."""

    def __init__(
        self, broker: Administered, topology: CascadeTopology, on_deleted: Callable[[Exchange | Queue], object]
    ) -> None:
        self.deleted: list[Exchange | Queue] = []
        self.lost = 0
        self._connections = broker.connections
        self._topology = topology
        self._on_deleted = on_deleted

    def close_entrances(self, found: Survey, force: bool) -> None:
        """Delete the exchanges that lead into levels; restore them if messages have come in the meantime."""
        ends = {self._topology.delivery, *self._ends()}
        entrances = [part for part in found.parts if isinstance(part, Exchange) and part.name not in ends]
        for part in entrances:
            self._delete(part)
        if force:
            return
        queues = [part for part in found.parts if isinstance(part, Queue)]
        waiting = {queue.name: _ready(self._connections, queue.name) for queue in queues}
        if any(waiting.values()):
            declare(self._connections, self._topology.layout())
            late = Survey(parts=found.parts, waiting=waiting, destinations=found.destinations, policy=found.policy)
            raise MessagesWaitError(late, " (they came just now; what had been deleted is restored)")

    def delete_rest(self, found: Survey) -> None:
        """Delete queues, then the exchanges that they lead to."""
        for part in found.parts:
            if isinstance(part, Queue):
                self._delete(part)
        for part in found.parts:
            if part not in self.deleted:
                self._delete(part)

    def _ends(self) -> list[str]:
        layout = complete_layout(self._topology)
        return [exchange.name for exchange in layout.exchanges if exchange.type == "fanout"]

    def _delete(self, part: Exchange | Queue) -> None:
        try:
            with self._connections.channel() as channel, quiet_pika():
                if isinstance(part, Queue):
                    self.lost += channel.queue_delete(part.name).method.message_count
                else:
                    channel.exchange_delete(part.name)
        except TransportUnavailableError as error:
            raise TransportUnavailableError(f"{error}; {self._until_then()}") from None
        except exceptions.ChannelClosedByBroker as error:
            raise TransportSetupError(
                f"{named(part)} cannot be deleted: {reason_of(error)}; {self._until_then()}"
            ) from None
        self.deleted.append(part)
        self._on_deleted(part)

    def _until_then(self) -> str:
        if not self.deleted:
            return "nothing had been deleted until then"
        return f"deleted until then: {len(self.deleted)} exchanges and queues; run it again to delete the rest"


def _refuse_waiting(found: Survey) -> None:
    if found.obstacle is not None:
        raise MessagesWaitError(found)


def _counts(connections: BlockingConnections, management: Management, queues: Sequence[Queue]) -> dict[str, int | None]:
    """What waits: what is ready now by AMQP, or else everything, by the API, some seconds ago."""
    counted = management.message_counts()
    return {queue.name: _ready(connections, queue.name) or counted.get(queue.name) for queue in queues}


def _ready(connections: BlockingConnections, name: str) -> int:
    """How many messages are ready; 0, too, for a queue that is gone."""
    try:
        with connections.channel() as channel, quiet_pika():
            answer: Any = channel.queue_declare(name, passive=True)
    except exceptions.ChannelClosedByBroker as error:
        if error.reply_code == _NOT_FOUND:
            return 0
        raise TransportSetupError(f"queue {name!r} cannot be looked up: {reason_of(error)}") from None
    count: int = answer.method.message_count
    return count
