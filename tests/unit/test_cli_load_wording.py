"""Errors of `delaystore load` name its options, not the format's."""

import pytest

from delaystore.cli.load.wording import in_words_of_the_command, words_of_the_command
from delaystore.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("due_time has no time zone (see the option timeZone)", "due_time has no time zone (see --time-zone)"),
        ("set keyColumns and loadId", "set --key-columns and --load-id"),
        ("name a folder for them with the option rejects", "name a folder for them with --rejects"),
        ("it rejects the destination", "it rejects the destination"),
    ],
)
def test_the_names_are_the_commands(text: str, expected: str) -> None:
    assert in_words_of_the_command(text) == expected
    with pytest.raises(ConfigurationError) as caught, words_of_the_command():
        raise ConfigurationError(text)
    assert str(caught.value) == expected
