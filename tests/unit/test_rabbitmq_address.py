import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.errors import UnsupportedMessageError
from delaystore.text import Address, parse_address, queue_or_none

short_strings = st.text(min_size=1).filter(lambda text: len(text.encode()) <= 255)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=63)


def percent_encoded(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def test_a_plain_name_is_a_queue() -> None:
    assert parse_address("billing") == Address("", "billing")


def test_a_plain_name_is_not_decoded() -> None:
    assert parse_address("50%25 a/b") == Address("", "50%25 a/b")


def test_an_exchange_may_come_without_a_routing_key() -> None:
    assert parse_address("/exchanges/events") == Address("events", "")
    assert parse_address("/exchanges/events/") == Address("events", "")


@given(names)
def test_every_queue_can_be_addressed(name: str) -> None:
    assert parse_address(f"/queues/{percent_encoded(name)}") == Address("", name)


@given(names, short_strings)
def test_every_exchange_and_routing_key_can_be_addressed(exchange: str, key: str) -> None:
    address = f"/exchanges/{percent_encoded(exchange)}/{percent_encoded(key)}"
    assert parse_address(address) == Address(exchange, key)


@pytest.mark.parametrize(
    "malformed",
    [
        "/",
        "/queues",
        "/queues/",
        "/queues/a/b",
        "/exchanges",
        "/exchanges//key",
        "/exchanges/a/b/c",
        "/topics/a",
        "//a",
    ],
)
def test_what_is_no_address_is_refused(malformed: str) -> None:
    with pytest.raises(UnsupportedMessageError, match="is no address"):
        parse_address(malformed)


def test_what_decodes_to_no_text_is_refused() -> None:
    with pytest.raises(UnsupportedMessageError, match="UTF-8"):
        parse_address("/queues/%FF")


@pytest.mark.parametrize("address", ["/queues/{}", "/exchanges/{}/key", "/exchanges/name/{}"])
def test_names_beyond_a_short_string_are_refused(address: str) -> None:
    assert parse_address(address.format("%C3%A9" * 127))
    with pytest.raises(UnsupportedMessageError, match="256 bytes"):
        parse_address(address.format("%C3%A9" * 128))


def test_an_exchange_is_no_queue() -> None:
    assert queue_or_none("/queues/a%2Fb") == "a/b"
    assert queue_or_none("/exchanges/a/b") is None


@pytest.mark.parametrize("address", ["a\nb", "a\r", "\t", "\x7f", "é\x85", "/queues/a%0Ab", "/exchanges/a%0D/key"])
def test_a_name_with_a_control_character_is_refused(address: str) -> None:
    with pytest.raises(UnsupportedMessageError, match="control character") as caught:
        parse_address(address)
    assert str(caught.value).isprintable()


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UnsupportedMessageError, match="UTF-8"):
        parse_address("\udcff")
