"""What a nack and a return mean, which neither says: a look at the queue tells."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from delaystore.address import DEFAULT_EXCHANGE, Address
from delaystore.amounts import counted
from delaystore.errors import TransportUnavailableError
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.existence import QueueLook, Standing, look_at

LOOK_SECONDS: Final = 2.0
"""Seconds that the looks after one send may take."""
_UNKNOWN: Final = QueueLook(Standing.UNKNOWN, reason="it could not be looked at in time")


def look_at_all(
    connections: BlockingConnections, addresses: Iterable[Address], seconds: float = LOOK_SECONDS
) -> Mapping[Address, QueueLook]:
    """How each queue among `addresses` stands, within about so many seconds; exchanges are left out."""
    deadline = time.monotonic() + seconds
    looks: dict[Address, QueueLook] = {}
    for address in addresses:
        if address.exchange != DEFAULT_EXCHANGE:
            continue
        if time.monotonic() > deadline:
            looks[address] = _UNKNOWN
            continue
        try:
            looks[address] = look_at(connections, address.routing_key)
        except TransportUnavailableError as error:
            looks[address] = QueueLook(Standing.UNKNOWN, reason=str(error))
    return looks


def of_return(returned: Outcome, look: QueueLook | None) -> Outcome:
    """What the return of a message means. `look`: at its queue; None: it was for an exchange.

    A queue that exists has no route to it while its node is down. Of an exchange nobody can tell which queues are bound
    to it: no route is no route.
    """
    if look is None:
        return replace(returned, reason=f"no queue is bound to the exchange for it; {returned.reason}")
    if look.standing is Standing.MISSING:
        how = "create it with `delaystore setup --queue NAME`"
        return replace(returned, reason=f"there is no such queue; {how}; {returned.reason}")
    if look.standing is Standing.THERE:
        return Outcome(OutcomeKind.UNREADY, f"{returned.reason}, although the queue exists")
    return Outcome(OutcomeKind.UNREADY, f"{returned.reason}; {look.reason}")


def may_refuse(look: QueueLook) -> bool:
    """Whether a queue that has nacked may be full: it answers, and holds messages. Without a leader it shows none."""
    return look.standing is Standing.THERE and look.ready > 0


def of_nack(nacked: Outcome, look: QueueLook | None) -> Outcome:
    """What a nack means from a queue that is not known to refuse."""
    if look is None:
        return nacked
    if look.standing is Standing.THERE:
        return Outcome(nacked.kind, f"{nacked.reason}; the queue shows no messages, so it may have lost its leader")
    return Outcome(nacked.kind, f"{nacked.reason}; {look.reason}")


def of_second_nack(look: QueueLook) -> Outcome:
    """What the nack means that follows such a look."""
    return Outcome(
        OutcomeKind.REFUSED,
        f"nacked by the broker, and again after a look at the queue, which holds "
        f"{counted(look.ready, 'message')}: it is full and rejects",
    )
