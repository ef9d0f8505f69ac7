"""docs/troubleshooting/errors.md: written from the code, and every error class says what to do."""

import re
from functools import cache
from pathlib import Path

import pytest

from delaystore import errors
from delaystore.errors import DelaystoreError, DuplicateKeyError, MessageBeingDispatchedError, MessageBeingStoredError
from delaystore.stores import open_store
from delaystore.text import parse_duration
from delaystore.transports import open_transport
from website.errors import PAGE
from website.errors import page as written_page

ROOT = Path(__file__).parents[2]
CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DelaystoreError)]


@cache
def page() -> str:
    return written_page()


def test_the_page_is_what_the_code_says() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run `python -m website.errors`"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_is_on_the_page_with_its_remedy(kind: type[DelaystoreError]) -> None:
    section = page().partition(f"\n### {kind.__name__}\n")[2].partition("\n#")[0]
    assert "**Remedy:** " in section
    assert "Args:" not in section


@pytest.mark.parametrize(
    ("opener", "given", "remedy"),
    [
        (open_store, "sqlite:///", "For memory use `memory://`."),
        (open_transport, "amqp://host/a/b", "Write a '/' in it as %2F."),
        (open_transport, "amqp://a,,b", "Write host:port,host:port without gaps."),
        (lambda text: parse_duration(text, "--delay"), "2M", "Write m or min for minutes, and days for months."),
        (lambda text: parse_duration(text, "--delay"), "soon", "Write 90s, 15m, 2h30m, 3d, or a number of seconds."),
    ],
    ids=["store", "transport", "hosts", "months", "duration"],
)
def test_a_message_is_found_by_its_words(opener: object, given: str, remedy: str) -> None:
    assert callable(opener)
    with pytest.raises(DelaystoreError) as raised:
        opener(given)
    cause = str(raised.value).partition("; ")[0]
    assert remedy in [found for pattern, found in entries() if re.fullmatch(pattern, cause)]


def entries() -> list[tuple[str, str]]:
    """Return a pattern for each cause, in which a word in capitals is any text, and its remedy."""
    found = re.findall(r"^- `+ ?(.*?) ?`+\\\n  (.*?)(?: \(`\w+`\))?$", page(), re.MULTILINE)
    return [(re.sub(r"\b[A-Z_]{3,}\b", ".*", re.escape(cause)), remedy) for cause, remedy in found]


def test_most_messages_of_the_code_are_there() -> None:
    assert len(entries()) > 350
    assert not [cause for cause, _ in entries() if len(cause) < 8]


@pytest.mark.parametrize(
    "error",
    [DuplicateKeyError("k", "m"), MessageBeingStoredError("m"), MessageBeingDispatchedError(["m"])],
    ids=lambda error: type(error).__name__,
)
def test_errors_with_arguments_name_the_remedy_themselves(error: DelaystoreError) -> None:
    assert re.search(r"; (use|try again|nothing was stored: send again)", str(error))
