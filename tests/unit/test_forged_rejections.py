"""What a publisher writes into the headers of a rejected message does not say where a retry publishes it."""

from collections.abc import Sequence

import pytest

from delaystore.ingress._entries import IngestEntry as Arrived
from delaystore.ingress.control._replies import request_copy
from delaystore.ingress.rejected import EXCHANGE, ROUTING_KEY, IrretrievableError, _copy, restored
from delaystore.transports.rabbitmq.raw import RawDelivery, RawProperties, TableEntry, text_value
from tests.incoming import incoming_message

FORGED = [TableEntry(EXCHANGE.encode(), text_value("")), TableEntry(ROUTING_KEY.encode(), text_value("sales.control"))]


def delivered(headers: Sequence[TableEntry]) -> RawDelivery:
    return RawDelivery("c", 1, False, "E", "key", RawProperties.of({}).changed(headers), b"body")


@pytest.mark.parametrize("pairs", [1, 2])
def test_a_retry_goes_to_where_the_message_was_published_to(pairs: int) -> None:
    taken = incoming_message()._replace(properties=RawProperties.of({}).changed(FORGED * pairs))
    entry = Arrived(taken, 0.0)
    entry.objection = "a name comes twice"
    copy = _copy(entry, "E.ingress.rejected")
    assert restored(delivered(copy.properties.headers)).address == ("E", "key")


def test_a_request_put_aside_keeps_no_forged_address() -> None:
    copy = request_copy(delivered(FORGED), "no JSON", "sales.control.rejected")
    with pytest.raises(IrretrievableError, match="its exchange or its routing key is no text"):
        restored(delivered(copy.properties.headers))


def test_an_address_that_comes_twice_is_not_believed() -> None:
    copy = request_copy(delivered([]), "no JSON", "E.ingress.rejected")
    with pytest.raises(IrretrievableError, match=r"has the header delaystore.* twice"):
        restored(delivered([*copy.properties.headers, *FORGED, *FORGED]))
