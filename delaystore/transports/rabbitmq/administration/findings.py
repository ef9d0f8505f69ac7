"""What is wrong with a cascade on a broker, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class FindingKind(StrEnum):
    """What sort of difference was found.

    VERSION: the broker is too old, or too new, for this layout. FEATURE_FLAG: one that the layout needs is disabled.
    PERMISSION: the user may not do what the layout needs. MISSING: an exchange, queue or binding is not there.
    INEQUIVALENT: it is there with another type or argument; declaring it would fail. EXTRA_BINDING: a binding that
    leads messages where the layout does not. UNDELIVERABLE: an expired message without a destination would be lost,
    or would hold others up. COLLISION: a destination gets messages for another, or gets its own twice.
    """

    VERSION = "version"
    FEATURE_FLAG = "feature-flag"
    PERMISSION = "permission"
    MISSING = "missing"
    INEQUIVALENT = "inequivalent"
    EXTRA_BINDING = "extra-binding"
    UNDELIVERABLE = "undeliverable"
    COLLISION = "collision"


HINDRANCES: Final = frozenset(
    {FindingKind.VERSION, FindingKind.FEATURE_FLAG, FindingKind.PERMISSION, FindingKind.INEQUIVALENT}
)
"""What must be settled before a layout can be declared."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference. `subject`: the thing, for people. `text`: what is wrong and what to do.

    `argument`, `expected`, `actual`: of an inequivalent thing; an argument that is absent is None.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a broker holds of a cascade, compared with what it should. `broker`: host, port and virtual host.

    `unchecked`: what could not be known, a sentence each; nothing there is counted as a finding.
    """

    broker: str
    version: str
    findings: Sequence[Finding]
    unchecked: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Whether nothing was found; what was not checked may still be wrong."""
        return not self.findings

    @property
    def hindrances(self) -> list[Finding]:
        """What keeps the cascade from being declared."""
        return [finding for finding in self.findings if finding.hinders]
