"""The command line, in this process, on SQLite."""

import io
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreUnavailableError
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import Page
from tests.integration.cli import CommandLine, command_line

LATER = ("--delay", "1h")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, prepared_sqlite_url: str) -> CommandLine:
    """The command line, told its store by the environment."""
    url = prepared_sqlite_url
    environment = {"DELAYSTORE_STORE": url, "DELAYSTORE_TRANSPORT": url, "DELAYSTORE_ENDPOINT": "sales"}
    command = command_line(capsys, monkeypatch, environment)
    assert command("setup", "--queue", "billing").code == 0
    return command


def sent(run: CommandLine, *arguments: str) -> str:
    result = run("send", "billing", *arguments)
    assert result.code == 0, result
    return result.out.strip()


def test_what_is_sent_is_listed_shown_dispatched_and_received(run: CommandLine) -> None:
    message_id = sent(run, "hällo", "--delay", "0", "--header", "kind=reminder", "--property", "priority=3")
    (listed,) = run("list", "--json").document["messages"]
    assert (listed["message_id"], listed["size"]) == (message_id, 6)
    shown = run("show", message_id, "--json").document
    assert shown["body"] == "hällo"
    assert (shown["headers"], shown["properties"]) == ({"kind": "reminder"}, {"priority": 3})
    counts = {"fetched": 1, "delivered": 1, "moved_to_error_queue": 0, "expired": 0, "failed": 0}
    counts |= {"deferred": 0, "unconfirmed": 0, "not_delayable": 0, "parked": 0, "postponed": 0, "claims_lost": 0}
    assert run("dispatch", "--once", "--json").document == counts
    (received,) = run("receive", "billing", "--json").document["messages"]
    assert (received["message_id"], received["body"]) == (message_id, "hällo")
    assert run("list", "--json").document == {"messages": [], "next": None}


def test_people_get_the_same_in_tables_and_lines(run: CommandLine) -> None:
    message_id = sent(run, "hello", "--header", "kind=[red]", *LATER)
    assert message_id in run("list").out
    shown = run("show", message_id).out
    assert "hello" in shown
    assert "kind: [red]" in shown
    assert run("count").out == "1\n"
    assert "█" in run("count", "--per", "hour").out
    assert "1 waiting" in run("health").out


def test_a_pipe_gets_a_table_of_whole_lines(run: CommandLine) -> None:
    sent(run, "hello", "--at", "2100-01-01T00:00Z", "--message-id", "long " + "x" * 250)
    sent(run, "--at", "2100-01-01T01:00+00:30", "--message-id", "tab\tand\nend")
    lines = run("list").out.splitlines()
    assert [re.split(" {2,}", line) for line in lines] == [
        ["id", "destination", "due", "failures", "bytes", "key"],
        ["long " + "x" * 250, "billing", "2100-01-01 00:00:00Z", "0", "5"],
        [r"tab\tand\nend", "billing", "2100-01-01 00:30:00Z", "0", "0"],
    ]


