"""Creating an ingress: everything is checked before anything is declared."""

from collections.abc import Callable

from delaystore.cascades import BrokerClient, Creation, CreationPlan
from delaystore.ingress.topology._declared import declared
from delaystore.ingress.topology._layout import IngressTopology
from delaystore.transports.rabbitmq.topology.layout import Part


def create(
    broker: BrokerClient,
    topology: IngressTopology,
    *,
    entrance: bool = True,
    dry_run: bool = False,
    on_declared: Callable[[Part], object] = lambda _part: None,
) -> Creation:
    """Declare the ingress. May be run again: then nothing changes.

    `entrance` False: all but the exchange to publish to. `on_declared` is called after each part.
    An exchange that exists needs the right type; its arguments may be its own, so it is not declared again.
    Raises TopologyRefusedError, a TransportSetupError, where something hinders, and nothing is declared;
    DeclarationError, one as well, where the broker refuses a part all the same, saying what had been declared until
    then; TransportUnavailableError, TransportError.
    """
    plan = CreationPlan(broker, declared(topology, entrance=entrance))
    return plan.carry_out(dry_run=dry_run, on_declared=on_declared)
