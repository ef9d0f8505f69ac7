"""When a message is due, by the forms in which it may say so."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading.content import CountFrom
from delaystore.ingress.reading.destinations import parse_destination
from delaystore.ingress.reading.forms.naming import FORMS, parse_forms
from delaystore.ingress.reading.incoming import RejectedMessageError, SagaCleared
from delaystore.ingress.reading.reader import IncomingReader, ReadingRules
from delaystore.message import DelayedMessage
from delaystore.transports.rabbitmq.properties import check_message
from tests.incoming import array, bytes_value, incoming_message, raw_text, table, text_value, typed

NOW = datetime(2027, 1, 31, 9, 0, 0, 123456, tzinfo=UTC)
MS = timedelta(milliseconds=1)
FORM_NAMES = {form.name for form in FORMS}
NOW_MS = 1801386000123
"""NOW in milliseconds, the rest cut off."""
SAGA = "0f5c7f4e-5f7b-4d67-9a3c-2a1b0c9d8e7f"


def read(headers: Any = None, *, now: datetime = NOW, rules: Any = None, **fields: Any) -> DelayedMessage:
    found = reader(**(rules or {})).read(incoming_message(headers, **fields), now)
    assert isinstance(found, DelayedMessage)
    return found


def reader(**rules: Any) -> IncomingReader:
    rules.setdefault("destination", parse_destination("/exchanges/OUT", "--destination"))
    rules.setdefault("forms", FORMS)
    return IncomingReader(ReadingRules(ingress_queue="E.ingress", check=check_message, **rules))


@pytest.mark.parametrize(
    "value",
    [
        typed("b", 100),
        typed("B", 100),
        typed("s", 100),
        typed("U", 100),
        typed("u", 100),
        typed("I", 100),
        typed("i", 100),
        typed("l", 100),
        typed("L", 100),
        typed("d", 100.9),
        typed("f", 100.5),
        text_value("100"),
        text_value("+100"),
        text_value("00100"),
        bytes_value(b"100"),
    ],
)
def test_x_delay_is_any_whole_number_its_text_or_a_float_cut_off(value: bytes) -> None:
    message = read({"x-delay": value, "other": "stays"})
    assert message.due_time == NOW + 100 * MS
    assert message.headers == {"x-delay": -100, "other": "stays"}


@pytest.mark.parametrize(
    ("value", "forwarded"),
    [
        (typed("I", 0), 0),
        (typed("l", -5000), -5000),
        (text_value("-5"), "-5"),
        (text_value("0"), "0"),
        (typed("d", 0.9), 0),
        (typed("d", -7.5), -7),
        (typed("d", -1e300), -1e300),
        (typed("V"), None),
    ],
)
def test_x_delay_of_nothing_is_due_at_once(value: bytes, forwarded: Any) -> None:
    message = read({"x-delay": value})
    assert message.due_time == NOW
    assert message.headers == {"x-delay": forwarded}
    assert type(message.headers["x-delay"]) is type(forwarded)


def test_a_message_that_says_nothing_is_due_at_once() -> None:
    assert read().due_time == NOW
    assert read({"other": 1}).headers == {"other": 1}


@pytest.mark.parametrize("delay", [2**32 - 1, 2**32, 10**13])
def test_a_delay_beyond_the_plugins_is_one(delay: int) -> None:
    for value in (typed("l", delay), text_value(str(delay))):
        message = read({"x-delay": value})
        assert message.due_time == NOW + delay * MS
        assert message.headers["x-delay"] == -delay


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (text_value("abc"), "'abc'"),
        (text_value(""), "''"),
        (text_value(" 5"), "' 5'"),
        (text_value("5_0"), "'5_0'"),
        (text_value("5.5"), "'5.5'"),
        (text_value("\u0665"), "whole number"),
        (raw_text(b"\xff5"), "whole number"),
        (bytes_value(b"\x05"), "whole number"),
        (typed("t", True), "True"),
        (typed("d", float("nan")), "nan"),
        (typed("d", float("inf")), "inf"),
        (typed("T", 5), "whole number"),
        (typed("D", 0, 5), "Decimal"),
        (table({"a": typed("I", 5)}), "{'a': 5}"),
        (array(typed("I", 5)), "[5]"),
    ],
)
def test_an_x_delay_that_is_no_number_is_rejected(value: bytes, says: str) -> None:
    with pytest.raises(
        RejectedMessageError, match=r"^header x-delay is .*; it must be a whole number of milliseconds$"
    ) as it:
        read({"x-delay": value})
    assert says in str(it.value)


@pytest.mark.parametrize("value", [typed("l", 2**63 - 1), text_value("9" * 31), text_value("9" * 5000)])
def test_a_delay_beyond_the_year_9999_is_rejected(value: bytes) -> None:
    with pytest.raises(RejectedMessageError, match="beyond the year 9999"):
        read({"x-delay": value})
    with pytest.raises(RejectedMessageError, match="latest is 9999-12-30"):
        read({"x-delay": typed("l", (datetime(9999, 12, 31, tzinfo=UTC) - NOW) // MS)})


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ({"x-opt-delivery-delay": typed("l", 1500)}, NOW + 1500 * MS),
        ({"x-opt-delivery-delay": typed("i", 1500)}, NOW + 1500 * MS),
        ({"x-opt-delivery-delay": text_value("1500")}, NOW + 1500 * MS),
        ({"x-opt-delivery-delay": typed("l", -5)}, NOW),
        ({"x-opt-delivery-time": typed("l", NOW_MS + 1500)}, NOW + 1500 * MS - timedelta(microseconds=456)),
        ({"x-opt-delivery-time": text_value(str(NOW_MS + 1500))}, NOW + 1500 * MS - timedelta(microseconds=456)),
        ({"x-opt-delivery-time": typed("l", NOW_MS - 10**9)}, NOW),
        ({"x-opt-delivery-time": typed("l", -(10**18))}, NOW),
        ({"x-opt-delivery-time": typed("T", NOW_MS // 1000 + 5)}, datetime(2027, 1, 31, 9, 0, 5, 999000, tzinfo=UTC)),
        (
            {"x-opt-delivery-delay": typed("l", 99), "x-opt-delivery-time": typed("l", NOW_MS + 60_000)},
            NOW + 60_000 * MS - timedelta(microseconds=456),
        ),
        ({"x-delay": typed("I", 7), "x-opt-delivery-delay": typed("l", 1500)}, NOW + 7 * MS),
        ({"x-delay": typed("I", -7), "x-opt-delivery-delay": typed("l", 1500)}, NOW + 1500 * MS),
    ],
)
def test_annotations_of_amqp_1(headers: dict[str, bytes], due: datetime) -> None:
    assert read(headers).due_time == due


# What RabbitMQ 3.10.8 with its plugin rabbitmq_amqp1_0 handed on of annotations that qpid-proton had written.
ULONG_DELAY = (
    bytes.fromhex("005372d10000002300000002a314") + b"x-opt-delivery-delay" + bytes.fromhex("800000000000001388")
)
TIMESTAMP = bytes.fromhex("005372d10000002200000002a313") + b"x-opt-delivery-time" + b"\x83" + NOW_MS.to_bytes(8)
SEVERAL = (
    bytes.fromhex("005372d10000005600000008a314")
    + b"x-opt-delivery-delay"
    + bytes.fromhex("810000000000001388a313")
    + b"x-opt-delivery-time"
    + b"\x81"
    + (NOW_MS + 60_000).to_bytes(8)
    + bytes.fromhex("a307")
    + b"x-delay"
    + bytes.fromhex("544da303")
    + b"x-u"
    + bytes.fromhex("70b2d05e00")
)


@pytest.mark.parametrize(
    ("section", "due"),
    [
        (ULONG_DELAY, NOW + 5000 * MS),
        (TIMESTAMP, NOW),
        (SEVERAL, NOW + 60_000 * MS - timedelta(microseconds=456)),
        (b"\x00\x53\x72\xc1\x18\x02\xa3\x14x-opt-delivery-delay\x44", NOW),
        (b"\x00\x53\x72\xc1\x19\x02\xa3\x14x-opt-delivery-delay\x53\x64", NOW + 100 * MS),
        (b"\x00\x80" + bytes(7) + b"\x72\xc1\x1a\x02\xa3\x14x-opt-delivery-delay\x60\x01\x00", NOW + 256 * MS),
        (b"\x00\x53\x72\xc1\x01\x00", NOW),
        (b"\x00\x53\x72\xc1\x0d\x02\xa3\x01a\xc1\x07\x02\xa3\x01b\xa1\x01c", NOW),
        (b"\x00\x53\x72\xd1\x00\x00\x00\x08\x00\x00\x00\x02\xa3\x01a\x41", NOW),
    ],
)
def test_annotations_as_rabbitmq_3_hands_them_on(section: bytes, due: datetime) -> None:
    message = read({"x-amqp-1.0-message-annotations": raw_text(section)})
    assert message.due_time == due
    carried = message.headers["x-amqp-1.0-message-annotations"]
    assert (carried.encode() if isinstance(carried, str) else carried) == section


@pytest.mark.parametrize("cut", range(len(SEVERAL)))
def test_annotations_that_are_cut_off_are_rejected(cut: int) -> None:
    with pytest.raises(RejectedMessageError, match=r"x-amqp-1\.0-message-annotations cannot be read"):
        read({"x-amqp-1.0-message-annotations": raw_text(SEVERAL[:cut])})


@pytest.mark.parametrize(
    "headers",
    [
        {"x-opt-delivery-delay": typed("t", True)},
        {"x-opt-delivery-delay": typed("d", 1.5)},
        {"x-opt-delivery-time": text_value("2027-01-31")},
        {"x-opt-delivery-time": typed("l", 2**62)},
        {"x-amqp-1.0-message-annotations": typed("I", 5)},
    ],
)
def test_annotations_that_cannot_be_read_are_rejected(headers: dict[str, bytes]) -> None:
    with pytest.raises(RejectedMessageError, match=r"^header x-"):
        read(headers)


@pytest.mark.parametrize(
    ("value", "due"),
    [
        (text_value("2027-02-01T10:00:00+01:00"), datetime(2027, 2, 1, 9, tzinfo=UTC)),
        (text_value("2027-02-01T09:00:00.25Z"), datetime(2027, 2, 1, 9, 0, 0, 250000, tzinfo=UTC)),
        (text_value("2020-02-01T09:00:00Z"), NOW),
        (typed("T", 1801386060), datetime(2027, 1, 31, 9, 1, 0, 999000, tzinfo=UTC)),
    ],
)
def test_a_due_time(value: bytes, due: datetime) -> None:
    assert read({"delaystore.due-time": value}).due_time == due


@pytest.mark.parametrize(
    ("headers", "limit"),
    [
        ({"delaystore.max-late": typed("I", 60_000), "x-delay": typed("I", 100)}, NOW + 60_100 * MS),
        ({"delaystore.max-late": text_value("500")}, NOW + 500 * MS),
        ({"delaystore.not-after": text_value("2027-02-01T10:00:00+01:00")}, datetime(2027, 2, 1, 9, tzinfo=UTC)),
        ({"delaystore.not-after": typed("T", 1801386060)}, datetime(2027, 1, 31, 9, 1, 0, 999000, tzinfo=UTC)),
        ({}, None),
    ],
)
def test_a_latest_delivery(headers: dict[str, bytes], limit: datetime | None) -> None:
    message = read({**headers, "other": text_value("stays")})
    assert message.not_after == limit
    assert not {"delaystore.max-late", "delaystore.not-after"} & message.headers.keys()
    assert message.headers["other"] == "stays"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"delaystore.max-late": typed("I", 0)}, "a whole number of milliseconds above 0"),
        ({"delaystore.max-late": text_value("1h")}, "a whole number of milliseconds above 0"),
        ({"delaystore.max-late": typed("l", 2**62)}, "beyond the year 9999"),
        ({"delaystore.not-after": text_value("soon")}, "header delaystore.not-after"),
        ({"delaystore.not-after": text_value("2020-01-01T00:00:00Z")}, "is before the due time"),
        (
            {"delaystore.max-late": typed("I", 1), "delaystore.not-after": text_value("2090-01-01T00:00:00Z")},
            "it has both headers",
        ),
    ],
)
def test_a_latest_delivery_that_is_none_is_rejected(headers: dict[str, bytes], reason: str) -> None:
    with pytest.raises(RejectedMessageError, match=reason):
        read(headers)


@pytest.mark.parametrize("value", [text_value("tomorrow"), text_value("2027-02-01T09:00:00"), typed("I", 5)])
def test_a_due_time_that_is_none_is_rejected(value: bytes) -> None:
    with pytest.raises(RejectedMessageError, match=r"header delaystore\.due-time"):
        read({"delaystore.due-time": value})


@pytest.mark.parametrize(
    ("received", "begins"),
    [
        (typed("l", NOW_MS - 60_000), NOW - 60_000 * MS - timedelta(microseconds=456)),
        (typed("l", NOW_MS + 5000), NOW),
        (typed("l", NOW_MS // 1000), NOW),
        (typed("l", 2**63 - 1), NOW),
        (typed("l", -(2**63)), NOW),
        (typed("I", 0), NOW),
        (text_value("1801386000123"), NOW),
        (table({}), NOW),
    ],
)
def test_a_delay_counts_from_when_the_broker_received_the_message(received: bytes, begins: datetime) -> None:
    headers = {"x-delay": typed("I", 90_000), "timestamp_in_ms": received}
    assert read(headers).due_time == begins + 90_000 * MS
    assert read(headers, rules={"count_from": CountFrom.TAKEN}).due_time == NOW + 90_000 * MS
    assert read({"timestamp_in_ms": received}).due_time == begins


@pytest.mark.parametrize(
    ("timestamp", "begins"),
    [
        (NOW_MS // 1000 - 60, datetime(2027, 1, 31, 8, 59, 1, tzinfo=UTC)),
        (NOW_MS // 1000, NOW),
        (NOW_MS // 1000 + 3600, NOW),
        (NOW_MS, NOW),
        (2**64 - 1, NOW),
        (0, NOW),
    ],
)
def test_a_delay_may_count_from_the_timestamp(timestamp: int, begins: datetime) -> None:
    headers = {"x-delay": 90_000}
    sent = read(headers, timestamp=timestamp, rules={"count_from": CountFrom.SENT})
    assert sent.due_time == begins + 90_000 * MS
    assert read(headers, timestamp=timestamp).due_time == NOW + 90_000 * MS


def timeout(**headers: Any) -> dict[str, Any]:
    named = {
        "NServiceBus.Timeout.Expire": "2027-02-01 09:00:00:000001 Z",
        "NServiceBus.Timeout.RouteExpiredTimeoutTo": "Sales",
        "NServiceBus.MessageId": "m-1",
        "NServiceBus.TimeSent": "2027-01-31 08:59:59:000000 Z",
        "NServiceBus.ReplyToAddress": "Sender",
        "NServiceBus.EnclosedMessageTypes": "Shop.Timeout, Shop",
    }
    return {**named, **{f"NServiceBus.{name}": value for name, value in headers.items()}}


def test_a_timeout_becomes_what_its_timeout_manager_would_send() -> None:
    message = read(timeout(), message_id="m-1", reply_to="Sender", delivery_mode=2)
    assert (message.message_id, message.destination) == ("m-1", "Sales")
    assert message.due_time == datetime(2027, 2, 1, 9, 0, 0, 1, tzinfo=UTC)
    assert message.headers == {
        **timeout(),
        "NServiceBus.TimeSent": "2027-02-01 09:00:00:000001 Z",
        "NServiceBus.RelatedToTimeoutId": "m-1",
    }
    assert message.properties == {"reply_to": "Sender"}


def test_what_is_due_within_a_second_is_sent_on_as_it_is() -> None:
    headers = timeout() | {"NServiceBus.Timeout.Expire": "2027-01-31 09:00:01:000000 Z"}
    message = read(headers, message_id="m-1")
    assert message.headers == headers
    assert message.due_time == datetime(2027, 1, 31, 9, 0, 1, tzinfo=UTC)


def test_a_timeout_of_the_year_1_is_due_at_once() -> None:
    message = read(timeout() | {"NServiceBus.Timeout.Expire": "0001-01-01 00:00:00:000000 Z"})
    assert message.due_time == NOW


def test_a_timeout_without_a_route_goes_where_replies_go() -> None:
    headers = {name: value for name, value in timeout().items() if "Route" not in name}
    assert read(headers, reply_to="Property").destination == "Property"
    assert read(headers).destination == "Sender"
    del headers["NServiceBus.ReplyToAddress"]
    assert read(headers).destination == "/exchanges/OUT/key"


def test_a_route_is_the_name_of_a_queue() -> None:
    headers = timeout() | {"NServiceBus.Timeout.RouteExpiredTimeoutTo": "/a b"}
    assert read(headers).destination == "/queues/%2Fa%20b"


@pytest.mark.parametrize("saga", [SAGA, SAGA.upper(), SAGA.replace("-", ""), f"{{{SAGA}}}", f"({SAGA})"])
def test_a_sagas_timeouts_are_found_by_its_id_and_cancelled_with_it(saga: str) -> None:
    stored = read(timeout(SagaId=saga), message_id="m-1")
    assert stored.message_id == f"{SAGA}/m-1"
    assert stored.headers["NServiceBus.RelatedToTimeoutId"] == f"{SAGA}/m-1"
    cleared = reader().read(incoming_message({"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": saga}), NOW)
    assert cleared == SagaCleared(f"{SAGA}/")


def test_a_sagas_timeout_that_is_read_twice_has_the_same_id_however_long() -> None:
    long = "é" * 127
    first, second = (read(timeout(SagaId=SAGA), message_id=long).message_id for _ in range(2))
    assert first == second
    assert first.startswith(f"{SAGA}/")
    assert len(first.encode()) <= 255
    assert first != read(timeout(SagaId=SAGA), message_id=long[:-1]).message_id
    assert read(timeout(SagaId=SAGA), message_id=f"{SAGA}/m-1").message_id == f"{SAGA}/m-1"
    assert read(timeout(SagaId=SAGA)).message_id == f"{SAGA}/m-1"  # the header's, where the property is missing


def test_no_saga_is_a_guid_of_zeros() -> None:
    assert (
        read(timeout(SagaId=str(SAGA.translate(dict.fromkeys(range(48, 127), "0")))), message_id="m").message_id == "m"
    )


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        (timeout() | {"NServiceBus.Timeout.Expire": "2027-02-01T09:00:00Z"}, r"Timeout\.Expire is '2027"),
        (timeout() | {"NServiceBus.Timeout.Expire": typed("I", 5)}, r"Timeout\.Expire is 5"),
        (timeout() | {"NServiceBus.Timeout.RouteExpiredTimeoutTo": typed("I", 5)}, "RouteExpiredTimeoutTo is no text"),
        (timeout(SagaId="no guid"), r"SagaId is 'no guid'; it must be a GUID"),
        ({"NServiceBus.ClearTimeouts": "True"}, "without NServiceBus.SagaId"),
        ({"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": "0" * 32}, "without NServiceBus.SagaId"),
    ],
)
def test_a_timeout_that_cannot_be_read_is_rejected(headers: dict[str, Any], says: str) -> None:
    with pytest.raises(RejectedMessageError, match=says):
        read(headers, message_id="m")


def test_only_the_forms_named_are_tried_and_in_their_order() -> None:
    headers = {"x-delay": typed("I", 7), "delaystore.due-time": text_value("2028-01-01T00:00:00Z")}
    assert read(headers, rules={"forms": parse_forms("due-time, X-Delay", "--delay-headers")}).due_time.year == 2028
    assert read(headers, rules={"forms": parse_forms(["x-delay"], "forms")}).due_time == NOW + 7 * MS
    ignored = {"x-delay": text_value("abc")}
    assert read(ignored, rules={"forms": parse_forms("amqp1", "--delay-headers")}).due_time == NOW
    assert parse_forms("x-delay,amqp1,due-time,nservicebus", "--delay-headers") == FORMS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "--delay-headers names no delay form; there are x-delay, amqp1, due-time, nservicebus"),
        ([], "--delay-headers names no delay form; there are x-delay, amqp1, due-time, nservicebus"),
        ("xdelay", "--delay-headers 'xdelay' is no delay form; there are x-delay, amqp1, due-time, nservicebus"),
        ("x-delay,", "--delay-headers '' is no delay form; there are x-delay, amqp1, due-time, nservicebus"),
        ("amqp1,amqp1", "--delay-headers names amqp1 twice; name each format once"),
    ],
)
def test_forms_that_are_none(given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as it:
        parse_forms(given, "--delay-headers")
    assert str(it.value) == says


def test_the_document_has_each_form_and_each_start() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "ingress-messages.md").read_text()
    rows = [row.split("|")[1].strip() for row in page.splitlines() if row.startswith("|")]
    assert [form.name for form in FORMS] == [row.strip("`") for row in rows if row.strip("`") in FORM_NAMES]
    assert {f"`{start}`" for start in CountFrom} <= {row.removesuffix(" (default)") for row in rows}
