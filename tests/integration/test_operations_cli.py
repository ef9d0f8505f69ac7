"""Operations on the command line, in this process, on SQLite."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError, StoreUnavailableError
from delaystore.filters import EVERYTHING
from delaystore.message import DelayedMessage
from delaystore.operations.exports import ExportFile, ExportFormat
from delaystore.stores.operable import STEP
from delaystore.stores.records import Operation
from tests.integration.cli import CommandLine
from tests.integration.loading import load
from tests.integration.sql_stores import message, opened

HOUR = 3600


@pytest.fixture
def store(prepared_sqlite_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(prepared_sqlite_url) as store:
        yield store


@pytest.fixture
def environment(sqlite_url: str, store: SqlDelayedMessageStore) -> dict[str, str]:
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_ACTOR": "ada"}


def fill(store: SqlDelayedMessageStore, count: int, destination: str = "billing", **fields: Any) -> None:
    now = store.now()
    fields = {"seconds": HOUR, **fields}
    store.store_many(
        message(now, message_id=f"{destination}-{number:05}", destination=destination, **fields)
        for number in range(count)
    )


@pytest.mark.parametrize(
    "command",
    [
        ["cancel"],
        ["cancel", "--dry-run"],
        ["reschedule", "--by", "1d"],
        ["list"],
        ["count"],
        ["count", "--per", "day"],
        ["export"],
    ],
)
def test_an_unknown_load_is_not_found(run: CommandLine, store: SqlDelayedMessageStore, command: list[str]) -> None:
    fill(store, 3)
    result = run(*command, "--load", "sprong")
    assert (result.code, result.out) == (1, "")
    assert result.err == "not found: there is no load 'sprong'; `delaystore loads list` shows the last ones\n"
    assert store.count() == 3


@pytest.mark.parametrize("command", ["show", "pause", "resume"])
def test_what_is_no_load_id_is_an_unknown_load(run: CommandLine, command: str) -> None:
    result = run("loads", command, "\udcff")
    assert (result.code, result.err.partition(";")[0]) == (1, "not found: there is no load '\\udcff'")


def test_a_cancel_of_a_load_says_what_it_did_not_reach(
    run: CommandLine, store: SqlDelayedMessageStore, sqlite_url: str
) -> None:
    load(sqlite_url, "spring", [message(store.now(), 0, "due"), message(store.now(), HOUR, "later")])
    with opened(sqlite_url) as other, other.transaction() as claiming:
        claiming.fetch_due(other.now(), 1)
        result = run("loads", "cancel", "spring")
    assert (result.code, result.out) == (1, "cancelled: 1 message (load spring)\n")
    assert result.err.splitlines()[1:] == [
        "being dispatched, and left alone: 1 message: due",
        "the load stays paused; run `delaystore loads cancel spring` again to cancel the rest",
    ]
    state = next(line for line in run("loads", "show", "spring").out.splitlines() if line.startswith("state"))
    assert (" cancelled by " in state, state.endswith(", paused")) == (True, True)
    again = run("loads", "cancel", "spring")
    assert (again.code, again.out) == (0, "cancelled: 1 message (load spring)\n")


def test_a_resume_goes_on_where_an_earlier_one_was_interrupted(
    run: CommandLine, store: SqlDelayedMessageStore, sqlite_url: str
) -> None:
    load(sqlite_url, "spring", [message(store.now(), -1, "due")])
    assert run("loads", "pause", "spring").out == "paused: spring (1 due message parked)\n"
    assert store.resume_load("spring", by="ada")
    result = run("loads", "resume", "spring")
    assert (result.code, result.out) == (0, "resumed: spring (1 parked message)\n")
    assert run("loads", "resume", "spring").code == 1


def test_those_that_match_are_cancelled(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    fill(store, 30, headers={"kind": "old"})
    fill(store, 3, "shipping", headers={"kind": "old"})
    dry = run("cancel", "--destination", "billing", "--header", "kind=old", "--dry-run")
    assert dry.code == 0
    assert "30 messages match: destination billing, header kind=old; nothing is changed\n" in dry.out
    assert "billing-00004" in dry.out
    assert "billing-00005" not in dry.out
    assert "... and 25 more\n" in dry.out
    assert store.count() == 33
    result = run("cancel", "--destination", "billing", "--header", "kind=old")
    assert (result.code, result.out) == (0, "cancelled: 30 messages (destination billing, header kind=old)\n")
    assert result.err.startswith("operation ")
    assert store.count() == 3
    assert run("cancel", "--all").out == "cancelled: 3 messages (all messages)\n"


def test_a_dry_run_and_a_change_are_told_as_json(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    fill(store, 7)
    dry = run("reschedule", "--id-prefix", "billing-", "--delay", "2h", "--dry-run", "--json").document
    assert (dry["count"], dry["dry_run"], dry["filter"]) == (7, True, {"id_prefix": "billing-"})
    assert [each["message_id"] for each in dry["sample"]] == [f"billing-0000{number}" for number in range(5)]
    done = run("reschedule", "--id-prefix", "billing-", "--at", "2100-01-01T00:00Z", "--json").document
    assert (done["kind"], done["state"], done["changed"], done["by"]) == ("reschedule", "done", 7, "ada")
    assert {each["due_time"] for each in run("list", "--json").document["messages"]} == {"2100-01-01T00:00:00+00:00"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cancel"], "no messages are chosen; pass an ID, --key KEY, a filter such as --destination NAME, or --all"),
        (["cancel", "--yes"], "no messages are chosen"),
        (["cancel", "x", "--destination", "billing"], "messages are chosen in several ways"),
        (["cancel", "--all", "--failing"], "messages are chosen in several ways"),
        (["cancel", "x", "--dry-run"], "--dry-run needs a filter"),
        (["cancel", "--destination", ""], "destination is empty"),
        (["cancel", "--due-after", "2027-01-01"], "has no time zone"),
        (["cancel", "--due-after", "2027-01-02T00:00Z", "--due-before", "2027-01-01T00:00Z"], "nothing is due from"),
        (["cancel", "--header", "kind"], "--header 'kind' is not of the form KEY=VALUE"),
        (["cancel", "--header", "a=1", "--header", "a=2"], "named twice"),
        (["reschedule", "--all"], "when is it due? pass --delay DURATION, --at TIME or --by"),
        (["pause", "billing", "--for", "1h", "--until", "2100-01-01T00:00Z"], "--until and --for are both given"),
        (["pause", "billing", "--until", "2001-01-01T00:00Z"], "is in the past"),
        (["pause", "billing", "--for", "0"], "--for is 0; write how long"),
        (["pause", "billing", "--for", "99999999d"], "--for 99999999d is out of range"),
        (["pause", "a\nb"], "control character"),
        (["limit", "billing", "--max-rate", "fast"], "--max-rate 'fast' is no rate; write 200/s"),
        (["limit", "billing", "--max-rate", "0"], "--max-rate must be a number of messages a second"),
        (["limit", "billing", "--max-rate", "1/h"], "from 0.001 (3.6 an hour)"),
        (["export", ""], "'.' is a folder; name a file"),
        (["export", "."], "'.' is a folder; name a file"),
        (["export", "nowhere/a.csv"], "the folder 'nowhere' does not exist; create it first"),
        (["export", "none/"], "'none/' is a folder; name a file"),
        (["export", "--continue"], "--continue reads its position from FILE"),
        (["export", "--json"], "name a FILE"),
        (["export", "--after", "x"], "is no cursor"),
    ],
)
def test_mistakes_are_told_in_one_line(run: CommandLine, arguments: list[str], says: str) -> None:
    assert says in run.refused(*arguments)
    assert run("changes", "--json").document == {"changes": [], "next": None, "audit": [], "retention": None}


def test_what_a_dispatcher_has_is_named(run: CommandLine, store: SqlDelayedMessageStore, sqlite_url: str) -> None:
    fill(store, 3, seconds=0)
    with opened(sqlite_url) as other, other.transaction() as claiming:
        (claimed,) = claiming.fetch_due(other.now(), 1)
        result = run("cancel", "--destination", "billing")
        assert (result.code, result.out) == (1, "cancelled: 2 messages (destination billing)\n")
        assert f"being dispatched, and left alone: 1 message: {claimed.message_id}\n" in result.err


def begin_and_stop(run: CommandLine, store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of an operation that the store left in the middle."""
    fill(store, 5_000)
    advance, steps = SqlDelayedMessageStore.advance_operation, []

    def fail_at_second(self: SqlDelayedMessageStore, operation_id: str, **more: Any) -> Operation | None:
        steps.append(operation_id)
        if len(steps) == 2:
            raise StoreUnavailableError("gone")
        return advance(self, operation_id, **more)

    with monkeypatch.context() as patch:
        patch.setattr(SqlDelayedMessageStore, "advance_operation", fail_at_second)
        result = run("cancel", "--destination", "billing")
    assert result.code == 2
    assert (
        f"interrupted: {STEP:,} messages cancelled so far; go on with `delaystore operations resume {steps[0]}`"
        in result.err
    )
    assert "error: gone" in result.err
    return steps[0]


