"""An ingress as a declared topology: its stages, the words of findings, and which findings matter."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from delaystore.cascades import DeclaredTopology, Finding, FindingKind, LayoutWords
from delaystore.ingress.names import IngressNames
from delaystore.ingress.topology._layout import IngressTopology
from delaystore.ingress.topology._plugin import PLUGIN_TYPE
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange

_SETTINGS: Final = frozenset({"type", "durable", "auto_delete", "internal", None})
"""Of an exchange, beside its arguments. None: the broker did not say which."""


def declared(topology: IngressTopology, *, entrance: bool = True) -> DeclaredTopology:
    """What to declare for `topology`. `entrance` False: all but the exchange to publish to."""
    return DeclaredTopology(
        stages=[topology.behind, topology.entrance] if entrance else [topology.behind],
        words=words_of(topology.names),
        ends=topology.ends,
        exchanges_stay=True,
        relevant=partial(_own_findings, topology),
    )


def words_of(names: IngressNames) -> LayoutWords:
    """The words for the ingress of these names."""
    return LayoutWords(
        layout="ingress",
        create="delaystore ingest create",
        verify="delaystore ingest verify",
        another="choose its own type (--type, --exchange-type) or other names (--queue, --out), or delete it once it "
        "is empty and nobody uses it",
        astray=f"leads around the delay: messages arrive at once, and again when they are due; bind to {names.out!r} "
        "in its place, and unbind this",
        by_management=("which bindings are missing, or lead around the delay: only the management API lists them",),
        emptying="empty and stop it",
    )


def _own_findings(topology: IngressTopology, findings: Iterable[Finding]) -> list[Finding]:
    """Leave out findings about what users may have as they like, and about the effects of the plugin's exchange.

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
