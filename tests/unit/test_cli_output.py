"""What the command line prints."""

import json
import logging
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from delaystore.cli._demo import DemoReport
from delaystore.cli._dispatch import outcome_line
from delaystore.cli._output import about, body_preview, counted, print_document, print_table, printable
from delaystore.dispatcher.health import DispatchReport
from delaystore.message import DelayedMessage
from delaystore.stores import documents
from delaystore.stores.abc import Count
from delaystore.transports.abc import ReceivedMessage

WAITING = DelayedMessage(
    message_id="a",
    destination="billing",
    due_time=datetime(2027, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
    body="größe".encode(),
    headers={"raw": b"\xff", "list": [Decimal("1.10"), {"at": datetime(2027, 1, 1, tzinfo=UTC)}], "none": None},
)


def test_a_waiting_message_is_one_document_with_stable_keys() -> None:
    assert documents.waiting(WAITING) == {
        "message_id": "a",
        "destination": "billing",
        "due_time": "2027-01-01T12:00:00+00:00",
        "next_attempt": None,
        "failure_count": 0,
        "size": 7,
        "key": None,
        "parked": False,
        "last_failure": None,
        "failures": [],
        "headers": {
            "raw": {"base64": "/w=="},
            "list": ["1.10", {"at": "2027-01-01T00:00:00+00:00"}],
            "none": None,
        },
        "properties": {},
        "body": "größe",
    }


def test_a_body_that_is_no_text_is_base64() -> None:
    document = documents.received(ReceivedMessage(message_id="a", body=b"\xff", headers={}, properties={}))
    assert document == {"message_id": "a", "headers": {}, "properties": {}, "body_base64": "/w=="}


def test_a_document_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_document({"text": "größe \U0001f600"})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {"text": "größe \U0001f600"}


def test_a_document_is_what_strict_parsers_read() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_document({"n": float("nan")})


@pytest.mark.parametrize(("number", "text"), [(0, "0 bytes"), (1, "1 byte"), (2, "2 bytes"), (1000, "1,000 bytes")])
def test_one_of_a_kind_is_counted_in_the_singular(number: int, text: str) -> None:
    assert counted(number, "byte") == text


def test_the_dispatcher_counts_one_failed_attempt_in_the_singular() -> None:
    said = outcome_line("done", DispatchReport(delivered=2, moved_to_error_queue=1, failed=1))
    assert said == "done: 2 delivered, 1 failed attempt, 1 moved to the error queue"


def test_the_library_leaves_its_warnings_to_those_who_ask_for_them() -> None:
    handlers = logging.getLogger("delaystore").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]


def test_nothing_of_a_message_reaches_the_terminal_as_a_command() -> None:
    assert printable("a\x1b[2Jb\nc") == r"a\x1b[2Jb\nc"


def test_a_table_takes_brackets_as_they_are_and_breaks_no_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "[red]" + "x" * 200
    print_table(("id", "n"), [(long, "1")], right=("n",))
    assert any(long in line for line in capsys.readouterr().out.splitlines())


def test_a_long_body_is_cut_and_says_so() -> None:
    assert body_preview(b"hello\nworld") == "hello\nworld"
    assert body_preview("ü".encode() * 2000, limit=5) == "üü\n... 4,000 bytes in all; --body writes them"
    assert body_preview(bytes(range(128, 168))).splitlines()[1] == "a0 a1 a2 a3 a4 a5 a6 a7"


def report(lateness: list[int], sent: int, duplicated: int = 0, interrupted: bool = False) -> DemoReport:
    late = [timedelta(milliseconds=one) for one in lateness]
    return DemoReport(
        sent=sent,
        delivered=len(late),
        duplicated=duplicated,
        lateness=late,
        exactly_once=True,
        interrupted=interrupted,
    )


def test_percentiles_are_of_the_nearest_rank() -> None:
    done = report(list(range(1, 101)), 100)
    assert [done.percentile(share) for share in (0.5, 0.99, 1)] == [50, 99, 100]
    assert report([], 0).percentile(0.5) is None


def test_a_demo_is_good_only_when_nothing_is_lost_duplicated_or_early() -> None:
    assert report([1, 2], 2).good
    assert not report([1], 2).good
    assert not report([1, 2], 2, duplicated=1).good
    assert not report([-1, 2], 2).good


def test_what_an_interrupted_demo_left_waiting_is_not_lost() -> None:
    assert report([1], 2, interrupted=True).lost == 0
    assert report([1], 2).lost == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (Count(12_345, exact=True), "12,345"),
        (Count(10_234_567, exact=False), "about 10,200,000 (estimated; --exact counts)"),
        (Count(999_500, exact=False), "about 1,000,000 (estimated; --exact counts)"),
        (Count(100_001, exact=False), "about 100,000 (estimated; --exact counts)"),
    ],
)
def test_an_estimate_says_that_it_is_one_and_shows_three_digits(count: Count, text: str) -> None:
    assert about(count, "--exact counts") == text
