"""Settings of an ingress: frozen, and checked at construction."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.ingress.names import expired_of, rejected_of
from delaystore.settings import Converted, Duration

MOST_PREFETCHED: Final = 65535
"""basic.qos has 16 bits for the number."""


class OnDuplicate(StrEnum):
    """What becomes of a message whose id another message has that waits. The same message again is acknowledged."""

    BOTH = "both"
    """Both are delivered: the later one under another id, with its own in `delaystore.original-message-id`."""
    KEEP = "keep"
    """The one that waits stays, and the later one is dropped."""
    REPLACE = "replace"
    """The later one takes its place. If a dispatcher has the first one already, both are delivered."""


class DuplicateRule(Converted[OnDuplicate | str, OnDuplicate]):
    """An OnDuplicate, which may be given by its name."""

    @override
    def _convert(self, value: OnDuplicate | str) -> OnDuplicate:
        try:
            return OnDuplicate(value)
        except ValueError:
            raise ConfigurationError(f"{self._name} must be one of {', '.join(OnDuplicate)}, not {value!r}") from None


@dataclass(frozen=True, kw_only=True)
class IngressSettings:
    """Settings of one ingress; durations are timedeltas or seconds.

    `queue`: the ingress queue. Raises ConfigurationError at construction, naming the setting.
    """

    queue: str
    rejected_queue: str = ""
    """Where messages go that cannot be stored; default: `QUEUE.rejected`."""
    expired_queue: str = ""
    """Where the broker puts what expires in the ingress queue, read as well if it exists; default: `QUEUE.expired`."""
    on_duplicate: DuplicateRule = DuplicateRule(OnDuplicate.BOTH)
    direct_below: Duration = Duration(timedelta(0))
    """What is due within less is forwarded at once, without the store; 0: nothing is."""
    batch_size: int = 1000
    """The most messages stored at once."""
    prefetch: int = 2500
    """The most messages that the broker gives ahead of their acknowledgement."""
    memory_bytes: int = 64 * 1024 * 1024
    """Nothing is read from the broker while messages of as many bytes are in memory; at least 1 MiB. A single message
    may exceed it."""

    def __post_init__(self) -> None:
        if not self.queue:
            raise ConfigurationError("queue is empty; name the ingress queue")
        for name, default in (("rejected_queue", rejected_of), ("expired_queue", expired_of)):
            if not getattr(self, name):
                object.__setattr__(self, name, default(self.queue))
            if getattr(self, name) == self.queue:
                raise ConfigurationError(f"{name} is the ingress queue itself, for ever; name another one")
        _check_range("batch_size", self.batch_size, 1, MOST_PREFETCHED)
        _check_range("prefetch", self.prefetch, 1, MOST_PREFETCHED)
        _check_range("memory_bytes", self.memory_bytes, 1024 * 1024, 2**40)


def _check_range(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least:,} to {most:,}, not {value!r}")
