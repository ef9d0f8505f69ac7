"""Ending loops that no configuration shows: RabbitMQ's bindings bring a message back to an ingress again and again.

An ingress notes in the message where it forwards it to, if that is not just from its exchange to its output exchange,
and counts each arrival with the exchange and the routing key that were noted: no program has published it in between.
An arrival with another address sets the count to 0, and so does a delay that was asked for since, since consumers may
publish a message again as often as they like. A message that a queue dead-letters does not count, because consumers
use that for later attempts.
"""

from typing import Any, Final

from delaystore.address import parse_address
from delaystore.errors import UnsupportedMessageError
from delaystore.headers import FORWARDED_TO, HOPS
from delaystore.ingress.arrival import Arrival
from delaystore.ingress.reading.rejection import RejectedArrivalError

MOST: Final = 20
"""Times that RabbitMQ may bring a message back. Ingresses one behind the other are a few."""


def count_hop(headers: dict[str, Any], arrival: Arrival, *, asks_anew: bool) -> int:
    """Take off what an ingress noted of this message; how often it has come back by now. Raises RejectedArrivalError.

    `asks_anew`: whether a program has asked for a delay since the message was forwarded.
    """
    noted, hops = headers.pop(FORWARDED_TO, None), headers.pop(HOPS, 0)
    if noted is None or asks_anew or not _is_published_to(noted, arrival):
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
