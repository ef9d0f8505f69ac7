"""What a message carries on that arrived: its headers, properties, id and body."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pika import spec

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading.destinations import parse_destination
from delaystore.ingress.reading.incoming import IncomingMessage, RejectedMessageError
from delaystore.ingress.reading.reader import IncomingReader, ReadingRules
from delaystore.message import DelayedMessage
from delaystore.stores.sql.codec import decode_mapping, encode_mapping
from delaystore.transports.rabbitmq.properties import amqp_properties, check_message
from delaystore.transports.rabbitmq.raw import RawProperties
from tests.incoming import array, bytes_value, incoming_message, raw_text, table, text_value, typed

NOW = datetime(2027, 1, 31, 9, tzinfo=UTC)


def read(it: IncomingMessage, **rules: Any) -> DelayedMessage:
    rules.setdefault("destination", parse_destination("/exchanges/OUT", "--destination"))
    found = IncomingReader(ReadingRules(ingress_queue="E.ingress", check=check_message, **rules)).read(it, NOW)
    assert isinstance(found, DelayedMessage)
    return found


def forwarded(message: DelayedMessage) -> RawProperties:
    """The properties that the transport publishes, through a store's text."""
    headers, properties = (decode_mapping(encode_mapping(part)) for part in (message.headers, message.properties))
    stored = DelayedMessage(
        message_id=message.message_id,
        destination=message.destination,
        due_time=message.due_time,
        body=message.body,
        headers=headers,
        properties=properties,
    )
    assert stored == message
    return RawProperties(b"".join(amqp_properties(stored).encode()))


def entries(properties: RawProperties) -> dict[str, bytes]:
    return {entry.name.decode(): entry.value for entry in properties.headers}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (text_value("text \u20ac"), "text \u20ac"),
        (bytes_value(b"\x00\xff"), b"\x00\xff"),
        (typed("t", True), True),
        (typed("t", False), False),
        (typed("V"), None),
        (typed("I", -5), -5),
        (typed("l", 2**40), 2**40),
        (typed("l", -(2**63)), -(2**63)),
        (typed("T", 1801386000), NOW),
        (typed("T", 0), datetime(1970, 1, 1, tzinfo=UTC)),
        (typed("D", 2, 1234), Decimal("12.34")),
        (typed("d", 0.1), 0.1),
        (typed("d", -1e300), -1e300),
        (table({"a": array(typed("d", 1.0), typed("V"))}), {"a": [1.0, None]}),
        (table({"a": typed("I", 1), "b": table({"c": text_value("d")})}), {"a": 1, "b": {"c": "d"}}),
        (table({}), {}),
        (array(text_value("a"), typed("I", 1), array(typed("V"))), ["a", 1, [None]]),
    ],
)
def test_a_header_arrives_byte_for_byte(value: bytes, kept: Any) -> None:
    message = read(incoming_message({"h": value}))
    assert message.headers == {"h": kept}
    assert type(message.headers["h"]) is type(kept)
    assert entries(forwarded(message)) == {"h": value}


@pytest.mark.parametrize(
    ("value", "kept", "written"),
    [
        (typed("b", -5), -5, typed("I", -5)),
        (typed("B", 200), 200, typed("I", 200)),
        (typed("s", -300), -300, typed("I", -300)),
        (typed("U", -300), -300, typed("I", -300)),
        (typed("u", 60000), 60000, typed("I", 60000)),
        (typed("i", 2**32 - 1), 2**32 - 1, typed("l", 2**32 - 1)),
        (typed("l", 5), 5, typed("I", 5)),
        (typed("L", 5), 5, typed("I", 5)),
        (typed("D", 2, 150), Decimal("1.50"), typed("D", 1, 15)),
        (typed("f", 0.5), 0.5, typed("d", 0.5)),
        (raw_text(b"\xff\x00"), b"\xff\x00", bytes_value(b"\xff\x00")),
    ],
)
def test_a_header_of_the_same_value_in_another_width(value: bytes, kept: Any, written: bytes) -> None:
    message = read(incoming_message({"h": value}))
    assert message.headers == {"h": kept}
    assert entries(forwarded(message)) == {"h": written}


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"a": table({"b": typed("T", 2**63)})}, r"^header 'a' has an entry 'b' that is a time beyond the year 9999"),
        (
            {"a": array(typed("I", 1), typed("T", 2**63))},
            r"^header 'a' has an item that is a time beyond the year 9999",
        ),
        ({"ratio": typed("d", float("nan"))}, r"^header 'ratio' is no finite number, and RabbitMQ takes no other$"),
        ({"ratio": array(typed("f", float("inf")))}, r"^header 'ratio' has an item that is no finite number"),
        ({"ratio": typed("d", 0.5), "n" * 200: text_value("x" * 120_000)}, r"^headers and properties take \d+ bytes"),
        ({"t": typed("T", 1801386000000)}, r"^header 't' is a time beyond the year 9999: AMQP has seconds"),
        ({"t": typed("T", 253402300799)}, r"^header 't' .*out of range; the latest is 9999-12-30$"),
        ({"CC": text_value("a")}, "header 'CC' must be a list of routing keys"),
        ({"BCC": array()}, "header 'BCC' is removed by RabbitMQ"),
    ],
)
def test_what_cannot_be_carried_unchanged_is_rejected(headers: dict[str, bytes], says: str) -> None:
    with pytest.raises(RejectedMessageError, match=says):
        read(incoming_message({"x-delay": 5, **headers}))


