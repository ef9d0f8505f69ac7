"""Numbers as people read them."""

import pytest

from delaystore.text import counted, limit_text, roughly, up_to


def test_one_message_is_no_messages() -> None:
    assert [counted(number, "message") for number in (0, 1, 12_345)] == ["0 messages", "1 message", "12,345 messages"]


@pytest.mark.parametrize(("number", "text"), [(123_456, "about 123,000"), (10_234_567, "about 10,200,000")])
def test_an_estimate_has_three_digits(number: int, text: str) -> None:
    assert roughly(number) == text


def test_what_was_not_counted_to_the_end_is_no_estimate() -> None:
    assert up_to(10_000, exact=False) == "10,000 or more"
    assert up_to(10_000, "message", exact=False) == "10,000 or more messages"
    assert (up_to(1, exact=True), up_to(1, "message", exact=True)) == ("1", "1 message")


def test_a_limit_is_told_as_it_was_given() -> None:
    assert [limit_text(rate) for rate in (200.0, 12.5, 0.25)] == ["200/s", "12.5/s", "0.25/s"]
    assert [limit_text(rate) for rate in (1 / 60, 4 / 3600, 0.001)] == ["1/m", "4/h", "3.6/h"]
