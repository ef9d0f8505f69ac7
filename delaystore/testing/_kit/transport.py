"""The transport contract."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings

from delaystore.errors import TransportError, TransportSetupError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import DEADLINE, Undone, a_message, eventually, messages
from delaystore.testing._kit._transport_parts import (
    NativeDelayTests,
    OpenQueueTests,
    OutageTests,
    TransportFactory,
    assert_arrived,
    received,
    sent,
)
from delaystore.transports.abc import DELIVERED, OutcomeKind, Transport

_HEADERS: dict[str, Any] = {
    "none": None,
    "yes": True,
    "no": False,
    "one": 1,
    "negative": -(2**40),
    "text": "quote ' and \", emoji 🕰",
    "bytes": bytes(range(256)),
    "instant": datetime(2027, 3, 28, 1, 30, tzinfo=UTC),
    "list": [1, [True, None], {"deep": ["er", b"\0"]}],
    "map": {"empty": {}, "list": []},
}
_PROPERTIES: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "correlation_id": "c-1",
    "reply_to": "answers",
    "type": "reminder",
    "priority": 4,
    "app_id": "shop",
    "timestamp": datetime(2027, 1, 1, 12, tzinfo=UTC),
    "delivery_mode": 2,
}


class TransportConformance(NativeDelayTests, OpenQueueTests, OutageTests):
    """The contract of `delaystore.transports.abc` as a pytest class, for authors of transports to subclass.

    `capabilities` decides which tests there are; `outages` asks for one more fixture, see `TransportTests`.
    """

    def test_what_is_sent_is_received(self, transport: Transport, queue: str) -> None:
        message = a_message("a", destination=queue, body=b"\0body\xff")
        assert list(transport.send([message], None, DEADLINE)) == [DELIVERED]
        assert_arrived(received(transport, queue, 1), [message])

    def test_nothing_to_send_has_no_outcomes(self, transport: Transport) -> None:
        assert list(transport.send([], None, DEADLINE)) == []

    @pytest.mark.parametrize("address", ["/exchanges/events/invoices", "/queues/", "/nowhere"])
    def test_only_a_queue_can_be_declared(self, transport: Transport, address: str) -> None:
        with pytest.raises(TransportSetupError):
            transport.declare(address)

    def test_a_queue_may_be_declared_again_and_keeps_its_messages(self, transport: Transport, queue: str) -> None:
        assert sent(transport, a_message("a", destination=queue)) == [OutcomeKind.DELIVERED]
        transport.declare(queue)
        assert [message.message_id for message in received(transport, queue, 1)] == ["a"]

    def test_each_of_many_messages_has_an_outcome_and_arrives(self, transport: Transport, queue: str) -> None:
        batch = [a_message(f"m{number}", destination=queue) for number in range(1000)]
        assert sent(transport, *batch) == [OutcomeKind.DELIVERED] * 1000
        found = Counter(message.message_id for message in received(transport, queue, 1000))
        assert found == Counter(message.message_id for message in batch)

    @needs("unroutable")
    def test_a_missing_queue_is_the_fault_of_its_message_alone(self, transport: Transport, queue: str) -> None:
        batch = [a_message(f"m{number}", destination=queue) for number in range(10)]
        for number in (3, 9):
            batch[number] = a_message(f"m{number}", destination=f"missing-{uuid4()}")
        outcomes = transport.send(batch, None, DEADLINE)
        expected = [OutcomeKind.DELIVERED] * 10
        expected[3] = expected[9] = OutcomeKind.UNROUTABLE
        assert [outcome.kind for outcome in outcomes] == expected
        assert all(outcome.reason for outcome in outcomes if outcome != DELIVERED)
        found = {message.message_id for message in received(transport, queue, 8)}
        assert found == {f"m{number}" for number in range(10)} - {"m3", "m9"}

    @needs("queue_addresses")
    def test_an_address_names_a_queue(self, transport: Transport) -> None:
        name = f"conformance/ü {uuid4()}"
        transport.declare(name)
        address = f"/queues/{name.replace('/', '%2F').replace('ü', '%C3%BC').replace(' ', '%20')}"
        message = a_message("a", destination=address)
        transport.check(message)
        assert sent(transport, message) == [OutcomeKind.DELIVERED]
        assert [message.message_id for message in received(transport, name, 1)] == ["a"]

    def test_headers_and_properties_arrive_with_their_types(self, transport: Transport, queue: str) -> None:
        message = a_message("a", destination=queue, headers=_HEADERS, properties=_PROPERTIES)
        transport.check(message)
        assert sent(transport, message) == [OutcomeKind.DELIVERED]
        assert_arrived(received(transport, queue, 1), [message])

    @pytest.mark.parametrize("size", [0, 1, 65536, 1024 * 1024])
    def test_bodies_of_any_size_arrive(self, transport: Transport, queue: str, size: int) -> None:
        message = a_message("a", destination=queue, body=bytes(number % 251 for number in range(size)))
        assert sent(transport, message) == [OutcomeKind.DELIVERED]
        assert_arrived(received(transport, queue, 1), [message])

    def test_what_passes_the_check_arrives_as_it_was_sent(self, transport: Transport, queue: str) -> None:
        @settings(max_examples=60, deadline=None)
        @given(messages())
        def arrives(drawn: DelayedMessage) -> None:
            fields = {name: getattr(drawn, name) for name in ("body", "headers", "properties")}
            # by it a broker may drop the message, or deliver it after others
            fields["properties"] = {key: it for key, it in fields["properties"].items() if key != "expiration"}
            message = a_message(drawn.message_id, destination=queue, **fields)
            try:
                transport.check(message)
            except UnsupportedMessageError:
                return
            assert sent(transport, message) == [OutcomeKind.DELIVERED]
            assert_arrived(received(transport, queue, 1), [message], scale=self.capabilities.decimal_scale)

        arrives()

    def test_what_was_received_is_gone_when_the_block_ends(self, transport: Transport, queue: str) -> None:
        assert sent(transport, a_message("a", destination=queue)) == [OutcomeKind.DELIVERED]
        assert len(received(transport, queue, 1)) == 1
        with transport.receive(queue, 10) as nothing:
            assert list(nothing) == []

    def test_what_was_received_goes_back_when_the_block_raises(self, transport: Transport, queue: str) -> None:
        batch = [a_message(name, destination=queue) for name in ("a", "b")]
        assert sent(transport, *batch) == [OutcomeKind.DELIVERED] * 2
        with pytest.raises(Undone), transport.receive(queue, 2, timeout=DEADLINE) as some:
            assert some
            raise Undone
        assert_arrived(sorted(received(transport, queue, 2), key=lambda one: one.message_id), batch)

    def test_an_empty_queue_gives_nothing(self, transport: Transport, queue: str) -> None:
        with transport.receive(queue, 5, timeout=0.05) as nothing:
            assert list(nothing) == []

    def test_a_receiver_waits_for_the_first_message(self, transport: Transport, queue: str) -> None:
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(received, transport, queue, 1)
            assert sent(transport, a_message("a", destination=queue)) == [OutcomeKind.DELIVERED]
            assert [message.message_id for message in found.result(2 * DEADLINE)] == ["a"]

    def test_receiving_from_a_queue_that_does_not_exist_is_an_error(self, transport: Transport) -> None:
        with pytest.raises(TransportError), transport.receive(f"missing-{uuid4()}"):
            pytest.fail("there was nothing to receive from")

    @needs("other_handles")
    def test_two_receivers_never_share_a_message(self, open_transport: TransportFactory, queue: str) -> None:
        one, another = open_transport(), open_transport()
        batch = [a_message(f"m{number}", destination=queue) for number in range(10)]
        assert sent(one, *batch) == [OutcomeKind.DELIVERED] * 10
        with one.receive(queue, 5, timeout=DEADLINE) as some:
            taken = {message.message_id for message in some}
            assert taken
            others = {message.message_id for message in received(another, queue, 10 - len(taken))}
        assert len(taken) + len(others) == 10
        assert not taken & others

    def test_threads_may_share_it(self, transport: Transport, queue: str) -> None:
        batches = [[a_message(f"{each}-{number}", destination=queue) for number in range(50)] for each in range(4)]
        with ThreadPoolExecutor(4) as pool:
            outcomes = [kind for kinds in pool.map(lambda batch: sent(transport, *batch), batches) for kind in kinds]
        assert outcomes == [OutcomeKind.DELIVERED] * 200
        assert len({message.message_id for message in received(transport, queue, 200)}) == 200

    def test_it_is_closed_twice_and_used_again(self, transport: Transport, queue: str) -> None:
        assert sent(transport, a_message("a", destination=queue)) == [OutcomeKind.DELIVERED]
        transport.close()
        transport.close()
        assert sent(transport, a_message("b", destination=queue)) == [OutcomeKind.DELIVERED]
        assert {message.message_id for message in received(transport, queue, 2)} == {"a", "b"}

    def test_it_says_nothing_of_an_outage_when_there_is_none(self, transport: Transport, queue: str) -> None:
        eventually(lambda: transport.unavailable() is None, "the transport is available")
        assert sent(transport, a_message("a", destination=queue)) == [OutcomeKind.DELIVERED]