def raw(headers: bytes) -> IncomingMessage:
    """An incoming message whose header table has this content."""
    encoded = spec.BasicProperties.FLAG_HEADERS.to_bytes(2) + len(headers).to_bytes(4) + headers
    return IncomingMessage("E.ingress", "E", "key", RawProperties(encoded), b"", False, 1)


NESTED = typed("V")
for _ in range(40):
    NESTED = array(NESTED)


@pytest.mark.parametrize(
    ("it", "says"),
    [
        (raw(b"\x01aI\x00\x00\x00\x01\x01aI\x00\x00\x00\x02"), "a name that comes twice"),
        (raw(b"\x01\xffV"), "a name that is no UTF-8"),
        (raw(b"\x01aZ"), "a value of the unknown type b'Z'"),
        (raw(b"\x01aI\x00\x00"), "a value that is cut off"),
        (raw(b"\x01aS\x00\x00"), "a size that is cut off"),
        (raw(b"\x01aS\x00\x00\x00\x05abc"), "a value that ends beyond its table"),
        (raw(b"\x05a"), "a name without a value"),
        (raw(b"\x01h" + NESTED), "values nested deeper than 32 levels"),
        (IncomingMessage("q", "", "k", RawProperties(b"\x00"), b"", False, 1), "properties without flags"),
        (IncomingMessage("q", "", "k", RawProperties(b"\x00\x01"), b"", False, 1), "flags of unknown properties"),
    ],
)
def test_what_is_no_table_is_rejected(it: IncomingMessage, says: str) -> None:
    with pytest.raises(RejectedMessageError, match=rf"^its headers or properties cannot be read: .*{says}"):
        read(it)


def test_properties_are_carried() -> None:
    properties: dict[str, Any] = {
        "content_type": "application/json",
        "content_encoding": "gzip",
        "correlation_id": "c-1",
        "reply_to": "answers",
        "type": "Shop.Order",
        "priority": 9,
        "expiration": "60000",
        "app_id": "shop",
    }
    message = read(incoming_message(delivery_mode=1, timestamp=1801386000, message_id="m-1", **properties))
    assert message.properties == {**properties, "delivery_mode": 1, "timestamp": NOW}
    sent = spec.BasicProperties(delivery_mode=1, timestamp=1801386000, message_id="m-1", **properties)
    assert forwarded(message).encoded == b"".join(sent.encode())


def test_a_message_that_says_nothing_of_its_delivery_mode_is_persistent() -> None:
    for mode in ({}, {"delivery_mode": 2}):
        message = read(incoming_message(**mode))
        assert message.properties == {}
        assert forwarded(message).fields["delivery_mode"] == b"\x02"
    for transient in (0, 1, 3, 255):
        assert read(incoming_message(delivery_mode=transient)).properties == {"delivery_mode": 1}


@pytest.mark.parametrize("seconds", [1801386000123, 253402214400, 2**63, 2**64 - 1])
def test_a_timestamp_in_milliseconds_is_carried(seconds: int) -> None:
    message = read(incoming_message(timestamp=seconds))
    assert forwarded(message).fields["timestamp"] == seconds.to_bytes(8)