def test_a_pipe_gets_each_page_as_soon_as_it_is_read(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        sent(run, "--message-id", f"m{number}", *LATER)
    read, pages = DelayedDelivery.list, []

    def read_two_pages(self: DelayedDelivery, **given: Any) -> Page:
        if len(pages) == 2:
            raise StoreUnavailableError("gone")
        pages.append(read(self, **given))
        return pages[-1]

    monkeypatch.setattr(DelayedDelivery, "list", read_two_pages)
    result = run("list", "--all", "--limit", "2")
    assert [line.split()[0] for line in result.out.splitlines()] == ["id", "m0", "m1", "m2", "m3"]
    assert (result.code, result.err) == (2, "error: gone\n")


def test_a_pipe_gets_all_pages_under_one_line_of_names(run: CommandLine) -> None:
    ids = [sent(run, "--message-id", f"m{number}", *LATER) for number in range(5)]
    result = run("list", "--all", "--limit", "2")
    assert [line.split()[0] for line in result.out.splitlines()] == ["id", *ids]
    assert result.err == ""


def test_headers_that_json_lacks_come_as_text(run: CommandLine, sqlite_url: str) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    headers = {"n": float("nan"), "deep": [{"n": float("-inf")}]}
    DelayedDelivery("sales", store).send("billing", b"", delay=0, headers=headers, message_id="a")
    store.close()
    expected = {"n": "nan", "deep": [{"n": "-inf"}]}
    assert run("show", "a", "--json").document["headers"] == expected
    run("dispatch", "--once")
    (received,) = run("receive", "billing", "--json").document["messages"]
    assert received["headers"] == expected


def test_one_of_a_kind_is_told_in_the_singular(run: CommandLine, tmp_path: Path) -> None:
    sent(run, "--delay", "0")
    assert run("dispatch", "--once").err == "done: 1 delivered, 0 failed attempts, 0 moved to the error queue\n"
    assert run("demo", "--messages", "1", "--seconds", "0").err.startswith("1 message over 0 s;")
    assert run("demo", "--messages", "2", "--seconds", "0").err.startswith("2 messages over 0 s;")


def test_an_undeliverable_message_goes_to_the_error_queue(run: CommandLine) -> None:
    run("send", "nowhere", "hello", "--delay", "0", "--message-id", "a")
    assert run("dispatch", "--once", "--json").document["moved_to_error_queue"] == 1
    (received,) = run("receive", "error", "--json").document["messages"]
    assert received["message_id"] == "a"


def test_exactly_once_is_a_mode(run: CommandLine) -> None:
    sent(run, "--delay", "0")
    result = run("dispatch", "--once", "--exactly-once", "--json")
    assert result.document["delivered"] == 1


def test_a_list_goes_on_where_the_page_before_ended(run: CommandLine) -> None:
    ids = [sent(run, "--delay", f"{hours}h", "--message-id", f"m{hours}") for hours in range(1, 6)]
    listed: list[str] = []
    arguments: list[str] = []
    for expected in (2, 2, 1):
        page = run("list", "--limit", "2", *arguments, "--json").document
        assert len(page["messages"]) == expected
        listed += [message["message_id"] for message in page["messages"]]
        arguments = ["--after", str(page["next"])]
    assert page["next"] is None
    assert listed == ids
    assert len(run("list", "--limit", "2", "--all", "--json").document["messages"]) == 5
    assert "--after" in run("list", "--limit", "2").err


def test_a_list_is_filtered_by_destination_and_time(run: CommandLine) -> None:
    sent(run, "--at", "2100-01-01T00:00Z", "--message-id", "a")
    sent(run, "--at", "2100-01-02T00:00Z", "--message-id", "b")
    run("send", "other", "--at", "2100-01-02T00:00Z", "--message-id", "c")

    def ids(*arguments: str) -> list[str]:
        return [message["message_id"] for message in run("list", *arguments, "--json").document["messages"]]

    assert ids("--destination", "other") == ["c"]
    assert ids("--due-after", "2100-01-02T00:00Z") == ["b", "c"]
    assert ids("--due-before", "2100-01-02T00:00Z") == ["a"]


def test_counts_are_by_destination_and_due_time(run: CommandLine) -> None:
    sent(run, "--at", "2100-01-01T00:30Z")
    sent(run, "--at", "2100-01-01T00:40Z")
    run("send", "other", "--at", "2100-01-01T02:00Z")
    assert run("count", "--destination", "other", "--json").document == {"count": 1, "exact": True}
    buckets = run("count", "--per", "hour", "--json").document["buckets"]
    assert [(bucket["start"], bucket["count"]) for bucket in buckets] == [
        ("2100-01-01T00:00:00+00:00", 2),
        ("2100-01-01T02:00:00+00:00", 1),
    ]


def test_counts_are_by_any_filter(run: CommandLine) -> None:
    sent(run, "--at", "2100-01-01T00:30Z", "--message-id", "spring-1", "--header", "kind=old")
    sent(run, "--at", "2100-01-01T02:40Z", "--message-id", "spring-2", "--header", "kind=new")
    sent(run, "--at", "2100-01-01T02:50Z", "--message-id", "summer-1", "--header", "kind=old")

    def count(*arguments: str) -> int:
        found = run("count", *arguments, "--json").document
        assert found["exact"] is True
        return int(found["count"])

    assert count("--header", "kind=old") == 2
    assert count("--id-prefix", "spring-") == 2
    assert count("--due-after", "2100-01-01T02:00Z") == 2
    assert count("--due-after", "2100-01-01T02:00Z", "--due-before", "2100-01-01T02:45Z") == 1
    assert count("--destination", "billing", "--failing") == 0
    assert count("--paused") == 0
    assert run("count", "--id-prefix", "spring-").out == "2\n"
    found = run("count", "--header", "kind=old", "--per", "hour", "--json").document
    assert found == {
        "count": 2,
        "exact": True,
        "buckets": [
            {"start": "2100-01-01T00:00:00+00:00", "count": 1},
            {"start": "2100-01-01T02:00:00+00:00", "count": 1},
        ],
    }
    assert "--due-after 'soon'" in run.refused("count", "--due-after", "soon")


def test_cancel_says_for_each_message_what_became_of_it(run: CommandLine) -> None:
    sent(run, "--message-id", "a", *LATER)
    result = run("cancel", "a", "nope")
    assert (result.code, result.out, result.err) == (1, "cancelled: a\n", "not found: nope\n")
    assert run("count").out == "0\n"
    assert run("cancel", "a", "--json").document == {"results": [{"message_id": "a", "outcome": "not_found"}]}


def test_a_key_names_the_one_message_that_has_it(run: CommandLine) -> None:
    first = sent(run, "1", "--key", "order-17", *LATER)
    refused = run("send", "billing", "2", "--key", "order-17", *LATER)
    assert refused.code != 0
    assert f"the message '{first}' already waits with the key 'order-17'" in refused.err
    assert sent(run, "2", "--key", "order-17", "--on-key", "keep", *LATER) == first
    last = sent(run, "3", "--key", "order-17", "--on-key", "debounce", "--max-wait", "10m", *LATER)
    (listed,) = run("list", "--json").document["messages"]
    assert (listed["message_id"], listed["key"]) == (last, "order-17")
    assert "order-17" in run("list").out
    assert run("show", "--key", "order-17", "--json").document["body"] == "3"
    result = run("reschedule", "--key", "order-17", "--delay", "2h")
    assert (result.code, result.out) == (0, "rescheduled: key order-17\n")
    assert run("cancel", "--key", "order-17", "--json").document == {
        "results": [{"key": "order-17", "outcome": "done"}]
    }
    result = run("cancel", "--key", "order-17")
    assert (result.code, result.err) == (1, "not found: key order-17\n")
    assert "pass an ID, --key KEY, a filter" in run("reschedule", "--delay", "0").err
    assert "pass an ID, --key KEY, a filter" in run("cancel").err
    assert "--max-wait needs --on-key debounce" in run("send", "b", "--key", "k", "--max-wait", "1m", *LATER).err


def test_reschedule_gives_a_new_due_time(run: CommandLine) -> None:
    sent(run, "--message-id", "a", *LATER)
    assert run("reschedule", "a", "--at", "2100-01-01T00:00Z").code == 0
    assert run("show", "a", "--json").document["due_time"] == "2100-01-01T00:00:00+00:00"
    assert run("reschedule", "a", "--delay", "0").code == 0
    assert run("dispatch", "--once", "--json").document["delivered"] == 1
    result = run("reschedule", "a", "--delay", "0")
    assert (result.code, result.err) == (1, "not found: a\n")


def test_a_message_being_dispatched_is_left_alone(run: CommandLine, sqlite_url: str) -> None:
    sent(run, "--message-id", "a", "--delay", "0")
    store = SqlDelayedMessageStore(sqlite_url)
    store.initialize("sales", TransactionMode.NONE)
    with store.transaction() as tx:
        assert len(tx.fetch_due(store.now(), 10)) == 1
        for command in (("cancel", "a"), ("reschedule", "a", "--delay", "1h")):
            result = run(*command)
            assert (result.code, result.err) == (1, "being dispatched: a\n")
    store.close()
    assert run("cancel", "a").code == 0


def test_a_body_comes_from_a_file_or_standard_input(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = bytes(range(256))
    (tmp_path / "body").write_bytes(raw)
    store_and_read = [("--body-file", str(tmp_path / "body")), ("--body-file", "-")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    for number, arguments in enumerate(store_and_read):
        sent(run, *arguments, "--message-id", f"{number}", *LATER)
        assert run("show", f"{number}", "--json").document["size"] == 256


def test_headers_of_other_types_come_as_json(run: CommandLine) -> None:
    sent(
        run,
        "--headers-json",
        '{"n": 1, "deep": {"list": [null, true]}}',
        "--header",
        "n=2",
        "--message-id",
        "a",
        *LATER,
    )
    assert run("show", "a", "--json").document["headers"] == {"n": "2", "deep": {"list": [None, True]}}


def test_a_time_property_is_read_as_a_time(run: CommandLine) -> None:
    sent(run, "--property", "timestamp=2027-01-01T00:00+01:00", "--message-id", "a", *LATER)
    assert run("show", "a", "--json").document["properties"] == {"timestamp": "2026-12-31T23:00:00+00:00"}


def test_health_is_bad_when_something_is_overdue_for_too_long(run: CommandLine, sqlite_url: str) -> None:
    well = run("health", "--json").document
    assert well.items() >= {"healthy": True, "waiting": 0, "exact": True, "oldest_overdue": None}.items()
    store = SqlDelayedMessageStore(sqlite_url)
    DelayedDelivery("sales", store).send("billing", b"", at=datetime.now(UTC) - timedelta(minutes=10))
    store.close()
    result = run("health", "--json")
    assert result.code == 1
    assert result.document["oldest_overdue"] >= 600
    assert run("health", "--max-overdue", "1h").code == 0


def test_a_store_may_have_a_table_of_another_name(run: CommandLine) -> None:
    assert run("send", "billing", *LATER, "--table", "waiting room", "--create").code == 0
    assert run("count", "--table", "waiting room").out == "1\n"
    assert run("count").out == "0\n"


def test_every_option_is_an_environment_variable(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSTORE_SEND_DELAY", "1h")
    monkeypatch.setenv("DELAYSTORE_SEND_MESSAGE_ID", "from the environment")
    monkeypatch.setenv("DELAYSTORE_JSON", "1")
    assert run("send", "billing").document == {"message_id": "from the environment"}
    monkeypatch.setenv("DELAYSTORE_LIST_LIMIT", "0")
    assert run("list").code == 2


def test_reading_never_creates_a_table(run: CommandLine) -> None:
    for command in (("list",), ("count",), ("show", "a"), ("cancel", "a"), ("health",), ("status",)):
        assert "delaystore setup" in run.refused(*command, "--endpoint", "mistyped")


def test_setup_may_be_repeated_and_says_what_is_ready(run: CommandLine) -> None:
    result = run("setup", "--queue", "extra", "--error-queue", "trouble", "--json")
    assert result.document == {"endpoint": "sales", "queues": ["trouble", "extra"], "ready": True, "defects": []}
    assert run("receive", "extra").code == 1


def test_the_version_and_the_help_are_there(run: CommandLine) -> None:
    assert run("--version").out.startswith("delaystore ")
    for command in (
        "demo",
        "setup",
        "send",
        "dispatch",
        "list",
        "show",
        "count",
        "cancel",
        "reschedule",
        "receive",
        "status",
        "health",
    ):
        assert command in run("--help").out
        assert run(command, "--help").code == 0
