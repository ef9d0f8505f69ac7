"""Names of headers that delaystore writes: NServiceBus' own where it has one, so that its tools can read them."""

from collections.abc import Mapping
from typing import Any, Final

EXCEPTION_TYPE: Final = "NServiceBus.ExceptionInfo.ExceptionType"
EXCEPTION_MESSAGE: Final = "NServiceBus.ExceptionInfo.Message"
STACK_TRACE: Final = "NServiceBus.ExceptionInfo.StackTrace"
TIME_OF_FAILURE: Final = "NServiceBus.TimeOfFailure"
FAILED_QUEUE: Final = "NServiceBus.FailedQ"
FAILURE_COUNT: Final = "delaystore.failure-count"
DUE_TIME: Final = "delaystore.due-time"
EXPIRATION: Final = "delaystore.expiration"
"""Keeps a message's own expiration where it must not take effect: in the error queue and in native delays."""
RAW_HEADERS: Final = "delaystore.raw-headers"
"""Headers as text: of a message that cannot be decoded, or those that the error queue cannot take."""
RAW_PROPERTIES: Final = "delaystore.raw-properties"
"""Properties as text, likewise."""
RAW_COLUMNS: Final = "delaystore.raw-columns"
"""What the other columns of a stored row held that is no message: JSON, by column."""
UNREAD_HEADERS: Final = "delaystore.unread-headers"
"""In place of headers that this program cannot read: why it cannot."""
UNDECODED: Final = "delaystore.raw"
"""In place of a SQL queue's headers or properties that are no JSON of ours: their text."""
HEADERS_IN_BODY: Final = "delaystore.headers-in-body"
"""Bytes of the body's first line, which holds headers and properties that the error queue cannot take."""
USER_ID: Final = "delaystore.user-id"
"""Keeps the property user_id of a message that an ingress took: RabbitMQ refuses any but the publisher's own."""
CLUSTER_ID: Final = "delaystore.cluster-id"
"""Keeps the property cluster_id, which AMQP 0-9-1 no longer has, likewise."""
DESTINATION: Final = "delaystore.destination"
"""Where a message that an ingress takes is to go, if its ingress goes by headers."""
REJECTED_REASON: Final = "delaystore.rejected-reason"
"""Why a message or a request is in a rejected queue."""
REJECTED_PROPERTIES: Final = "delaystore.rejected-properties"
"""Its properties as they came, where they cannot be read; with `-size`: how many of the body's first bytes they are."""
FORWARDED_TO: Final = "delaystore.forwarded-to"
"""The destination to which an ingress has its message forwarded, where a loop could begin there."""
HOPS: Final = "delaystore.hops"
"""How often RabbitMQ has brought a message from there to an ingress."""
CARBON_COPIES: Final = {"CC": "delaystore.cc", "BCC": "delaystore.bcc"}
"""Headers by which RabbitMQ delivers copies to more routing keys, and those that keep them where it must not."""
FAILED_CARBON_COPIES: Final = {"CC": "delaystore.failed-cc", "BCC": "delaystore.failed-bcc"}
"""The same in the error queue, of a message that was to be delivered with them. Only a dispatcher writes these."""
MARKS: Final = frozenset({RAW_HEADERS, RAW_PROPERTIES, UNREAD_HEADERS, HEADERS_IN_BODY, *FAILED_CARBON_COPIES.values()})
"""Headers by which a replay reads a copy in the error queue. A sender's own headers of these names are dropped."""


def without_carbon_copies(headers: Mapping[str, Any], kept_as: Mapping[str, str] = CARBON_COPIES) -> Mapping[str, Any]:
    """`headers` with CC and BCC under the names `kept_as`, so that RabbitMQ delivers no copies.

    RabbitMQ checks the rights of the account that publishes. Of a message that delaystore publishes for someone else
    that is delaystore's account, which may write to every queue. So CC goes on in two cases only: a program sent the
    message with `send`, or it goes to the exchange that stands behind the one that its publisher chose.
    """
    if headers.keys().isdisjoint(kept_as):
        return headers
    return {kept_as.get(name, name): value for name, value in headers.items() if name not in kept_as.values()}
