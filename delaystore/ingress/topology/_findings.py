"""Which findings of a check an ingress minds."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from delaystore.cascades import Finding, FindingKind
from delaystore.ingress.topology._layout import IngressTopology
from delaystore.ingress.topology._plugin import PLUGIN_TYPE
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind

_SETTINGS: Final = frozenset({"type", "durable", "auto_delete", "internal", None})
"""Of an exchange, beside its arguments. None: the broker did not say which."""


def own_findings(topology: IngressTopology, findings: Iterable[Finding]) -> list[Finding]:
    """Without those about what users may have as they like.

    That is: arguments of exchanges that `topology` does not mention, and more bindings to the ingress queue.
    """
    exchanges = {str(one): {*_SETTINGS, *one.arguments} for one in topology.exchanges}
    names = topology.names
    inward = str(Binding(names.exchange, names.queue, DestinationKind.QUEUE)).partition("from")[2]

    def is_own(finding: Finding) -> bool:
        if finding.kind is FindingKind.EXTRA_BINDING:
            return not finding.subject.endswith(inward)
        if finding.kind is FindingKind.INEQUIVALENT and finding.subject in exchanges:
            return finding.argument in exchanges[finding.subject]
        return True

    return [_explained(finding) for finding in findings if is_own(finding)]


def _explained(finding: Finding) -> Finding:
    if PLUGIN_TYPE not in finding.text:
        return finding
    return replace(finding, text="is of the delayed-message plugin; pass --from-plugin, which copies it")