def test_a_user_and_a_cluster_are_told_by_headers() -> None:
    message = read(incoming_message({"a": 1}, user_id="shop", cluster_id="c"))
    assert message.headers == {"a": 1, "delaystore.user-id": "shop", "delaystore.cluster-id": "c"}
    assert message.properties == {}


@pytest.mark.parametrize("redelivered", [False, True])
def test_what_a_queue_counts_is_not_carried(redelivered: bool) -> None:
    headers = {"x-delivery-count": typed("l", 0), "x-acquired-count": typed("l", 2), "a": typed("I", 1)}
    assert read(incoming_message(headers, redelivered=redelivered)).headers == {"a": 1}


@pytest.mark.parametrize("name", ["message_id", "type", "user_id", "content_type"])
def test_a_property_that_is_no_text_is_rejected(name: str) -> None:
    flag = getattr(spec.BasicProperties, f"FLAG_{name.upper()}")
    it = IncomingMessage("q", "", "k", RawProperties(flag.to_bytes(2) + b"\x02\xff\xfe"), b"", False, 1)
    with pytest.raises(RejectedMessageError, match=rf"^property {name} is no UTF-8: b'"):
        read(it)


def test_the_id_is_the_messages_own_or_a_fresh_one() -> None:
    assert read(incoming_message(message_id="m-1")).message_id == "m-1"
    for it in (incoming_message(), incoming_message(message_id="")):
        first, second = read(it).message_id, read(it).message_id
        assert first != second
        assert len(first) == 36


def test_an_id_that_no_store_keeps_is_rejected() -> None:
    with pytest.raises(RejectedMessageError, match="NUL"):
        read(incoming_message(message_id="a\0b"))


def test_the_body_is_carried_up_to_its_limit() -> None:
    body = bytes(range(256))
    assert read(incoming_message(body=body), most_body_bytes=256).body == body
    with pytest.raises(RejectedMessageError, match=r"^its body has 256 bytes; at most 255 are taken$"):
        read(incoming_message(body=body), most_body_bytes=255)


def test_headers_that_fit_no_frame_once_they_are_written_anew_are_rejected() -> None:
    many = {f"{number:04}": typed("b", 1) for number in range(14_000)}
    assert len(read(incoming_message(dict(list(many.items())[:9_000]))).headers) == 9_000
    with pytest.raises(RejectedMessageError, match=r"headers and properties take \d+ bytes; at most"):
        read(incoming_message(many))


def death(queue: str, reason: str = "expired", expiration: str | None = None) -> bytes:
    entries = {
        "count": typed("l", 1),
        "reason": text_value(reason),
        "queue": text_value(queue),
        "time": typed("T", 1801386000),
        "exchange": text_value("E"),
        "routing-keys": array(text_value("key")),
    }
    return table(entries if expiration is None else {**entries, "original-expiration": text_value(expiration)})


def deaths(which: str, queue: str, reason: str = "expired", exchange: str = "E") -> dict[str, bytes]:
    named = {"queue": queue, "reason": reason, "exchange": exchange}
    return {f"x-{which}-death-{name}": text_value(value) for name, value in named.items()}


def test_what_the_ingress_queues_own_dead_lettering_did_is_undone() -> None:
    own = death("E.ingress", expiration="60000")
    added = {"x-death": array(own), **deaths("first", "E.ingress"), **deaths("last", "E.ingress")}
    for reason in ({}, {"x-death": array(death("E.ingress", "delivery_limit", "60000"), own)}):
        message = read(incoming_message({"a": 1, **added, **reason}, queue="E.ingress.expired", message_id="m"))
        assert message.headers == {"a": 1}
        assert message.properties == {"expiration": "60000"}


def test_what_other_queues_added_stays() -> None:
    theirs = {
        "x-death": array(death("before", expiration="9")),
        **deaths("first", "before"),
        **deaths("last", "before"),
    }
    untouched = read(incoming_message(theirs))
    assert entries(forwarded(untouched)).keys() == theirs.keys()
    assert untouched.properties == {}
    both = {
        **theirs,
        "x-death": array(death("E.ingress", "maxlen"), death("before", expiration="9")),
        **deaths("last", "E.ingress", "maxlen"),
    }
    message = read(incoming_message(both))
    assert message.headers == untouched.headers
    assert message.properties == {}


