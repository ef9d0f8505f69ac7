"""Requests as structs: every field that is not understood is named, in one clause."""

from typing import Annotated, Any

import msgspec
import pytest

from delaystore.operations.json_requests import (
    DelayField,
    FieldTypeError,
    NullFieldError,
    RequestFieldError,
    RequestFields,
    read_fields,
)


class Fields(RequestFields, frozen=True, kw_only=True):
    name: str
    rate: float | None
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1
    delay: DelayField | None = None
    headers: dict[str, Any] | None = None


GIVEN = {"name": "billing", "rate": None}


def test_what_is_given_is_read_and_the_rest_has_its_default() -> None:
    assert read_fields(Fields, GIVEN) == Fields(name="billing", rate=None)
    found = read_fields(Fields, {**GIVEN, "rate": 7, "delay": "2h", "headers": {"a": [None]}})
    assert (found.rate, found.delay, found.headers) == (7, "2h", {"a": [None]})


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"nmae": 1}, RequestFieldError, "unknown field 'nmae'; known are name, rate, limit, delay, headers"),
        ({"limit": None}, NullFieldError, "limit is null; give it a value, or leave it out"),
        ({"delay": None}, NullFieldError, "delay is null; give it a value, or leave it out"),
        ({"name": None}, NullFieldError, "name is null; give it a value, or leave it out"),
        ({"name": 7}, FieldTypeError, "name must be text, not 7"),
        ({"rate": "fast"}, FieldTypeError, 'rate must be a number, not "fast"'),
        ({"rate": True}, FieldTypeError, "rate must be a number, not true"),
        ({"delay": [1]}, FieldTypeError, "delay must be a number or text, not [1]"),
        ({"limit": 0}, FieldTypeError, "limit must be a whole number from 1, not 0"),
        ({"limit": 1.5}, FieldTypeError, "limit must be a whole number, not 1.5"),
        ({"headers": []}, FieldTypeError, "headers must be an object, not []"),
    ],
)
def test_each_mistake_names_its_field(given: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(RequestFieldError) as caught:
        read_fields(Fields, {**GIVEN, **given})
    assert type(caught.value) is kind
    assert str(caught.value) == said


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(RequestFieldError, match=r"^rate is missing$"):
        read_fields(Fields, {"name": "billing"})


@pytest.mark.parametrize("value", ["x" * 10_000, [["x"] * 10_000]])
def test_a_value_is_repeated_only_in_part(value: Any) -> None:
    with pytest.raises(RequestFieldError) as caught:
        read_fields(Fields, {**GIVEN, "limit": value})
    assert len(str(caught.value)) < 150
