"""How often messages of a source may be given back: beyond the limit, the broker sends them on to the next level."""

from collections.abc import Iterable, Mapping
from typing import Final

from delaystore.cascades._snapshot import Snapshot
from delaystore.cascades.delivery_limits import current_snapshot, delivery_limit, limited_queues
from delaystore.cascades.moving._messages import WaitingMessage
from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.raw import MalformedPropertiesError, integer_of

_COUNT: Final = b"x-delivery-count"
"""What the broker compares with the limit: how often a message was given back; since RabbitMQ 4.3, after failures."""


def reading_limits(source: BrokerCascade) -> Mapping[str, int]:
    """The level queues whose messages may be given back so often only; where no management API tells, by default.

    Raises ConfigurationError for the API of another broker, TransportUnavailableError, TransportError.
    """
    version, management = source.version(), source.management
    if management is not None:
        source.check_same_cluster()

        def take() -> Snapshot:
            return Snapshot(queues=management.queues(), policies=tuple(management.policies()))

        limits = limited_queues(version, source.cascade, current_snapshot(version, source.cascade, take(), take))
    else:
        default = delivery_limit(version, None)
        quorum = (queue.name for queue in source.cascade.layout().queues if queue.type == "quorum")
        limits = {} if default is None else dict.fromkeys(quorum, default)
    return {name: limit for name, limit in limits.items() if name in source.queues}


def refuse_dry_run(source: BrokerCascade) -> None:
    """ConfigurationError where a dry run would use up a part of a limit; raises as `reading_limits`."""
    limits = reading_limits(source)
    if limits:
        name, limit = next(iter(limits.items()))
        raise ConfigurationError(
            f"a dry run gives back what it reads, and {'' if source.management else 'by default '}RabbitMQ sends a "
            f"message of {name!r} on early after {limit} times; {_how_to_lift(source)}"
        )


def refuse_worn(source: BrokerCascade, messages: Iterable[WaitingMessage], limits: Mapping[str, int]) -> None:
    """ConfigurationError where one of `messages` has used up half of its queue's limit: a failure gives it back."""
    for message in messages:
        if message.redelivered and message.queue in limits:
            count, limit = _given_back(message), limits[message.queue]
            if count >= max(1, limit // 2):
                raise ConfigurationError(
                    f"a message of {message.queue!r} was read and given back {count} times, and after {limit} RabbitMQ "
                    f"sends it on early; {_how_to_lift(source)}"
                )


def _how_to_lift(source: BrokerCascade) -> str:
    if source.management is None:
        return "pass --management URL, which tells whether a policy lifts this (delaystore delays create sets it)"
    return f"run delaystore delays create --cascade {source.name}, which sets the policy that lifts this"


def _given_back(message: WaitingMessage) -> int:
    try:
        return integer_of(dict(message.properties.headers).get(_COUNT)) or 0
    except MalformedPropertiesError:
        return 0
