"""The history on the command line, on real databases: the life of a message, the search, the options, `status`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.dispatcher import Dispatcher
from delaystore.message import new_message_id
from delaystore.stores.operable import EXAMINED
from delaystore.stores.records import DispatcherRecord
from delaystore.testing import RecordingTransport
from delaystore.text import time_text
from tests.dispatching import REFUSED, settings
from tests.integration.cli import CommandLine
from tests.integration.loading import load
from tests.integration.sql_stores import execute, message, opened, url_for
from tests.long import long

DAYS = timedelta(days=30)


@pytest.fixture(params=["sqlite", "postgresql", long("mariadb")])
def database_url(request: pytest.FixtureRequest) -> str:
    return url_for(request, request.param)


@pytest.fixture
def store(database_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(database_url) as store:
        yield store


@pytest.fixture
def environment(database_url: str, store: SqlDelayedMessageStore) -> dict[str, str]:
    variables = {"STORE": database_url, "TRANSPORT": database_url, "ENDPOINT": "sales", "ACTOR": "ada"}
    return {f"DELAYSTORE_{name}": value for name, value in variables.items()}


@pytest.fixture
def history(store: SqlDelayedMessageStore) -> None:
    """The store keeps a history."""
    store.keep_history(DAYS)


def deliver(store: SqlDelayedMessageStore, *ids: str, seconds: float = -1, **fields: Any) -> None:
    """Messages that are stored and delivered at once."""
    for message_id in ids:
        store.store(message(store.now(), seconds, message_id, **fields))
        assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == 1


def listed(lines: str) -> Sequence[str]:
    """The outcome and id of each row of a table."""
    rows = [line.split() for line in lines.splitlines()[1:]]
    return [f"{row[2]} {next(word for word in row if word.startswith('m-'))}" for row in rows]


def in_order(lines: str, *parts: str) -> bool:
    """Whether each of the lines has its part, and there are no others below the heading."""
    shown = lines.splitlines()[1:]
    return len(shown) == len(parts) and all(part in line for part, line in zip(parts, shown, strict=True))


def test_dispatchers_begin_and_end_a_history(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    assert run("dispatch", "--once").code == 0
    assert store.history_status().kept is None
    assert run("dispatch", "--once", "--history", "30d").code == 0
    assert store.history_status().kept == DAYS
    assert run("dispatch", "--once").code == 0
    assert store.history_status().kept == DAYS
    assert run("dispatch", "--once", "--history", "0").code == 0
    assert store.history_status().kept is None


def test_a_variable_begins_a_history(
    run: CommandLine, store: SqlDelayedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYSTORE_DISPATCH_HISTORY", "36h")
    assert run("dispatch", "--once").code == 0
    assert store.history_status().kept == timedelta(hours=36)


def test_the_service_takes_the_option_and_the_key(
    run: CommandLine, environment: dict[str, str], tmp_path: Path
) -> None:
    def printed(*arguments: str) -> Any:
        return run("serve", "--print-config", "--json", *arguments).document["endpoint"]["sales"]["history"]

    assert printed() is None
    assert printed("--history", "30d") == "30d"
    assert printed("--history", "0") == "0s"
    file = tmp_path / "delaystore.toml"
    url = environment["DELAYSTORE_STORE"]
    for written, shown in (("36h", "1d12h"), ("0", "0s")):
        file.write_text(f'[endpoint.sales]\nstore = "{url}"\ntransport = "{url}"\nhistory = "{written}"\n')
        assert printed("--config", str(file)) == shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dispatch", "--history", "30s"], "--history must be at least 1m, or 0, not 30s"),
        (["dispatch", "--history", "soon"], "--history 'soon' is no duration"),
        (["dispatch", "--history", "-1d"], "--history '-1d' is negative"),
        (["dispatch", "--history", "20y"], "--history '20y' is no duration"),
        (["serve", "--check", "--history", "4000d"], "--history must be at most 3650 days"),
        (["serve", "--check", "--history", "soon"], "--history 'soon' is no duration"),
        (["history", "m-1", "--key", "k"], "an ID is given with --key, a filter or --after; pass the ID alone"),
        (["history", "m-1", "--outcome", "failed"], "pass the ID alone"),
        (["history", "m-1", "m-2"], "too many arguments"),
        (["history", "x" * 256], "message_id 'xxxxxxxx"),
        (["history", ""], "message_id is empty"),
        (["history", "\udcff"], "message_id"),
        (["history", "--key", ""], "key is empty"),
        (["history", "--key", "a\nb"], "key"),
        (["history", "--destination", ""], "destination is empty"),
        (["history", "--since", "2027-01-31"], "--since '2027-01-31' has no time zone"),
        (["history", "--until", "2027-01-31T09:00"], "--until '2027-01-31T09:00' has no time zone"),
        (["history", "--since", "-2h"], "--since '-2h' is not a time"),
        (["history", "--since", "2027-01-02T00:00Z", "--until", "2027-01-01T00:00Z"], "the second time must be later"),
        (["history", "--outcome", "lost"], "--outcome: 'lost' is not one of 'delivered', 'handed-over', "),
        (["history", "--after", "soon"], "--after 'soon' is no cursor"),
        (["history", "--limit", "0"], "--limit"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_mistake_is_one_line(run: CommandLine, arguments: list[str], says: str) -> None:
    assert says in run.refused(*arguments)


@pytest.mark.usefixtures("history")
def test_the_life_of_a_message_is_a_timeline(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    message_id, transport = new_message_id(), RecordingTransport()
    store.store(message(store.now(), 3600, message_id, destination="full", key="order 7"))
    assert run("reschedule", message_id, "--delay", "0").code == 0
    transport.outcomes["full"] = REFUSED
    assert Dispatcher(store, transport, settings()).dispatch_due().failed == 1
    waiting = run("history", message_id)
    assert waiting.code == 0
    assert waiting.err == ""
    assert in_order(waiting.out, "sent", "send-now", "Refused: the queue is full", "for full; due "), waiting.out
    transport.outcomes.clear()
    found = store.get(message_id)
    assert found is not None
    with store.transaction() as transaction:  # as if its time had come
        (claimed,) = transaction.fetch_due(found.next_attempt, 1)
        transaction.postpone([(claimed, store.now() - timedelta(seconds=1))])
    assert Dispatcher(store, transport, settings()).dispatch_due().delivered == 1
    told = run("history", message_id)
    assert in_order(told.out, "sent", "send-now", "failed attempt", "delivered"), told.out
    _, sent, change, _, delivered = told.out.splitlines()
    assert sent.startswith(time_text(store.now())[:10])
    assert " ada  " in change
    assert "  from " in change
    assert change.endswith(" (cli)")
    assert "  destination full; due " in delivered
    assert delivered.endswith(" late; 2 attempts; key order 7")
    document = run("history", message_id, "--json").document
    assert document == run("history", message_id, "--json").document
    assert list(document) == ["message_id", "sent", "waiting", "changes", "history"]
    assert (document["waiting"], [each["action"] for each in document["changes"]]) == (None, ["send-now"])
    (entry,) = document["history"]
    names = "message_id destination due_time ended outcome attempts late key load by body_hash failures"
    assert list(entry) == names.split()
    assert (entry["outcome"], entry["attempts"], entry["key"]) == ("delivered", 2, "order 7")
    assert entry["late"] >= 0
    assert len(entry["body_hash"]) == 64
    assert [each["kind"] for each in entry["failures"]] == ["Refused"]


@pytest.mark.usefixtures("history")
def test_the_life_of_a_waiting_message_says_where_it_waits(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), 3600, "m-1", destination="billing"))
    assert in_order(run("history", "m-1").out, "  waits      for billing; due ")
    shown = run("history", "m-1", "--json").document
    assert (shown["sent"], shown["history"], shown["waiting"]["destination"]) == (None, [], "billing")
    assert {"headers", "body", "body_base64"}.isdisjoint(shown["waiting"])
    store.store(message(store.now(), -1, "m-2", destination="paused"))
    store.pause("paused", by="ada")
    assert store.park(store.now()) == 1
    assert in_order(run("history", "m-2").out, "when resumed")
    assert run("history", "m-2").out.endswith("  waits      for paused; its destination is paused\n")


@pytest.mark.usefixtures("history")
def test_each_time_of_an_id_that_was_sent_again_is_shown(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    deliver(store, "m-1", "m-1")
    store.store(message(store.now(), 3600, "m-1"))
    assert in_order(run("history", "m-1").out, "delivered", "delivered", "waits ")


@pytest.mark.usefixtures("history")
def test_messages_are_found_by_each_filter(run: CommandLine, store: SqlDelayedMessageStore, database_url: str) -> None:
    deliver(store, "m-1", "m-2", destination="billing")
    deliver(store, "m-3", destination="shipping")
    between = store.now()
    store.store(message(between, 3600, "m-4", destination="billing", key="order 7"))
    load(database_url, "spring", [message(between, 3600, "m-5", destination="shipping")])
    assert run("cancel", "m-4", "m-5").code == 0
    every = ["cancelled m-5", "cancelled m-4", "delivered m-3", "delivered m-2", "delivered m-1"]
    assert sorted(listed(run("history").out)) == sorted(every)
    assert listed(run("history").out)[2:] == every[2:]
    assert listed(run("history", "--destination", "billing", "--outcome", "delivered").out) == every[3:]
    assert listed(run("history", "--outcome", "cancelled", "--destination", "shipping").out) == every[:1]
    assert listed(run("history", "--until", between.isoformat()).out) == every[2:]
    assert sorted(listed(run("history", "--since", between.isoformat()).out)) == sorted(every[:2])
    assert listed(run("history", "--key", "order 7").out) == every[1:2]
    assert listed(run("history", "--outcome", "expired").out) == []
    document = run("history", "--destination", "shipping", "--json").document
    assert [each["load"] for each in document["history"]] == ["spring", None]
    assert [each["by"] for each in document["history"]] == ["ada", None]
    assert (document["next"], document["kept"]) == (None, DAYS.total_seconds())


@pytest.mark.usefixtures("history")
def test_a_search_goes_on_behind_its_cursor(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    deliver(store, *(f"m-{number}" for number in range(5)))
    first = run("history", "--limit", "2")
    assert listed(first.out) == ["delivered m-4", "delivered m-3"]
    more, reach = first.err.splitlines()
    assert more.startswith("more follow; the next page: --after ")
    assert reach.startswith("the history reaches back to ")
    assert reach.endswith(", and is kept for 30d")
    found, cursor = [], None
    while True:
        page = run("history", "--limit", "2", "--json", *(() if cursor is None else ("--after", cursor))).document
        found += [each["message_id"] for each in page["history"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == [f"m-{number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_rare_entry_is_found_behind_many_others(
    run: CommandLine, store: SqlDelayedMessageStore, database_url: str
) -> None:
    deliver(store, "m-1", destination="rare")
    deliver(store, "m-2", destination="billing")
    columns = "message_id, destination, due_time, ended_at, attempts, ending"
    execute(
        database_url,
        f"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x <= {EXAMINED}) "
        f"INSERT INTO sales_delayed_history ({columns}) SELECT {columns} FROM sales_delayed_history, n "
        "WHERE destination = 'billing'",
    )
    assert listed(run("history", "--destination", "rare").out) == ["delivered m-1"]


@pytest.mark.usefixtures("history")
def test_the_messages_of_a_key_are_listed_with_the_one_that_waits(
    run: CommandLine, store: SqlDelayedMessageStore
) -> None:
    deliver(store, "m-1", key="order 7")
    store.store(message(store.now(), 3600, "m-2", key="order 7"))
    told = run("history", "--key", "order 7")
    assert listed(told.out) == ["delivered m-1"]
    assert "message m-2 with this key waits; `delaystore show` shows it\n" in told.err
    assert run("history", "--key", "order 7", "--json").document["waiting"]["message_id"] == "m-2"


def test_without_a_history_it_is_said_how_to_begin_one(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    deliver(store, "m-1")
    no_history = "no history is kept; `delaystore dispatch --history 30d` begins one\n"
    unknown = run("history", "m-1")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == f"not found: nothing is known of message 'm-1'; {no_history}"
    assert (run("history").code, run("history").err) == (0, no_history)
    assert run("show", "m-1").err == "not found: no message 'm-1' waits here\n"
    assert run("cancel", "m-1").err == "not found: m-1\n"
    store.keep_history(DAYS)
    deliver(store, "m-2")
    store.keep_history(None)
    assert run("history").err == "no history is kept any more; `delaystore dispatch --history 30d` begins one\n"


@pytest.mark.usefixtures("history")
def test_what_is_unknown_is_not_found(run: CommandLine) -> None:
    for arguments, what in ((["m-1"], "message 'm-1'"), (["--key", "k"], "a message with the key 'k'")):
        for more in ([], ["--json"]):
            result = run("history", *arguments, *more)
            assert (result.code, result.out) == (1, "")
            assert result.err.startswith(f"not found: nothing is known of {what}; the history reaches back to ")
    assert run("show", "m-1").err == "not found: no message 'm-1' waits here\n"


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("command", "begins"),
    [
        (["show"], "no message 'm-1' waits here; it was"),
        (["show", "--key"], "no message with the key 'k' waits here; message m-1 was"),
        (["cancel"], "m-1; it was"),
        (["cancel", "--key"], "key k; message m-1 was"),
        (["reschedule", "--delay", "1d"], "m-1; it was"),
        (["reschedule", "--delay", "1d", "--key"], "key k; message m-1 was"),
    ],
)
def test_commands_tell_how_a_message_that_they_do_not_find_has_left(
    run: CommandLine, store: SqlDelayedMessageStore, command: list[str], begins: str
) -> None:
    deliver(store, "m-1", destination="billing", key="k")
    (entry,) = DelayedDelivery("sales", store).history("m-1")
    result = run(*command, "k" if "--key" in command else "m-1")
    assert result.code == 1
    when = f"at {time_text(entry.ended)}, see `delaystore history m-1`"
    assert result.err == f"not found: {begins} delivered to billing {when}\n"


@pytest.mark.usefixtures("history")
def test_a_cancelled_message_is_told_with_who_cancelled_it(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), 3600, "it's"))
    assert run("cancel", "it's").code == 0
    assert "; it was cancelled by ada at " in run("show", "it's").err
    assert run("show", "it's").err.endswith("""see `delaystore history 'it'"'"'s'`\n""")
    assert in_order(run("history", "it's").out, "cancel ", "cancelled ")


def a_dispatcher(store: SqlDelayedMessageStore) -> DispatcherRecord:
    now = store.now()
    return DispatcherRecord(
        dispatcher_id="1", name="old-one", host="app-7", pid=1, version="0.1.9", since=now, heartbeat=now
    )


def test_status_says_since_when_the_history_reaches_back(run: CommandLine, store: SqlDelayedMessageStore) -> None:
    store.heartbeat(a_dispatcher(store))
    assert "history" not in run("status").out
    assert run("status", "--json").document["history"]["kept"] is None
    store.keep_history(DAYS)
    since = store.history_status().since
    (line, gap) = [each for each in run("status").out.splitlines() if each.startswith("history ")]
    assert line.startswith(f"history      since {time_text(since)}, kept for 30d")
    clause = "dispatcher old-one (release 0.1.9) makes no entries of the history; upgrade it, or grant its "
    clause += "database user SELECT on the table that ends with _settings"
    assert gap == f"history      {clause}"
    for arguments in ([], ["m-1"], ["--key", "k"]):
        assert run("history", *arguments).err.endswith(f"{clause}\n")
    document = run("status", "--json").document
    assert (document["history"]["kept"], document["wrong"]) == (DAYS.total_seconds(), [f"The {clause}."])
    store.heartbeat(replace(a_dispatcher(store), makes_entries=True))
    assert run("status", "--json").document["wrong"] == []
    assert "upgrade" not in run("status").out + run("history").err


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_status_estimates_the_entries(run: CommandLine, store: SqlDelayedMessageStore, database_url: str) -> None:
    deliver(store, *(f"m-{number}" for number in range(3)))
    execute(database_url, "ANALYZE")
    assert "kept for 30d, about 3 entries\n" in run("status").out
