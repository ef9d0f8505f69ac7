"""docs/reference/special-queues.md names the queues as the code does."""

from delaystore.cascades.moving.mover import MoveSettings
from delaystore.cascades.policies import undeliverable_name
from delaystore.ingress.control._queue import ControlNames
from delaystore.ingress.settings import IngressNames
from delaystore.settings import DelayedDeliverySettings
from delaystore.transports.rabbitmq.topology import topology_named
from tests.documents import ROOT


def test_the_queues_have_the_names_of_the_code() -> None:
    text = (ROOT / "docs/reference/special-queues.md").read_text()
    ingress = IngressNames.of("EXCHANGE")
    own = {
        DelayedDeliverySettings().error_queue,
        ingress.rejected,
        ingress.expired,
        ControlNames("ENDPOINT.control").rejected,
        MoveSettings().poison_queue,
        undeliverable_name(topology_named("nservicebus-v2")),
        undeliverable_name(topology_named("custom:PREFIX")),
    }
    assert {name for name in own if f"`{name}`" not in text} == set()
