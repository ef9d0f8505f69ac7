"""The headers that say when a message is due, as NServiceBus' own tools read them."""

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pika import BasicProperties, data, spec
from pika.compat import long

from delaystore.cascades.moving._planning import LevelMessage, Planner
from delaystore.message import DelayedMessage
from delaystore.transports.rabbitmq.delay_headers import (
    DELAY_IN_SECONDS,
    TIME_SENT,
    due_time,
    time_sent,
    time_sent_text,
    to_be_delayed,
)
from delaystore.transports.rabbitmq.properties import amqp_properties
from delaystore.transports.rabbitmq.raw import RawProperties
from delaystore.transports.rabbitmq.retry import next_step
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2
from delaystore.transports.rabbitmq.topology.cascades import DueFrom

SECOND = timedelta(seconds=1)
NOW = datetime(2026, 11, 22, 8, 5, 3, 120, UTC)
WRITTEN = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}:\d{6} Z", re.ASCII)
"""What `DateTimeOffset.ParseExact(text, "yyyy-MM-dd HH:mm:ss:ffffff Z")` takes."""
ODD = [
    "2026-11-22 8:5:3:12 Z",
    "2026-11-22  08:05:03:000120 z",
    "999-01-02 03:04:05:000006 Z",
    "yesterday",
    "",
    5,
    None,
]


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (NOW, "2026-11-22 08:05:03:000120 Z"),
        (datetime(2026, 11, 22, tzinfo=UTC), "2026-11-22 00:00:00:000000 Z"),
        (datetime(1, 1, 2, 3, 4, 5, 6, UTC), "0001-01-02 03:04:05:000006 Z"),
        (datetime(999, 12, 31, 23, tzinfo=timezone(-2 * timedelta(hours=1))), "1000-01-01 01:00:00:000000 Z"),
    ],
)
def test_times_are_written_with_all_their_zeros(instant: datetime, text: str) -> None:
    assert time_sent_text(instant) == text
    assert time_sent({TIME_SENT: text}) == instant


def handed_over(headers: dict[str, Any], due: datetime) -> bytes:
    message = DelayedMessage(message_id="a", destination="q", due_time=due, body=b"", headers=headers)
    return table(amqp_properties(to_be_delayed(message, NOW)).headers)


def retried(headers: dict[str, Any], due: datetime) -> bytes:
    method = spec.Basic.Deliver("tag", 1, False, "", "q")
    step = next_step(method, BasicProperties(headers=headers), due - NOW, queue="q", now=NOW)
    return table(step.properties.headers)


def moved(headers: dict[str, Any], due: datetime) -> bytes:
    """What waits in the level of its delay, by whose key it goes where its headers do not tell."""
    units = NSERVICEBUS_V2.units(due - NOW)
    encoded = RawProperties(b"".join(BasicProperties(headers=headers).encode()))
    key, level = NSERVICEBUS_V2.key(units, "q"), units.bit_length() - 1
    waiting = LevelMessage(1, level, "q", key, encoded, b"", False)
    planner = Planner(NSERVICEBUS_V2, NSERVICEBUS_V2, DueFrom.EITHER, lambda _: None, lambda _: None)
    properties = planner.plan(waiting, NOW).copy.properties
    return properties.fields["headers"]


def table(headers: Mapping[str, Any]) -> bytes:
    pieces: list[bytes] = []
    data.encode_table(pieces, headers)
    return b"".join(pieces)


Route = Callable[[dict[str, Any], datetime], bytes]
ROUTES: dict[str, Route] = {"handed over": handed_over, "retried": retried, "moved": moved}


def assert_read(written: bytes, due: datetime) -> None:
    """`written`, a table, holds what NServiceBus' tools take: its times, a number of 32 bits, and their sum."""
    headers, _ = data.decode_table(written, 0)
    assert WRITTEN.fullmatch(headers[TIME_SENT])
    name = DELAY_IN_SECONDS.encode()
    assert written[written.index(name) + len(name) :].startswith(struct.pack(">ci", b"I", headers[DELAY_IN_SECONDS]))
    found = due_time(headers)
    assert found is not None
    assert timedelta(0) <= found - due < SECOND


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("seconds", [1, 200, 40_000, 100_000, 268_435_455])
@pytest.mark.parametrize(
    "ago", [timedelta(0), timedelta(days=365), NOW - datetime(1, 1, 2, tzinfo=UTC), -timedelta(days=36500)]
)
def test_the_delay_is_a_number_of_32_bits(route: Route, seconds: int, ago: timedelta) -> None:
    due = NOW + seconds * SECOND
    assert_read(route({TIME_SENT: time_sent_text(NOW - ago)}, due), due)


@pytest.mark.parametrize("route", [handed_over, retried])
@pytest.mark.parametrize("text", ODD)
def test_a_time_sent_that_nservicebus_could_not_read_is_written_anew(route: Route, text: Any) -> None:
    due = NOW + 90 * SECOND
    assert_read(route({TIME_SENT: text}, due), due)


def test_a_time_that_only_lacks_zeros_is_kept() -> None:
    headers, _ = data.decode_table(handed_over({TIME_SENT: "2026-11-22 8:5:3:5 Z"}, NOW + SECOND), 0)
    assert headers[TIME_SENT] == "2026-11-22 08:05:03:500000 Z"


def test_delays_beyond_32_bits_keep_their_due_time() -> None:
    due = datetime(9999, 1, 1, tzinfo=UTC)
    assert_read(handed_over({}, due), due)


@pytest.mark.parametrize("delay", [2**40, "90", None])
def test_a_delay_of_another_type_is_written_anew(delay: Any) -> None:
    due = NOW + 90 * SECOND
    for route in (handed_over, retried):
        assert_read(route({TIME_SENT: time_sent_text(NOW), DELAY_IN_SECONDS: delay}, due), due)


@pytest.mark.parametrize("text", ["2026-11-22 8:5:3:00012 Z", time_sent_text(NOW)])
def test_a_moved_copy_says_when_it_is_due_as_nservicebus_does(text: str) -> None:
    sent = time_sent({TIME_SENT: text})
    assert sent is not None
    assert_read(moved({TIME_SENT: text, DELAY_IN_SECONDS: long(90)}, sent + 90 * SECOND), sent + 90 * SECOND)
