"""Which findings of a check an ingress minds."""

from collections.abc import Iterable
from typing import Final

from delaystore.cascades import Finding, FindingKind
from delaystore.transports.rabbitmq.topology.layout import Layout

_SETTINGS: Final = frozenset({"type", "durable", "auto_delete", "internal", None})
"""Of an exchange, beside its arguments. None: the broker did not say which."""


def own_findings(layout: Layout, findings: Iterable[Finding]) -> list[Finding]:
    """Without those about arguments that exchanges have, and `layout` does not mention: they are users' own."""
    minded = {(str(one), name) for one in layout.exchanges for name in {*_SETTINGS, *one.arguments}}
    exchanges = {str(one) for one in layout.exchanges}

    def is_own(finding: Finding) -> bool:
        by_argument = finding.kind is FindingKind.INEQUIVALENT and finding.subject in exchanges
        return not by_argument or (finding.subject, finding.argument) in minded

    return [finding for finding in findings if is_own(finding)]