def test_an_interrupted_operation_goes_on(
    run: CommandLine, store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation_id = begin_and_stop(run, store, monkeypatch)
    assert store.count() == 5_000 - STEP
    assert [entry.count for entry in store.changes()] == [STEP]
    (running,) = run("operations", "list", "--json").document["operations"]
    assert (running["operation_id"], running["state"], running["changed"]) == (operation_id, "running", STEP)
    resume = f"delaystore operations resume {operation_id}"
    assert f"no process works on {operation_id} any more, go on with `{resume}`" in run("operations", "list").err
    assert f"if no process works on it, {resume}" in run("status").out
    result = run("operations", "resume", operation_id)
    assert (result.code, result.out) == (0, "cancelled: 5,000 messages (destination billing)\n")
    assert [entry.count for entry in store.changes()] == [5_000, 0]
    again = run("operations", "resume", operation_id)
    assert (again.code, again.err) == (0, "it has ended already: done\n")
    told = run("operations", "list").out
    assert operation_id in told
    assert "done" in told


def test_whoever_stops_while_an_operation_begins_is_told_its_id(
    run: CommandLine, store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    begin = SqlDelayedMessageStore.begin_operation

    def interrupted(self: SqlDelayedMessageStore, operation: Operation, **more: Any) -> None:
        begin(self, operation, **more)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(SqlDelayedMessageStore, "begin_operation", interrupted)
    result = run("cancel", "--destination", "billing")
    (left,) = run("operations", "list", "--json").document["operations"]
    resume = f"delaystore operations resume {left['operation_id']}"
    assert result.code == 130
    assert f"interrupted: 0 messages cancelled so far; go on with `{resume}`" in result.err
    assert store.count() == 3
    assert run(*resume.split()[1:]).out == "cancelled: 3 messages (destination billing)\n"


def test_an_operation_is_abandoned(
    run: CommandLine, store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation_id = begin_and_stop(run, store, monkeypatch)
    result = run("operations", "abandon", operation_id)
    assert (result.code, result.out) == (0, f"abandoned: {operation_id} ({STEP:,} messages were changed before)\n")
    assert run("operations", "abandon", operation_id).code == 1
    assert run("operations", "resume", operation_id).code == 1
    assert store.count() == 5_000 - STEP
    assert [each["action"] for each in run("changes", "--json").document["changes"]] == ["abandon", "cancel"]


@pytest.mark.parametrize(("operation_id", "shown"), [("nothing", "nothing"), ("\udcff", "\\udcff")])
@pytest.mark.parametrize("command", ["resume", "abandon"])
def test_an_unknown_operation_is_not_found(
    run: CommandLine, store: SqlDelayedMessageStore, command: str, operation_id: str, shown: str
) -> None:
    result = run("operations", command, operation_id)
    assert result.code == 1
    assert result.err == f"not found: no operation '{shown}'; `delaystore operations list` shows them\n"


def test_changes_by_id_are_noted_too(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    fill(store, 2)
    store.store(message(store.now(), HOUR, "keyed", key="order-17"))
    run("cancel", "billing-00000", "nothing", "--actor", "grace")
    run("reschedule", "billing-00001", "--delay", "2h")
    run("cancel", "--key", "order-17")
    changes = run("changes", "--json").document["changes"]
    noted = [(each["by"], each["way"], each["action"], each["message_id"], each["key"]) for each in changes]
    assert noted == [
        ("ada", "cli", "cancel", "keyed", "order-17"),
        ("ada", "cli", "reschedule", "billing-00001", None),
        ("grace", "cli", "cancel", "billing-00000", None),
    ]
    assert (changes[1]["old_due_time"], changes[1]["new_due_time"]) != (None, None)
    assert "grace" in run("changes").out


def test_changes_go_on_where_the_page_before_ended(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    fill(store, 7)
    for number in range(3):
        run("cancel", f"billing-0000{number}")
    run("cancel", *(f"billing-0000{number}" for number in range(3, 7)))
    for entry in store.changes():
        assert entry.action == "cancel"
    arguments: list[str] = []
    listed: list[str] = []
    while True:
        page = run("changes", "--limit", "2", *arguments, "--json").document
        listed += [each["message_id"] for each in page["changes"]]
        if page["next"] is None:
            break
        arguments = ["--after", page["next"]]
    assert sorted(listed) == [f"billing-0000{number}" for number in range(7)]
    assert listed == [each.message_id for each in store.changes()]
    said = run("changes", "--limit", "2").err
    assert f"more follow; the next page: --after {run('changes', '--limit', '2', '--json').document['next']}\n" in said
    assert "--after 'x' is no cursor" in run.refused("changes", "--after", "x")


def test_a_destination_is_paused_limited_and_resumed(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    fill(store, 3, seconds=-1)
    result = run("pause", "billing")
    assert (result.code, result.out) == (0, "paused: billing (3 due messages parked)\n")
    assert result.err == "note: a pause does not extend the latest delivery of messages\n"
    assert run("limit", "billing", "--max-rate", "30/m").out == "limited to 0.5/s: billing\n"
    (paused,) = run("destinations", "--json").document["destinations"]
    assert (paused["name"], paused["paused"], paused["max_rate"]) == ("billing", True, 0.5)
    (counted,) = run("destinations", "--backlog", "--json").document["destinations"]
    assert counted["waiting"] == 3
    assert "paused" in run("destinations").out
    assert run("cancel", "--paused", "--dry-run").out.startswith("3 messages match: paused")
    assert run("resume", "billing").out == "resumed: billing (3 parked messages)\n"
    again = run("resume", "billing")
    assert (again.code, again.err) == (1, "not paused: billing\n")
    assert run("limit", "billing", "--max-rate", "none").out == "no limit any more: billing\n"
    assert run("destinations").out == "no destination is paused or limited\n"
    about = [each["about"] for each in run("changes", "--json").document["changes"] if each["action"] == "limit"]
    assert about == ["billing: no limit any more", "billing to 0.5/s"]


def test_a_mistyped_destination_is_paused_with_a_warning(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    fill(store, 3, seconds=-1)
    result = run("pause", "biling", "--for", "2h", "--json")
    assert result.code == 0
    assert "no message waits for 'biling' at present; is that its name?" in result.err
    until = datetime.fromisoformat(result.document["until"])
    assert timedelta(hours=1.9) < until - datetime.now(UTC) <= timedelta(hours=2)
    assert "no message waits for 'shiping'" in run("limit", "shiping", "--max-rate", "1").err


def every_kind(now: datetime) -> Iterator[DelayedMessage]:
    """Messages with all that files could change."""
    headers = {
        "text": 'a "b", c\n\r\tü☃', "empty": "", "no": None, "yes": True, "whole": 2**63 - 1, "float": 1.5,
        "nan": float("inf"), "decimal": Decimal("1.50"), "bytes": b"\xff\0", "time": now,
        "list": [1, [b"x", {"$y": 1}]], "$bytes": {"$bytes": "x"}, "": "no name", "a,b": "'",
    }  # fmt: skip
    properties = {"content_type": "a;b", "timestamp": now.replace(microsecond=0), "priority": 9, "expiration": "60000"}
    bodies = [b"", b"text", "ü☃\u2028".encode(), b"\0\xff\xfe", b'line\nline\r\n"x",\0', b"\xef\xbb\xbfbom", b" "]
    for number, body in enumerate(bodies):
        yield message(now, HOUR + number, f'id "{number}",\n☃', body=body, headers=headers, properties=properties)
    for destination in ("/queues/a%2Fb", "ü, ☃", " x "):
        yield message(now, -HOUR, destination=destination)
    yield message(now, HOUR, key='key "1",☃')


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_what_is_exported_is_read_back_as_it_was(
    run: CommandLine, store: SqlDelayedMessageStore, sqlite_url: str, tmp_path: Path, ending: str
) -> None:
    sent = list(every_kind(store.now()))
    store.store_many(sent)
    file = str(tmp_path / f"out.{ending}")
    result = run("export", file)
    assert (result.code, result.out) == (0, f"exported: {len(sent)} messages to {file}\n")
    assert "--key-column key" in result.err
    loaded = run("send", "--file", file, "--key-column", "key", "--endpoint", "copy", "--create")
    assert loaded.code == 0, loaded
    with DelayedDelivery("copy", SqlDelayedMessageStore(sqlite_url)) as copy:
        found = {each.message_id: each for each in copy.operations.export(EVERYTHING)}
    assert repr(found) == repr(
        {each.message_id: each for each in sorted(sent, key=lambda each: (each.due_time, each.message_id))}
    )
    assert not list(tmp_path.glob("*.part*"))


def test_an_export_in_an_unknown_format_is_refused(run: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    line = run.refused("export", str(file))
    assert line.startswith("error: the ending '.parquet' of ")
    assert line.endswith("names no format that export writes; use .jsonl or .csv, or pass --format")
    assert run("export", str(file), "--format", "csv").code == 0
    assert file.exists()


def test_an_export_without_keys_needs_no_option(
    run: CommandLine, store: SqlDelayedMessageStore, tmp_path: Path
) -> None:
    fill(store, 3)
    fill(store, 3, "shipping")
    file = str(tmp_path / "out.jsonl")
    told = run("export", file, "--destination", "billing", "--json")
    assert told.document == {"file": file, "format": "jsonl", "messages": 3, "keyed": 0, "unreadable": 0}
    assert run("send", "--file", file, "--endpoint", "copy", "--create").code == 0
    assert run("count", "--endpoint", "copy").out == "3\n"
    assert "is there already" in run.refused("export", file)


def test_an_export_goes_to_standard_output(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    fill(store, 3)
    lines = run("export").out.splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == ["billing-00000", "billing-00001", "billing-00002"]
    head, *rest = run("export", "--format", "csv").out.splitlines()
    assert head == "message_id,destination,due_time,body,body_base64,headers,properties,key,not_after"
    assert len(rest) == 3


def test_an_interrupted_export_never_looks_complete_and_goes_on(
    run: CommandLine, store: SqlDelayedMessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 2_500)
    file = tmp_path / "out.csv"
    search, pages = SqlDelayedMessageStore.search, []

    def fail_at_third(*arguments: Any, **options: Any) -> Any:
        pages.append(arguments)
        if len(pages) == 3:
            raise StoreUnavailableError("gone")
        return search(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SqlDelayedMessageStore, "search", fail_at_third)
        result = run("export", str(file))
    assert result.code == 2
    assert "messages exported so far; " in result.err
    assert "the same command goes on with --continue" in result.err
    assert not file.exists()
    part = tmp_path / "out.csv.part"
    with part.open("ab") as torn:
        torn.write(b'"billing-00' * 100_000)  # what a kill leaves behind what was noted
    assert "left from an interrupted export" in run.refused("export", str(file))
    assert "has another filter or format: all messages of 'sales' as csv" in run.refused(
        "export", str(file), "--continue", "--destination", "x"
    )
    assert run("export", str(file), "--continue").out == f"exported: 2,500 messages to {file}\n"
    ids = [line.split(",")[0] for line in file.read_text().splitlines()]
    assert ids == ["message_id", *(f'"billing-{number:05}"' for number in range(2_500))]
    assert list(tmp_path.glob("out*")) == [file]
    assert "there is no interrupted export to" in run.refused("export", str(tmp_path / "other.csv"), "--continue")


def test_a_file_is_written_by_one_export(run: CommandLine, store: SqlDelayedMessageStore, tmp_path: Path) -> None:
    fill(store, 3)
    file = tmp_path / "out.jsonl"
    with ExportFile(file, ExportFormat.JSONL, "sales", EVERYTHING, resume=False):
        assert "another export writes" in run.refused("export", str(file), "--continue")
    assert run("export", str(file)).out == f"exported: 3 messages to {file}\n"


def test_an_export_that_failed_before_its_first_message_leaves_nothing(
    run: CommandLine, store: SqlDelayedMessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("gone")

    fill(store, 3)
    monkeypatch.setattr(SqlDelayedMessageStore, "search", fail)
    result = run("export", str(tmp_path / "out.csv"))
    assert result.code == 2
    assert "interrupted: 0 messages exported so far; begin again\n" in result.err
    assert list(tmp_path.glob("out*")) == []


def test_notes_of_an_export_that_has_its_file_are_not_those_of_the_next_one(
    store: SqlDelayedMessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.jsonl"
    with ExportFile(file, ExportFormat.JSONL, "sales", EVERYTHING, resume=False) as export:
        export.write([message(store.now(), 0, "m0")], None)
        export.part.rename(file)  # and it is killed
    file.unlink()

    def die(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(ExportFile, "_note", die)
        with pytest.raises(OSError, match="killed"):
            ExportFile(file, ExportFormat.JSONL, "sales", EVERYTHING, resume=False)
    with pytest.raises(ConfigurationError, match="there is no interrupted export to"):
        ExportFile(file, ExportFormat.JSONL, "sales", EVERYTHING, resume=True)


@pytest.mark.parametrize("command", ["cancel", "reschedule", "export", "pause", "resume", "limit", "operations"])
def test_help_names_what_there_is(run: CommandLine, command: str) -> None:
    assert run(command, "--help").code == 0


def test_tables_fit_a_terminal_of_80_columns(
    run: CommandLine, store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = "orders.europe.germany.billing"
    now = store.now()
    for number in range(6):
        store.store(message(now, number, f"0192b8a0-7c1e-7aaa-8bbb-{number:012}", destination=destination))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("delaystore.cli._output.is_terminal", lambda: True)
    sample = run("cancel", "--all", "--dry-run").out
    run("pause", destination, "--for", "1h")
    run("limit", destination, "--max-rate", "200/s")
    run("cancel", "--destination", destination, "--id-prefix", "x")
    tables = [
        sample,
        *(run(*each).out for each in (["destinations", "--backlog"], ["operations", "list"], ["changes"])),
    ]
    for table in tables:
        assert all(len(line) <= 80 for line in table.splitlines()), table
    assert "…" not in sample
