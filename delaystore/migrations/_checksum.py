"""A checksum of a set of messages, whatever their order."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final, Self

Identity = tuple[str, str, datetime]
"""What a checksum is over: message_id, destination, due_time."""
_MODULUS: Final = 2**128


@dataclass(frozen=True, slots=True)
class Checksum:
    """How many messages, and the sum of the digests of (message_id, destination, due_time). Checksums can be added."""

    count: int = 0
    total: int = 0

    def __add__(self, other: Self) -> "Checksum":
        return Checksum(self.count + other.count, (self.total + other.total) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.count}:{self.total:032x}"


def checksum(messages: Iterable[Identity]) -> Checksum:
    """The checksum of (message_id, destination, due_time) each. The times are aware, and count in microseconds."""
    count = total = 0
    for message_id, destination, due_time in messages:
        text = f"{len(message_id)}:{message_id}{len(destination)}:{destination}{due_time.timestamp():.6f}"
        total += int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest())
        count += 1
    return Checksum(count, total % _MODULUS)
