"""Ids derived from a key: the same for the same key, of any run; another for any other key."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from delaystore.bulk.options import UnknownColumns
from delaystore.errors import ConfigurationError
from tests.unit.converting import Column, convert, local, not_utf8, reasons, rows

PIECES = st.text(st.sampled_from("s1:i"), max_size=3)


def ids(keys: dict[str, Column], load_id: str = "reminders", **options: Any) -> list[str]:
    found: list[str] = with_keys(keys, load_id, **options).staged.column("message_id").to_pylist()
    return found


def with_keys(keys: dict[str, Column], load_id: str = "reminders", **options: Any) -> Any:
    (_, values), *_ = keys.values()
    del (columns := rows(len(values)))["message_id"]
    return convert(keys | columns, load_id, **({"id_columns": tuple(keys)} | options))


def test_an_id_never_changes() -> None:
    """Were it to, a load that is run again with a new release would store its messages twice."""
    keys: dict[str, Column] = {
        "customer": (LongType(), [17]),
        "kind": (StringType(), ["invoice ä"]),
        "raw": (BinaryType(), [b"\x00\xff"]),
        "first": (BooleanType(), [True]),
        "amount": (DecimalType(10, 2), [Decimal("1.50")]),
        "day": (DateType(), [date(2026, 11, 30)]),
        "instant": (TimestampType(), [datetime(2026, 11, 30, 8, tzinfo=UTC)]),
        "local": (TimestampNTZType(), [local("2026-11-30T08:00")]),
    }
    assert ids(keys) == ["2e3c3660-1755-8da0-8708-64a4e5aa20b0"]


def test_an_id_is_a_uuid() -> None:
    (message_id,) = ids({"k": (LongType(), [1])})
    parsed = UUID(message_id)
    assert str(parsed) == message_id
    assert parsed.version == 8


def test_every_load_has_its_own() -> None:
    keys: dict[str, Column] = {"k": (LongType(), [1, 2])}
    assert len({*ids(keys, "a"), *ids(keys, "b")}) == 4
    assert ids(keys, "a") == ids(keys, "a")


@given(st.lists(st.tuples(PIECES, PIECES), min_size=1, max_size=20))
def test_two_keys_have_two_ids(pairs: list[tuple[str, str]]) -> None:
    found = ids({"a": (StringType(), [pair[0] for pair in pairs]), "b": (StringType(), [pair[1] for pair in pairs])})
    assert len(set(found)) == len(set(pairs))
    assert dict(zip(pairs, found, strict=True)) == {pair: found[pairs.index(pair)] for pair in pairs}


def test_the_kind_of_a_value_counts_and_its_width_does_not() -> None:
    kinds: list[tuple[DataType, Any]] = [
        (LongType(), 1),
        (StringType(), "1"),
        (BinaryType(), b"1"),
        (DecimalType(5, 0), Decimal(1)),
        (DateType(), date(1970, 1, 2)),
        (TimestampType(), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (TimestampNTZType(), local("1970-01-01T00:00:00.000001")),
    ]
    found = [ids({"k": (kind, [value])})[0] for kind, value in kinds]
    assert len(set(found)) == len(kinds)
    assert ids({"k": (IntegerType(), [1])}) == found[:1]


def test_a_key_is_found_in_any_case() -> None:
    assert ids({"Customer": (LongType(), [1])}, id_columns=("CUSTOMER",)) == ids({"k": (LongType(), [1])})


def test_a_row_whose_key_is_null_is_rejected() -> None:
    converted = with_keys({"a": (LongType(), [1, None, 1]), "B": (StringType(), ["x", "x", None])})
    assert reasons(converted) == ["id column a is null", "id column B is null"]
    assert converted.staged.num_rows == 1


def test_a_key_is_taken_as_its_bytes() -> None:
    assert len(set(ids({"k": (StringType(), not_utf8(b"\xff", b"\xfe"))}))) == 2


@pytest.mark.parametrize("kept", [UnknownColumns.HEADERS, UnknownColumns.BODY])
def test_id_columns_are_kept_with_the_unknown(kept: UnknownColumns) -> None:
    del (columns := rows())["message_id"]
    if kept is UnknownColumns.BODY:
        del columns["body"]
    converted = convert({"k": (LongType(), [7])} | columns, "load", id_columns=("k",), unknown_columns=kept)
    assert converted.staged.column(kept.value).cast("string").to_pylist() == ['{"k":7}']


def test_a_messages_key_is_checked_and_may_be_null() -> None:
    column: Column = (StringType(), ["order-17", None, "", "a\nb", "ä" * 128])
    converted = convert(rows(5) | {"order": column}, key_column="ORDER")
    assert converted.staged.column("message_key").to_pylist() == ["order-17", None]
    assert reasons(converted) == ["key is empty", "key contains a control character", "key has more than 255 bytes"]
    assert convert(rows()).staged.column("message_key").to_pylist() == [None]
    with pytest.raises(ConfigurationError, match="the column of keys, order, is not there"):
        convert(rows(), key_column="order")
    with pytest.raises(ConfigurationError, match="a key must be string; cast it"):
        convert(rows() | {"order": (LongType(), [17])}, key_column="order")
