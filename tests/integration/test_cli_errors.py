"""`delaystore errors`: list, show, replay, discard."""

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from delaystore import DelayedDelivery
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import Transport, open_transport
from delaystore.transports.sql_queue import SqlQueueTransport
from tests.dispatching import message
from tests.integration.cli import CommandLine, asked, started
from tests.integration.test_error_queue import batch, failed

PATIENCE = 60.0


@pytest.fixture
def transport(sqlite_url: str) -> Iterator[Transport]:
    """SQL queues: billing, sales, and in the error queue three messages for billing, two for sales, one for nowhere."""
    opened = open_transport(sqlite_url)
    for queue in ("billing", "sales"):
        opened.declare(queue)
    opened.declare_error_queue("error")
    failed(opened, batch(3))
    failed(opened, batch(2, "sales"), "Unroutable", "there is no queue 'sales'")
    failed(opened, batch(1, "nowhere"), "Unroutable", "there is no queue 'nowhere'")
    yield opened
    opened.close()


@pytest.fixture
def environment(sqlite_url: str, transport: Transport) -> dict[str, str]:
    return {"DELAYSTORE_TRANSPORT": sqlite_url}


def test_groups_are_listed(run: CommandLine, transport: Transport) -> None:
    document = run("errors", "list", "--json").document
    assert (document["error_queue"], document["depth"], document["complete"]) == ("error", 6, True)
    assert [(group["destination"], group["kind"], group["count"]) for group in document["groups"]] == [
        ("billing", "Refused", 3),
        ("sales", "Unroutable", 2),
        ("nowhere", "Unroutable", 1),
    ]
    assert document["groups"][0]["filter"] == {
        "destination": "billing",
        "kind": "Refused",
        "reason": "full with # messages",
    }
    lines = run("errors", "list").out.splitlines()
    assert lines[0].split() == ["messages", "destination", "kind", "reason", "last"]
    assert len(lines) == 5
    assert lines[-1] == "6 messages in the error queue 'error'"
    assert transport.depth("error") == 6


def test_it_is_told_where_the_queue_gives_fewer_than_it_holds(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlQueueTransport, "depth", lambda _self, _name: 9)  # as if somebody else had three
    told = run("errors", "list").err
    assert "looked at the first 6 of 9 messages only: it took too long, or other consumers hold the rest\n" in told
    assert "looked at the first 2 of 9 messages only; --examine looks" in run("errors", "list", "--examine", "2").err
    assert "looked at 6 of 9 messages only" in run("errors", "discard", "--all", "--dry-run").err
    assert run("errors", "discard", "--all", "--limit", "1", "--dry-run").err == ""


def test_messages_are_listed_by_page(run: CommandLine) -> None:
    first = run("errors", "list", "--messages", "--limit", "4", "--json").document
    assert [one["message_id"] for one in first["messages"]] == [
        "billing-0000",
        "billing-0001",
        "billing-0002",
        "sales-0000",
    ]
    assert first["next"] == 4
    result = run("errors", "list", "--messages", "--limit", "4", "--skip", "4")
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == ["sales-0001", "nowhere-0000"]
    found = run("errors", "list", "--messages", "--destination", "sales", "--kind", "Unroutable", "--json").document
    assert len(found["messages"]) == 2


def test_only_the_first_are_looked_at_and_it_says_so(run: CommandLine) -> None:
    result = run("errors", "list", "--examine", "2", "--json")
    assert result.document["complete"] is False
    assert "looked at the first 2 of 6 messages only" in run("errors", "list", "--examine", "2").err


