"""Failed attempts, as lines that a store keeps."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delaystore.message import KEPT, LONGEST_REASON, FailedAttempt, failures_in, with_attempt
from delaystore.testing._kit._base import instants

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
LINE = '["2031-01-01T12:00:00+00:00","Refused","no"]\n'
ATTEMPTS = st.builds(FailedAttempt, instants(), st.sampled_from(["Refused", "Unavailable"]), st.text())


def test_a_line_is_json() -> None:
    assert FailedAttempt(NOON, "Refused", "no").line() == LINE
    assert FailedAttempt.from_line(LINE) == FailedAttempt(NOON, "Refused", "no")


@settings(deadline=None)
@given(ATTEMPTS)
@example(FailedAttempt(NOON, "Refused", "a\n\r\t\u2028b  c"))
@example(FailedAttempt(NOON, "Refused", "x" * (LONGEST_REASON - 1) + " y"))
@example(FailedAttempt(NOON, "Refused", "🕰" * 2 * LONGEST_REASON))
@example(FailedAttempt(NOON, "Refused", "\ud800 half"))
def test_a_line_comes_back_with_its_reason_on_one_line_and_cut(attempt: FailedAttempt) -> None:
    line = attempt.line()
    assert line.isascii()
    assert line.count("\n") == 1
    assert len(line) <= KEPT
    found = FailedAttempt.from_line(line)
    assert (found.at, found.kind) == (attempt.at, attempt.kind)
    assert found.at.tzinfo is UTC
    assert found.reason == " ".join(attempt.reason.split())[:LONGEST_REASON].rstrip()
    assert found.line() == line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "7",
        '"abc"',
        "{}",
        "[]",
        '["2031-01-01T12:00:00+00:00","Refused"]',
        '["2031-01-01T12:00:00+00:00","Refused","no",1]',
        '["2031-01-01T12:00:00","Refused","no"]',
        '["0001-01-01T00:00:00+14:00","Refused","no"]',
        '["yesterday","Refused","no"]',
        '[1900000000,"Refused","no"]',
        '["2031-01-01T12:00:00+00:00",7,"no"]',
        '["2031-01-01T12:00:00+00:00","Refused",null]',
        '{"2031-01-01T12:00:00+00:00":1,"Refused":2,"no":3}',
        LINE[:-3],
        LINE[1:],
        "[" * 100_000,
    ],
    ids=lambda line: line[:50],
)
def test_what_is_no_line_of_it_is_refused_and_left_out(line: str) -> None:
    with pytest.raises(ValueError, match="not a failed attempt"):
        FailedAttempt.from_line(line)
    assert failures_in(line + "\n" + LINE) == (FailedAttempt(NOON, "Refused", "no"),)


@settings(deadline=None)
@given(st.text() | st.none())
def test_any_text_is_read(text: str | None) -> None:
    assert all(isinstance(each, FailedAttempt) for each in failures_in(text))


@settings(deadline=None)
@given(st.lists(ATTEMPTS), st.integers(0, 300))
def test_the_whole_lines_of_a_text_that_was_cut_are_read(attempts: list[FailedAttempt], cut: int) -> None:
    lines = [attempt.line() for attempt in attempts]
    found = failures_in("".join(lines)[cut:])
    assert [each.line() for each in found] == lines[len(lines) - len(found) :]
    assert len("".join(lines)) - cut <= sum(map(len, lines[max(0, len(lines) - len(found) - 1) :]))


@settings(deadline=None)
@given(st.lists(ATTEMPTS, max_size=30))
@example([FailedAttempt(NOON + timedelta(seconds=n), "Refused", f"{n} " + "🕰" * 400) for n in range(10)])
def test_the_last_attempts_are_kept(attempts: list[FailedAttempt]) -> None:
    kept: tuple[FailedAttempt, ...] = ()
    for attempt in attempts:
        kept = tuple(with_attempt(kept, attempt))
    lines = [attempt.line() for attempt in attempts]
    assert [each.line() for each in kept] == lines[len(lines) - len(kept) :]
    assert sum(len(each.line()) for each in kept) <= KEPT
    if len(kept) < len(attempts):
        assert sum(map(len, lines[len(lines) - len(kept) - 1 :])) > KEPT, "there was room for one more"
