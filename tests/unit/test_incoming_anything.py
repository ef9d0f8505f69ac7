"""Whatever arrives is a message that can be forwarded as it came, or is rejected with a reason."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from delaystore.ingress.reading.content import CountFrom
from delaystore.ingress.reading.destinations import DestinationRule, parse_destination
from delaystore.ingress.reading.incoming import IncomingMessage, RejectedMessageError, SagaCleared, read_table
from delaystore.ingress.reading.reader import IncomingReader, ReadingRules
from delaystore.message import DelayedMessage
from delaystore.stores.sql.codec import decode_mapping, encode_mapping
from delaystore.transports.rabbitmq.properties import check_message, encoded_properties, holds_float
from delaystore.transports.rabbitmq.raw import RawProperties
from tests.incoming import array, bytes_value, incoming_message, raw_text, table, typed

NOW = datetime(2027, 1, 31, 9, 0, 0, 123456, tzinfo=UTC)
KNOWN = (
    "x-delay",
    "x-opt-delivery-time",
    "x-opt-delivery-delay",
    "x-amqp-1.0-message-annotations",
    "delaystore.due-time",
    "delaystore.destination",
    "NServiceBus.Timeout.Expire",
    "NServiceBus.Timeout.RouteExpiredTimeoutTo",
    "NServiceBus.ClearTimeouts",
    "NServiceBus.SagaId",
    "NServiceBus.MessageId",
    "timestamp_in_ms",
    "x-death",
    "x-first-death-queue",
    "x-delivery-count",
    "CC",
)
TEXTS = (
    b"",
    b"E.ingress",
    b"5000",
    b"-1",
    b"2027-02-01 09:00:00:000000 Z",
    b"2027-02-01T09:00:00Z",
    b"0f5c7f4e-5f7b-4d67-9a3c-2a1b0c9d8e7f",
    b"\x00\x53\x72\xc1\x19\x02\xa3\x14x-opt-delivery-delay\x53\x64",
)


def number(kind: str, least: int, most: int) -> st.SearchStrategy[bytes]:
    return st.integers(least, most).map(lambda value: typed(kind, value))


floats = st.floats(width=32).map(lambda value: typed("f", value)) | st.floats().map(lambda value: typed("d", value))
single = (
    st.sampled_from(TEXTS).map(raw_text)
    | st.binary(max_size=300).map(raw_text)
    | st.text(max_size=20).map(lambda text: raw_text(text.encode()))
    | st.binary(max_size=20).map(bytes_value)
    | number("b", -(2**7), 2**7 - 1)
    | number("B", 0, 2**8 - 1)
    | number("U", -(2**15), 2**15 - 1)
    | number("u", 0, 2**16 - 1)
    | number("I", -(2**31), 2**31 - 1)
    | number("i", 0, 2**32 - 1)
    | number("l", -(2**63), 2**63 - 1)
    | number("l", 0, 10**14)
    | number("T", 0, 2**33)
    | number("T", 0, 2**64 - 1)
    | st.tuples(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1)).map(lambda parts: typed("D", *parts))
    | st.booleans().map(lambda value: typed("t", value))
    | st.just(typed("V"))
    | floats
)
names = st.sampled_from(KNOWN) | st.text(max_size=20)
values = st.recursive(
    single,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: array(*items))
        | st.dictionaries(names, inner, max_size=3).map(table)
    ),
    max_leaves=6,
)
rules = st.sampled_from(["/exchanges/OUT", "header", "q"]).map(lambda text: parse_destination(text, "--destination"))


def outcome(it: IncomingMessage, rule: DestinationRule, count_from: CountFrom) -> DelayedMessage | SagaCleared | str:
    """What is read; or why it is rejected."""
    read = IncomingReader(
        ReadingRules(ingress_queue="E.ingress", destination=rule, check=check_message, count_from=count_from)
    )
    try:
        return read.read(it, NOW)
    except RejectedMessageError as error:
        return str(error)


@given(
    headers=st.dictionaries(names, values, max_size=6),
    key=st.text(max_size=60) | st.binary(max_size=5),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    message_id=st.none() | st.text(max_size=60),
    expiration=st.none() | st.text(max_size=5),
    rule=rules,
    count_from=st.sampled_from(CountFrom),
)
def test_a_message_that_is_read_can_be_forwarded_as_it_came(
    headers: dict[str, bytes],
    key: str | bytes,
    rule: DestinationRule,
    count_from: CountFrom,
    **properties: Any,
) -> None:
    it = incoming_message(
        headers, routing_key=key, **{name: value for name, value in properties.items() if value is not None}
    )
    message = outcome(it, rule, count_from)
    if not isinstance(message, DelayedMessage):
        assert message
        return
    if not holds_float(message.headers):
        check_message(message)
    stored = replace(message, headers=decode_mapping(encode_mapping(message.headers)))
    assert encoded_properties(stored) == encoded_properties(message)
    content = RawProperties(encoded_properties(message)).fields.get("headers", b"")
    values, problems = read_table(content, 4, len(content))
    assert (values, problems) == (message.headers, {})


@given(content=st.binary(max_size=200), rule=rules)
def test_bytes_that_may_be_no_table_are_a_message_or_rejected(content: bytes, rule: DestinationRule) -> None:
    encoded = (1 << 13).to_bytes(2) + len(content).to_bytes(4) + content
    assert outcome(IncomingMessage("q", "", "k", RawProperties(encoded), b"", False, 1), rule, CountFrom.SENT)


@given(encoded=st.binary(max_size=60))
def test_bytes_that_may_be_no_properties_are_a_message_or_rejected(encoded: bytes) -> None:
    it = IncomingMessage("q", "", "k", RawProperties(encoded), b"", False, 1)
    assert outcome(it, parse_destination("q", ""), CountFrom.SENT)