def test_a_message_is_shown_as_it_would_be_sent(run: CommandLine, transport: Transport) -> None:
    failed(transport, [message("odd", headers={"h": "v"}, properties={"expiration": "5"}, body=b"\xff\x00")])
    document = run("errors", "show", "odd", "--json").document
    assert (document["headers"], document["properties"], document["body_base64"]) == (
        {"h": "v"},
        {"expiration": "5"},
        "/wA=",
    )
    shown = run("errors", "show", "odd")
    assert "header         h: v" in shown.out
    assert "kind           Refused" in shown.out
    missing = run("errors", "show", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert "not found" in missing.err


def test_a_replay_by_filter_says_what_it_did(run: CommandLine, transport: Transport) -> None:
    dry = run("errors", "replay", "--destination", "billing", "--dry-run")
    assert (dry.code, dry.out.splitlines()[0]) == (0, "would be replayed: 3 messages")
    assert transport.depth("error") == 6
    result = run("errors", "replay", "--destination", "billing")
    assert (result.code, result.out) == (0, "replayed: 3 messages\n  billing: 3\n")
    assert (transport.depth("error"), transport.depth("billing")) == (3, 3)


def test_a_replay_of_all_says_what_stays(run: CommandLine, transport: Transport) -> None:
    result = run("errors", "replay", "--all")
    assert result.code == 1
    assert "stays: 1 message: nowhere: there is no queue 'nowhere'" in result.err
    assert transport.depth("error") == 1
    report = run("errors", "replay", "nowhere-0000", "--to", "sales", "--json").document
    assert (report["done"], report["destinations"], report["left"]) == (1, {"sales": 1}, {})
    assert transport.depth("sales") == 3


def test_a_message_that_is_not_there_is_not_found(run: CommandLine) -> None:
    for command in ("replay", "discard"):
        result = run("errors", command, "nobody")
        assert result.code == 1
        assert "not found: no message 'nobody'" in result.err


def test_what_is_discarded_is_gone(run: CommandLine, transport: Transport) -> None:
    assert run("errors", "discard", "--kind", "Unroutable", "--dry-run").code == 0
    assert transport.depth("error") == 6
    result = run("errors", "discard", "--kind", "Unroutable")
    assert (result.code, result.out.splitlines()[0]) == (0, "discarded: 3 messages")
    assert run("errors", "discard", "--all").code == 0
    assert transport.depth("error") == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["replay"], "no messages are chosen"),
        (["discard"], "no messages are chosen"),
        (["replay", "--all", "--kind", "Refused"], "messages are chosen twice"),
        (["list", "--error-queue", "elsewhere"], "there is no queue 'elsewhere'"),
        (["replay", "--all", "--error-queue", "elsewhere"], "there is no queue 'elsewhere'"),
        (["list", "--failed-after", "yesterday"], "is not a time in a form"),
        (["replay", "--all", "--to", "error"], "the error queue itself"),
        (["list", "--transport", "memory://"], "in memory"),
        (["list", "--transport", "amqp://127.0.0.1:1"], "RabbitMQ"),
    ],
)
def test_a_mistake_is_one_line(run: CommandLine, arguments: list[str], says: str) -> None:
    assert says in run.refused("errors", *arguments)


def test_a_missing_transport_is_one_line(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYSTORE_TRANSPORT")
    assert "no transport is given" in run.refused("errors", "list")


def test_changes_are_noted_in_the_store(run: CommandLine, sqlite_url: str) -> None:
    given = ("--store", sqlite_url, "--endpoint", "shop", "--actor", "anna")
    delivery = DelayedDelivery("shop", SqlDelayedMessageStore(sqlite_url))
    delivery.setup_infrastructure()
    assert run("errors", "replay", "--destination", "billing", *given).code == 0
    assert run("errors", "discard", "--destination", "sales", *given).code == 0
    assert run("errors", "discard", "--destination", "nobody", *given).code == 0
    noted = [(entry.by, entry.action, entry.about, entry.count) for entry in delivery.operations.changes()]
    assert noted == [
        ("anna", "discard", "error queue error: destination sales", 2),
        ("anna", "replay", "error queue error: destination billing", 3),
    ]
    delivery.close()


def test_a_change_that_the_store_does_not_note_says_so(run: CommandLine, sqlite_url: str) -> None:
    delivery = DelayedDelivery("shop", SqlDelayedMessageStore(sqlite_url))
    delivery.setup_infrastructure()
    delivery.close()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database:
        database.execute("DROP TABLE shop_delayed_changes")
    result = run("errors", "discard", "--destination", "billing", "--store", sqlite_url, "--endpoint", "shop")
    assert (result.code, result.out.splitlines()[0]) == (0, "discarded: 3 messages")
    assert result.err.startswith("warning: discard: error queue error: ")
    assert "(3 messages) is done, but missing in the audit trail: " in result.err


@pytest.mark.parametrize(
    ("answer", "code", "left", "says"),
    [
        (b"n\n", 1, 6, "nothing is discarded"),
        (b"y\n", 0, 0, ""),
        (b"\x04", 1, 6, "nothing is discarded"),
        (None, 130, 6, "stopped"),
    ],
    ids=["no", "yes", "end of input", "Ctrl-C"],
)
def test_a_terminal_is_asked_before_anything_is_discarded(
    run: CommandLine, transport: Transport, answer: bytes | None, code: int, left: int, says: str
) -> None:
    exit_code, shown = asked(["errors", "discard", "--all"], run.environment, "for good? [y/N]", answer)
    assert exit_code == code
    assert "Discard 6 messages of 'error' for good?" in shown
    assert says in shown
    assert transport.depth("error") == left


@pytest.mark.long
def test_an_interrupt_ends_it_between_two_batches(rabbitmq_url: str) -> None:
    transport = open_transport(rabbitmq_url)
    transport.declare("billing")
    transport.declare_error_queue("error")
    messages = batch(20_000)
    failed(transport, messages)
    process = started(["errors", "replay", "--all", "--json"], {"DELAYSTORE_TRANSPORT": rabbitmq_url})
    deadline = time.monotonic() + PATIENCE
    while not transport.depth("billing") and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, (out, err)
    assert "run it again for the remaining messages" in err
    assert "Traceback" not in err
    done, left = transport.depth("billing"), transport.depth("error")
    assert done is not None
    assert left is not None
    assert 0 < done < 20_000
    assert done + left == 20_000
    transport.close()
