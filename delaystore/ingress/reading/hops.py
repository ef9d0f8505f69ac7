"""Ending loops that no configuration shows: how often RabbitMQ itself has brought a message back to an ingress.

A consumer may publish a message again as it came, any number of times and at any rate, and its headers come along. So
a count of arrivals alone would reject good retries. RabbitMQ tells the two apart: with each message comes the exchange
and the routing key that it was published with. If these are the ones that an ingress had the message forwarded with,
then bindings lead from there to an ingress, and no program has published it in between. Only such arrivals count. One
that was published to another address, as by a consumer to the exchange that it was sent to at first, begins again at 0,
and so does one that asks for a delay of a second or more: at that rate it harms nobody.

For that a message has to carry where it is forwarded to. It does where a loop is possible: if a header or the
configuration names its destination, and if it came from another exchange than the one before the ingress. What is
published to the ingress exchange, and goes on to its output exchange, has no more headers than before.

What a queue dead-letters to an ingress does not count: that is how consumers reject a message for a later attempt.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from delaystore.address import parse_address
from delaystore.errors import UnsupportedMessageError
from delaystore.headers import FORWARDED_TO, HOPS
from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.rejection import RejectedArrivalError

MOST: Final = 20
"""Times that RabbitMQ may bring a message back. Ingresses one behind the other are a few."""
_SLOW: Final = timedelta(seconds=1)
"""A message that asks for as long a delay as this is no loop at full speed."""


def count_hop(headers: dict[str, Any], arrival: Arrival, start: datetime, due_time: datetime) -> int:
    """Take off what an ingress noted of this message; how often it has come back by now. Raises RejectedArrivalError.

    `start`: when its delay began.
    """
    noted, hops = headers.pop(FORWARDED_TO, None), headers.pop(HOPS, 0)
    if noted is None or due_time - start >= _SLOW or not _is_published_to(noted, arrival):
        return 0
    hops = hops + 1 if type(hops) is int and hops > 0 else 1
    if hops > MOST:
        raise RejectedArrivalError(
            f"it was forwarded to {noted}, and RabbitMQ has brought it back from there {MOST} times, without a program "
            "in between: correct the bindings that lead from there to an ingress"
        )
    return hops


def note_hop(headers: dict[str, Any], hops: int, destination: str) -> None:
    """Note where the message is forwarded to, and how often it has come back."""
    headers[FORWARDED_TO] = destination
    if hops:
        headers[HOPS] = hops


def _is_published_to(noted: object, arrival: Arrival) -> bool:
    try:
        return isinstance(noted, str) and parse_address(noted) == (arrival.exchange, arrival.routing_key)
    except UnsupportedMessageError:
        return False