@pytest.mark.parametrize(
    "headers",
    [{"x-death": text_value("no list")}, {"x-death": array(text_value("no table"))}, {"x-death": array(table({}))}],
)
def test_deaths_of_another_shape_are_carried(headers: dict[str, bytes]) -> None:
    assert entries(forwarded(read(incoming_message(headers)))) == headers


def test_an_expiration_that_is_made_up_is_rejected() -> None:
    with pytest.raises(RejectedMessageError, match="property expiration 'soon' must be whole milliseconds"):
        read(incoming_message({"x-death": array(death("E.ingress", expiration="soon"))}))


@pytest.mark.parametrize(
    ("rule", "key", "destination"),
    [
        ("/exchanges/OUT", "a.b-c_d~e", "/exchanges/OUT/a.b-c_d~e"),
        ("/exchanges/OUT", "a/b %\n\u20ac", "/exchanges/OUT/a%2Fb%20%25%0A%E2%82%AC"),
        ("/exchanges/OUT", "", "/exchanges/OUT"),
        ("/exchanges/my%20out", "k", "/exchanges/my%20out/k"),
        ("/exchanges/OUT/fixed", "k", "/exchanges/OUT/fixed"),
        ("/exchanges/OUT/", "k", "/exchanges/OUT/"),
        ("/queues/header", "k", "/queues/header"),
        (" orders ", "k", "orders"),
        ("orders", b"\xff", "orders"),
    ],
)
def test_destinations_by_rule(rule: str, key: str | bytes, destination: str) -> None:
    assert read(incoming_message(routing_key=key), destination=parse_destination(rule, "-d")).destination == destination


def test_a_routing_key_that_is_no_utf_8_is_rejected() -> None:
    with pytest.raises(RejectedMessageError, match=r"^its routing key is no UTF-8: b'\\xff'$"):
        read(incoming_message(routing_key=b"\xff"))


def test_destinations_that_messages_name() -> None:
    for rule, header in (("header", "delaystore.destination"), ("header:to", "to")):
        by_header = parse_destination(rule, "-d")
        for to in ("orders", "/queues/a%2Fb", "/exchanges/F/k"):
            message = read(incoming_message({header: to}), destination=by_header)
            assert message.destination == to
            assert message.headers == {header: to, "delaystore.forwarded-to": to}
        with pytest.raises(RejectedMessageError, match=rf"it has no destination: there is no header {header}"):
            read(incoming_message(), destination=by_header)
        with pytest.raises(RejectedMessageError, match=rf"header {header} is no text but 5"):
            read(incoming_message({header: 5}), destination=by_header)
        for wrong in ("/nothing", "a\nb", "a" * 256, "/exchanges/%FF"):
            with pytest.raises(RejectedMessageError, match=rf"^header {header}: destination "):
                read(incoming_message({header: wrong}), destination=by_header)


def test_a_reason_is_short_whatever_the_message_says() -> None:
    with pytest.raises(RejectedMessageError) as it:
        read(
            incoming_message({"delaystore.destination": "/" + "x" * 50_000}),
            destination=parse_destination("header", "-d"),
        )
    assert str(it.value).startswith("header delaystore.destination: destination '/xxx")
    assert len(str(it.value)) == 500


@pytest.mark.parametrize(
    "rule", ["", " ", "/nothing", "/exchanges/", "header:", "header:" + "n" * 256, "a\nb", "q" * 256]
)
def test_a_destination_rule_that_is_none_says_what_is_possible(rule: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--destination[: ].*write /exchanges/NAME .*header:NAME$"):
        parse_destination(rule, "--destination")


@pytest.mark.parametrize("wrong", [{"most_body_bytes": 0}, {"most_body_bytes": True}, {"ingress_queue": ""}])
def test_rules_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ReadingRules(
            **{"ingress_queue": "q", "destination": parse_destination("q", ""), "check": check_message, **wrong}
        )


def test_headers_that_only_a_dispatcher_writes_are_dropped() -> None:
    forged = ("failed-cc", "failed-bcc", "headers-in-body", "raw-headers", "raw-properties", "unread-headers")
    message = read(incoming_message({"tenant": "a", **{f"delaystore.{name}": "x" for name in forged}}))
    assert message.headers == {"tenant": "a"}
