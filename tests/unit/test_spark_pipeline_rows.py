"""Messages as rows: what the writer reads of them is what they were."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from delaystore.bulk.columns import UNREADABLE
from delaystore.bulk.spark.pipeline._exports import row
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.stores.sql.codec import decode_mapping

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "headers",
    [
        {"a": {"$bytes": "aGVsbG8="}},
        {"b": {"$x": 1}},
        {"c": b"\0\xff", "d": NOON, "e": Decimal("1.50"), "f": float("inf"), "g": [None, {"h": b""}]},
        {"ü": "\U0001f600"},
        {},
    ],
)
def test_headers_and_properties_are_what_the_writer_reads(headers: Mapping[str, Any]) -> None:
    properties = {"timestamp": NOON, "priority": 3, "type": "x"}
    message = DelayedMessage(
        message_id="a", destination="q", due_time=NOON, body=b"", headers=headers, properties=properties
    )
    found = row(lambda _: message, {})
    assert (decode_mapping(found["headers"]), decode_mapping(found["properties"])) == (headers, properties)


def test_what_cannot_be_read_is_kept_with_the_reason_whatever_it_is() -> None:
    def refuse(_: Mapping[str, Any]) -> DelayedMessage:
        raise InvalidMessageError("it has \ud800")

    found = row(refuse, {"at": NOON, "bytes": b"\xff", "half": "\ud800"})
    assert found[UNREADABLE] == "it has \\ud800"
    assert json.loads(found["body"]) == {"at": NOON.isoformat(), "bytes": "\\xff", "half": "\ud800"}
