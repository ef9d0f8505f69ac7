"""Arrow's memory as PostgreSQL's binary COPY, read back field by field."""

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from delaystore.bulk.columns import STAGED
from delaystore.bulk.staging._dialects import STAGING_COLUMNS, copy_stream, encoded

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
ROWS = [
    {
        "message_id": "a",
        "destination": "q",
        "due_time": EPOCH,
        "headers": None,
        "properties": None,
        "body": b"",
        "message_key": None,
        "not_after": datetime(2031, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
    },
    {
        "message_id": "ü🎉",
        "destination": "/queues/x",
        "due_time": datetime(9999, 12, 30, tzinfo=UTC),
        "headers": '{"a":1}',
        "properties": "",
        "body": b"\0\xff" * 70_000,
        "message_key": "order-17/ü",
        "not_after": None,
    },
    {
        "message_id": "c" * 255,
        "destination": "q",
        "due_time": datetime(1, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "headers": None,
        "properties": '{"priority":3}',
        "body": b"x",
        "message_key": None,
        "not_after": datetime(1, 1, 2, 3, 4, 5, 7, tzinfo=UTC),
    },
]


def fields_of(stream: bytes) -> list[list[bytes | None]]:
    """The rows of a stream, as its format is documented: a count, then a length and the bytes of each field."""
    assert stream[:19] == b"PGCOPY\n\xff\r\n\0" + bytes(8)
    rows, at = [], 19
    while (count := struct.unpack_from("!h", stream, at)[0]) != -1:
        at += 2
        row: list[bytes | None] = []
        for _ in range(count):
            (length,) = struct.unpack_from("!i", stream, at)
            at += 4
            row.append(None if length < 0 else stream[at : at + length])
            at += max(length, 0)
        rows.append(row)
    assert at + 2 == len(stream)
    return rows


def read(batch: pa.RecordBatch, attempt: int = 7) -> list[dict[str, Any]]:
    rows = []
    for fields in fields_of(b"".join(copy_stream(batch, attempt))):
        row = dict(zip(STAGING_COLUMNS, fields, strict=True))
        assert row.pop("attempt") == struct.pack("!q", attempt)
        assert row.pop("failure_count") == bytes(4)
        assert row["due_time"] == row.pop("next_attempt")
        times = {name: instant(row[name]) for name in ("due_time", "not_after")}
        texts = {
            name: value.decode() for name, value in row.items() if value is not None and name not in (*times, "body")
        }
        rows.append({**row, **texts, **times})
    return rows


def instant(field: bytes | None) -> datetime | None:
    return None if field is None else EPOCH + timedelta(microseconds=struct.unpack("!q", field)[0])


def test_every_value_comes_back() -> None:
    assert read(pa.RecordBatch.from_pylist(ROWS, STAGED)) == ROWS


@pytest.mark.parametrize("start", range(4))
def test_a_part_of_a_batch_is_that_part(start: int) -> None:
    assert read(pa.RecordBatch.from_pylist(ROWS, STAGED).slice(start)) == ROWS[start:]


def test_an_attempt_may_have_any_number() -> None:
    assert len(read(pa.RecordBatch.from_pylist(ROWS, STAGED), 2**63 - 1)) == 3


def test_many_bytes_need_wide_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaystore.bulk.staging._dialects._LARGE", 1)
    assert read(pa.RecordBatch.from_pylist(ROWS, STAGED)) == ROWS


def test_numbers_take_four_bytes() -> None:
    length, values = encoded(pa.array([0, 7, -1], pa.int32()).slice(1))
    assert (length, values.to_pylist()) == (b"\0\0\0\4", [b"\0\0\0\7", b"\xff\xff\xff\xff"])
