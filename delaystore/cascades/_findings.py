"""What is wrong with a cascade on a broker, as values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class FindingKind(StrEnum):
    """What is wrong.

    VERSION: the broker is too old, or too new, for this layout. FEATURE_FLAG: one that the layout needs is disabled.
    DEFAULT_QUEUE_TYPE: the virtual host's would make the layout's queues another kind.
    PERMISSION: the user may not do what the layout needs. MISSING: an exchange, queue or binding does not exist.
    INEQUIVALENT: it exists with another type or argument, so that declaring it would fail. EXTRA_BINDING: a binding
    leads messages where the layout does not. UNDELIVERABLE: an expired message without a destination would be lost,
    or would hold others up. COLLISION: a destination gets messages for another, or gets its own twice.
    DELIVERY_LIMIT: a message that is read and given back too often would be sent on early, or dropped.
    POLICY: one does to a queue what must not be done to it.
    """

    VERSION = "version"
    FEATURE_FLAG = "feature-flag"
    DEFAULT_QUEUE_TYPE = "default-queue-type"
    PERMISSION = "permission"
    MISSING = "missing"
    INEQUIVALENT = "inequivalent"
    EXTRA_BINDING = "extra-binding"
    UNDELIVERABLE = "undeliverable"
    COLLISION = "collision"
    DELIVERY_LIMIT = "delivery-limit"
    POLICY = "policy"


HINDRANCES: Final = frozenset(
    {
        FindingKind.VERSION,
        FindingKind.FEATURE_FLAG,
        FindingKind.DEFAULT_QUEUE_TYPE,
        FindingKind.PERMISSION,
        FindingKind.INEQUIVALENT,
    }
)
"""What must be settled before a layout can be declared."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `subject`: what it is about, for people. `text`: what is wrong and what to do.

    `argument`, `expected`, `actual`: of an inequivalent exchange or queue; None as a value: the argument is absent.
    """

    kind: FindingKind
    subject: str
    text: str
    argument: str | None = None
    expected: Any = None
    actual: Any = None

    @property
    def hinders(self) -> bool:
        """Whether the layout cannot be declared before this is settled."""
        return self.kind in HINDRANCES

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"
