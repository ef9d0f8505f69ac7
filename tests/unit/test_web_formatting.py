"""Values as the web page shows them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from delaystore.server.web.formatting import breakable, instant


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("order-40001", ["order-40001"]),
        ("1.5 s, then 2.5 s", ["1.5 s, then 2.5 s"]),
        ("ip-10-20-117-203.eu.internal", ["ip-", "10-", "20-", "117-", "203.", "eu.", "internal"]),
        ("Sales.OrderReminders/7c9e6679", ["Sales.", "Order", "Reminders/", "7c9e6679"]),
        ("9f86d081884c7d659a2feaa0c55ad015a3", ["9f86d081884c7d65", "9a2feaa0c55ad015", "a3"]),
        ("amqps://broker.example:5671", ["amqps://", "broker.", "example:", "5671"]),
        ("<script>alert('a name')</script>", ["&lt;script&gt;alert(&#39;a name&#39;)&lt;/script&gt;"]),
    ],
)
def test_long_names_break_at_their_separators(text: str, parts: list[str]) -> None:
    assert breakable(text).split("<wbr>") == parts
    assert breakable(text).replace("<wbr>", "").unescape() == text


def test_a_time_is_utc_for_people_and_for_scripts() -> None:
    time = datetime(2026, 11, 24, 7, 30, 12, 345, tzinfo=timezone(timedelta(hours=2)))
    assert instant(time) == (
        '<time datetime="2026-11-24T05:30:12.000345Z" title="2026-11-24 05:30:12 UTC">2026-11-24 05:30:12 UTC</time>'
    )
    assert instant(time.astimezone(UTC)) == instant(time)
