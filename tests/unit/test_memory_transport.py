from datetime import UTC, datetime

import pytest

from delaystore.errors import ConfigurationError, TransportSetupError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.transports import open_transport
from delaystore.transports.abc import DELIVERED, OutcomeKind
from delaystore.transports.memory import InMemoryTransport


def message(destination: str = "billing", message_id: str = "a") -> DelayedMessage:
    due_time = datetime(2027, 1, 1, tzinfo=UTC)
    return DelayedMessage(message_id=message_id, destination=destination, due_time=due_time, body=b"")


def outcomes(transport: InMemoryTransport, *messages: DelayedMessage) -> list[OutcomeKind]:
    return [outcome.kind for outcome in transport.send(messages, None, 5)]


def test_a_queue_may_be_declared_by_sending_to_it() -> None:
    transport = InMemoryTransport(auto_declare=True)
    assert transport.send([message()], None, 5) == [DELIVERED]
    with transport.receive("billing") as received:
        assert [one.message_id for one in received] == ["a"]


def test_a_full_queue_refuses_also_while_its_messages_are_being_received() -> None:
    transport = InMemoryTransport(max_length=2)
    transport.declare("billing")
    two_and_one = [message(message_id=name) for name in "abc"]
    assert outcomes(transport, *two_and_one) == [OutcomeKind.DELIVERED, OutcomeKind.DELIVERED, OutcomeKind.REFUSED]
    with transport.receive("billing", 1):
        assert outcomes(transport, message()) == [OutcomeKind.REFUSED]
    assert outcomes(transport, message()) == [OutcomeKind.DELIVERED]


def test_an_address_string_names_a_queue() -> None:
    transport = InMemoryTransport()
    transport.declare("/queues/a%2Fb")
    assert outcomes(transport, message("/queues/a%2Fb")) == [OutcomeKind.DELIVERED]
    with transport.receive("a/b") as received:
        assert len(received) == 1


def test_an_exchange_is_refused_since_there_are_only_queues() -> None:
    transport = InMemoryTransport(auto_declare=True)
    with pytest.raises(UnsupportedMessageError, match="/exchanges/e/k"):
        transport.check(message("/exchanges/e/k"))
    assert outcomes(transport, message("/exchanges/e/k")) == [OutcomeKind.UNROUTABLE]
    with pytest.raises(TransportSetupError):
        transport.declare("/queues/%ff")


def test_a_name_in_the_url_is_one_transport_in_this_process() -> None:
    assert open_transport("memory://n?auto_declare=true") is open_transport("memory://n")
    assert open_transport("memory://") is not open_transport("memory://")
    assert open_transport("memory://n").send([message()], None, 5) == [DELIVERED]


@pytest.mark.parametrize("url", ["memory://n/more", "memory://?x=1", "memory://?auto_declare=yes"])
def test_more_in_the_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="auto_declare"):
        open_transport(url)


def test_a_length_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_length"):
        InMemoryTransport(max_length=0)
