"""Headers as text come back as they went in."""

from datetime import UTC, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.message import MAX_HEADER_DEPTH, check_headers
from delaystore.stores.sql.codec import DEEPEST, decode_mapping, encode_mapping

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))]))
)
NAMES = st.text() | st.sampled_from(["$bytes", "$map", "$datetime", "$"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_mapping_comes_back_with_its_types(mapping: dict[str, Any]) -> None:
    text = encode_mapping(mapping)
    assert text is None or text.isascii()
    decoded = decode_mapping(text)
    assert typed(decoded) == typed(mapping)


@pytest.mark.parametrize(
    "text",
    ["nonsense", "[]", '{"a":{"$unknown":1}}', '{"a":{"$bytes":"*"}}', '{"a":{"$datetime":5}}', '{"a":{"$map":3}}',
     '{"a":{"$decimal":"x"}}'],
)  # fmt: skip
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        decode_mapping(text)


@pytest.mark.parametrize("levels", [DEEPEST + 1, 5000])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_text_nested_too_deep_is_an_error_on_every_python(opening: str, closing: str, levels: int) -> None:
    with pytest.raises(ValueError, match="nested deeper than"):
        decode_mapping('{"a":' + opening * levels + "1" + closing * levels + "}")


def test_the_deepest_headers_come_back() -> None:
    headers: Any = b"bytes"
    for _ in range(MAX_HEADER_DEPTH + 1):
        headers = {"$tagged": headers}
    check_headers({"a": headers})
    assert decode_mapping(encode_mapping({"a": headers})) == {"a": headers}


def typed(value: Any) -> Any:
    """`1`, `True` and `1.0` are equal in Python, and not in a message."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if hasattr(value, "items"):
        return {name: typed(item) for name, item in value.items()}
    return type(value), str(value) if isinstance(value, Decimal) else value
