"""Which findings of a check an ingress minds."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from delaystore.cascades import Finding, FindingKind
from delaystore.ingress.topology._layout import IngressTopology
from delaystore.ingress.topology._plugin import PLUGIN_TYPE
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange

_SETTINGS: Final = frozenset({"type", "durable", "auto_delete", "internal", None})
"""Of an exchange, beside its arguments. None: the broker did not say which."""


def own_findings(topology: IngressTopology, findings: Iterable[Finding]) -> list[Finding]:
    """Without those about what users may have as they like, and what follows from the exchange being the plugin's.

    Users may have: arguments of exchanges that `topology` does not mention, and more bindings to the ingress queue.
    """
    found = list(findings)
    plugins = next((one for one in found if PLUGIN_TYPE in one.text), None)
    if plugins is not None:
        text = "is of the delayed-message plugin; pass --from-plugin, which copies it"
        name = topology.names.exchange
        about_it = (str(Exchange(name)), f" from exchange {name!r} ")
        others = [one for one in found if not any(words in one.subject for words in about_it)]
        found = [*others, replace(plugins, text=text)]
    return [one for one in found if _is_own(topology, one)]


def _is_own(topology: IngressTopology, finding: Finding) -> bool:
    names, exchanges = topology.names, {str(one): {*_SETTINGS, *one.arguments} for one in topology.exchanges}
    if finding.kind is FindingKind.EXTRA_BINDING:
        inward = Binding(names.exchange, names.queue, DestinationKind.QUEUE)
        return not finding.subject.endswith(str(inward).partition("from")[2])
    if finding.kind is FindingKind.INEQUIVALENT and finding.subject in exchanges:
        return finding.argument in exchanges[finding.subject]
    return True
