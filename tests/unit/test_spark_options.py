"""Numbers that users give as options."""

from datetime import timedelta

import pytest

from delaystore.bulk.options import read_options, write_options
from delaystore.errors import ConfigurationError
from delaystore.message import KeyRule, OnKey

STORE = {"store": "sqlite:///app.db", "endpoint": "sales"}
ABSURD = ["0", "-1", "1.5", "ten", "²", "99999999999999", "1" * 5000, "0" * 5000]


@pytest.mark.parametrize("number", ABSURD, ids=lambda number: number[:20])
@pytest.mark.parametrize("name", ["leaseSeconds", "maxBodyBytes"])
def test_a_number_that_cannot_be_is_refused_in_a_short_line(name: str, number: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"the option {name} must be a whole number from 1 to \d+, "
    ) as caught:
        write_options({**STORE, name: number})
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("number", ABSURD, ids=lambda number: number[:20])
def test_partitions_are_a_number_that_can_be(number: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the option partitions must be a whole number from 1 to \d+, "):
        read_options({**STORE, "partitions": number})


def test_numbers_that_can_be_are_taken() -> None:
    written = write_options({**STORE, "leaseSeconds": "86400", "MAXBODYBYTES": "0000001"})
    assert (written.lease_seconds, written.max_body_bytes) == (86400, 1)
    assert read_options({**STORE, "partitions": "1000"}).partitions == 1000
    assert read_options(STORE).partitions is None


def test_a_load_that_is_loaded_again_has_a_name() -> None:
    assert write_options({**STORE, "again": "true", "loadId": "spring"}).again
    with pytest.raises(ConfigurationError, match="the option again needs the option loadId"):
        write_options({**STORE, "again": "true"})


def test_keys_have_a_rule() -> None:
    written = write_options({**STORE, "keyColumn": "order", "onKey": "Debounce", "maxWait": "60"})
    assert (written.key_column, written.key_rule) == ("order", KeyRule(OnKey.DEBOUNCE, timedelta(seconds=60)))
    for options, words in (
        ({"onKey": "keep"}, "the options onKey and maxWait need the option keyColumn"),
        (
            {"keyColumn": "k", "onKey": "wait"},
            "the option onKey must be one of reject, keep, replace, debounce, not 'wait'",
        ),
        ({"keyColumn": "k", "onKey": "keep", "maxWait": "1"}, "the option maxWait needs the option onKey debounce"),
        (
            {"keyColumn": "k", "onKey": "debounce", "maxWait": "soon"},
            "maxWait must be a number of seconds above 0, not",
        ),
        ({"keyColumn": "k", "onKey": "debounce", "maxWait": "nan"}, "maxWait must be a number of seconds above 0, not"),
        ({"keyColumn": "k", "onKey": "debounce", "maxWait": "0"}, "maxWait must be a number of seconds above 0, not"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            write_options({**STORE, **options})
