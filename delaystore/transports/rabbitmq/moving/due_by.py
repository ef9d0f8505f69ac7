"""What tells how long a message has yet to wait."""

from enum import StrEnum


class DueBy(StrEnum):
    """What tells the remaining delay.

    HEADERS: NServiceBus' TimeSent and DelayInSeconds, or a Celery task's eta; exact.
    KEY: the digits of the routing key from the present level down, counted from now. Needs no header and no clock;
    never early, and late by what the message has waited in its present level already.
    EITHER: the headers, or else the key.
    """

    HEADERS = "headers"
    KEY = "key"
    EITHER = "either"
