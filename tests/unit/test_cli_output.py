"""What the command line prints: lines, tables that fit a terminal, progress bars."""

import json
import logging
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from rich.cells import cell_len

from delaystore.cli._demo import DemoReport
from delaystore.cli._dispatch import outcome_line
from delaystore.cli._output import about, body_preview, counted, print_document, print_table, printable, table_lines
from delaystore.cli._progress import ProgressBar
from delaystore.cli._setup import FoundEndpoint
from delaystore.dispatcher.health import DispatchReport
from delaystore.message import DelayedMessage, marked
from delaystore.stores import documents
from delaystore.stores.abc import Count
from delaystore.stores.sql.schema import endpoint_tables
from delaystore.transports.abc import ReceivedMessage
from tests.integration.sql_stores import opened

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
        "not_after": None,
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


@pytest.mark.parametrize("senders", [1, 3])
def test_a_due_time_is_shown_as_its_sender_gave_it(senders: int) -> None:
    """A store marks it for each sender that it tells of the message; see `delaystore.message.marked`."""
    shown = WAITING
    for _ in range(senders):
        shown = replace(shown, due_time=marked(shown.due_time), next_attempt=WAITING.next_attempt)
    assert documents.waiting(shown) == documents.waiting(WAITING)
    retried = replace(shown, next_attempt=shown.due_time + timedelta(minutes=1), failure_count=1)
    assert documents.waiting(retried)["due_time"] == shown.due_time.isoformat()


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
    assert body_preview(bytes(range(128, 168))).splitlines()[2] == f"000020  {'a0 a1 a2 a3 a4 a5 a6 a7':<48} ........"


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


def test_an_endpoint_of_which_little_is_known_is_shown_with_question_marks(sqlite_url: str) -> None:
    with opened(sqlite_url) as store:
        (found,) = endpoint_tables(store.engine)
        assert FoundEndpoint(found).row() == ("", found.endpoint, "?", "?", "current")


COLUMNS = ("id", "destination", "due", "failures", "bytes")
ID = "0198a1f2-7c3b-7d11-8f00-112233449c3e"
LONG = "/exchanges/orders/of.everything.that.there.is.and.of.some.that.is.not"
DUE = "2026-11-24 05:52:18Z"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal of 80 columns, for what is printed; set COLUMNS for another width."""
    monkeypatch.setattr("delaystore.cli._output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    return monkeypatch


def show(destination: str, id_: str = ID, *, wide: bool | None = None) -> None:
    row = (id_, destination, DUE, "0", "12")
    print_table(COLUMNS, [row], right=("failures", "bytes"), unbroken=("due",), wide=wide)


def cells(shown: str, column: int) -> str:
    """What a column holds, of a table with one row; `column`: where it begins in the line of names."""
    names, _, *rows = [line for line in shown.splitlines() if line]
    begin = names.index(COLUMNS[column])
    return "".join(row[begin : names.index(COLUMNS[column + 1])].strip() for row in rows)


@pytest.mark.usefixtures("terminal")
def test_what_fits_is_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show("b", "order-17", wide=False)
    shown = capsys.readouterr()
    assert any("order-17" in line and DUE in line for line in shown.out.splitlines())
    assert shown.err == ""


@pytest.mark.usefixtures("terminal")
def test_in_80_columns_long_cells_go_on_in_the_next_line_and_nothing_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(LONG, wide=False)
    shown = capsys.readouterr()
    assert max(map(cell_len, shown.out.splitlines())) <= 80
    assert (cells(shown.out, 0), cells(shown.out, 1)) == (ID, LONG)
    assert any(DUE in line for line in shown.out.splitlines())
    assert shown.err == "lines are broken to fit; --wide shows them whole\n"


@pytest.mark.usefixtures("terminal")
def test_a_wide_table_is_as_wide_as_it_gets(capsys: pytest.CaptureFixture[str]) -> None:
    show(LONG, wide=True)
    shown = capsys.readouterr()
    assert any(ID in line and LONG in line for line in shown.out.splitlines())
    assert shown.err == ""


def test_in_a_pipe_everything_is_whole_on_one_line_without_a_frame(capsys: pytest.CaptureFixture[str]) -> None:
    show(LONG)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        list(COLUMNS),
        [ID, LONG, *DUE.split(), "0", "12"],
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 75, 100, 135])
@pytest.mark.parametrize("id_", [ID, "消息" * 20, "a", "é" * 60])
def test_a_table_is_never_wider_than_its_terminal(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, id_: str
) -> None:
    terminal.setenv("COLUMNS", str(width))
    show(LONG, id_)
    shown = capsys.readouterr().out
    assert max(map(cell_len, shown.splitlines())) <= width
    assert "…" not in shown
    assert sorted(set(LONG + id_ + DUE) - set(shown)) == []


@pytest.mark.usefixtures("terminal")
def test_there_are_no_colours_where_nobody_wants_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    show("billing")
    assert "\x1b[3" not in capsys.readouterr().out


def test_an_empty_table_has_its_names() -> None:
    assert table_lines(COLUMNS, []) == ["id  destination  due  failures  bytes"]


MOVED = re.compile(r"moved .* 30/40 ")


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is one, for rich."""
    monkeypatch.setenv("FORCE_COLOR", "1")


def shown(text: str) -> str:
    """Without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_nothing_is_drawn_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as bar:
        bar.show("moved", 30, 40)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("at_a_terminal")
def test_each_step_has_a_bar_on_standard_error_that_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as bar:
        bar.show("moved", 0, None)
        bar.show("moved", 30, 40)
        bar.show("given back", 5, 10)
    out, err = capsys.readouterr()
    last = shown(err).splitlines()[-2:]
    assert out == ""
    assert MOVED.search(last[0])
    assert re.search(r"given back .* 5/10 ", last[1])


@pytest.mark.usefixtures("at_a_terminal")
def test_a_transient_bar_shows_the_present_step_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(transient=True) as bar:
        bar.show("starting", 0, None)
        bar.show("moved", 30, 40)
    drawn = shown(capsys.readouterr().err)
    assert MOVED.search(drawn)
    assert "starting" not in drawn[MOVED.search(drawn).start() :]  # type: ignore[union-attr]


@pytest.mark.usefixtures("at_a_terminal")
def test_nothing_is_drawn_before_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar():
        pass
    assert shown(capsys.readouterr().err).strip() == ""
