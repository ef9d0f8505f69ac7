"""`delaystore migrate` with real databases and a real broker."""

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from delaystore.errors import DuplicateMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.sources import open_source
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2
from tests.dispatching import wait_until
from tests.integration.cascades import arrivals, channel_to, make_queue, ready
from tests.integration.cli import PATIENCE, CommandLine, started
from tests.integration.sql_stores import all_tables, connected
from tests.servers import PostgreSQLDatabases

HOUR = timedelta(hours=1)
CONTENT: dict[str, Any] = {"headers": {"größe": "groß", "raw": b"\x00\xff", "nested": {"list": [1, None, "x"]}}}


@pytest.fixture
def broker(rabbitmq_url: str) -> Iterator[Any]:
    """A channel to a broker with the queue `billing`."""
    with channel_to(rabbitmq_url) as channel:
        make_queue(channel, "billing")
        yield channel


@contextmanager
def store_at(url: str, endpoint: str = "sales") -> Iterator[SqlDelayedMessageStore]:
    store = SqlDelayedMessageStore(url)
    store.initialize(endpoint, TransactionMode.NONE)
    store.setup_infrastructure()
    try:
        yield store
    finally:
        store.close()


def message(number: int, due_in: timedelta = HOUR, **fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"destination": "billing", "body": str(number).encode(), **fields}
    return DelayedMessage(message_id=f"m{number:05}", due_time=datetime.now(UTC) + due_in, **values)


def keep(url: str, *messages: DelayedMessage, endpoint: str = "sales") -> list[DelayedMessage]:
    with store_at(url, endpoint) as store:
        store.store_many(messages)
    return list(messages)


def kept(url: str, endpoint: str = "sales") -> list[DelayedMessage]:
    with store_at(url, endpoint) as store:
        return sorted(store.list(limit=100_000).messages, key=lambda one: one.message_id)


def waiting_in_cascade(channel: Any) -> int:
    return sum(ready(channel, NSERVICEBUS_V2.level(number)) for number in range(NSERVICEBUS_V2.levels))


def v2(url: str) -> str:
    return f"{url}?delays=nservicebus-v2"


def test_messages_go_from_postgresql_into_the_cascade_and_arrive(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, broker: Any
) -> None:
    keep(postgresql_url, *(message(number, HOUR + timedelta(seconds=number)) for number in range(250)))
    soon = keep(postgresql_url, message(900, timedelta(seconds=2), headers={"a": "b"}), message(901, -HOUR))
    ends = ["--from", postgresql_url, "--to", v2(rabbitmq_url), "--endpoint", "sales"]

    preview = run("migrate", "preview", *ends, "--json")
    assert preview.code == 0, preview
    (found,) = preview.document["endpoints"]
    assert (found["count"], found["destinations"], found["immovable"]) == (252, {"billing": 252}, 0)
    before = all_tables(postgresql_url)
    assert len(kept(postgresql_url)) == 252

    moved = run("migrate", "run", *ends, "--yes", "--json", "--batch-size", "50")
    assert moved.code == 0, moved
    (report,) = moved.document["endpoints"]
    assert report["run"]["status"] == "completed"
    assert report["counts"] == {"prepared": 252, "moved": 252, "pending": 0, "rejected": 0, "returned": 0}
    came = {arrival.properties.message_id: arrival for arrival in arrivals(broker, ["billing"], 2)}
    assert came.keys() == {"m00900", "m00901"}
    assert came["m00900"].at >= soon[0].due_time.timestamp()
    assert came["m00900"].body == b"900"
    assert waiting_in_cascade(broker) == 250
    assert not kept(postgresql_url)

    verified = run("migrate", "verify", *ends, "--json")
    assert verified.code == 0
    assert verified.document["good"]
    assert "cannot be read" in verified.document["endpoints"][0]["remarks"][0]
    assert "completed" in run("migrate", "status", "--from", postgresql_url).out
    assert run("migrate", "cleanup", *ends, "--yes").code == 0
    assert all_tables(postgresql_url) == before
    assert "no run" in run("migrate", "status", "--from", postgresql_url).out


def test_a_preview_declares_nothing_on_the_broker(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, broker: Any
) -> None:
    keep(postgresql_url, message(1))
    result = run("migrate", "preview", "--from", postgresql_url, "--to", v2(rabbitmq_url), "--endpoint", "sales")
    assert result.code == 0
    assert "will be declared" in result.out
    with pytest.raises(Exception, match="NOT_FOUND"), channel_to(rabbitmq_url) as channel:
        channel.exchange_declare("nsb.v2.delay-delivery", passive=True)


def test_what_cannot_move_is_named_refused_and_left_behind_when_told_to(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, broker: Any
) -> None:
    originals = keep(
        postgresql_url,
        message(1),
        message(2, timedelta(days=9 * 365)),
        message(3, destination="nowhere"),
        message(4, destination="/exchanges/events/x"),
        message(5, timedelta(days=8 * 365)),
    )
    ends = ["--from", postgresql_url, "--to", v2(rabbitmq_url), "--endpoint", "sales"]
    preview = run("migrate", "preview", *ends)
    assert preview.code == 1
    for reason in ("no such queue", "beyond the longest delay", "is an exchange"):
        assert reason in preview.out
    assert "--allow-rejected" in run.refused("migrate", "run", *ends, "--yes")
    assert kept(postgresql_url) == originals

    assert run("migrate", "preview", *ends, "--allow-rejected").code == 0
    moved = run("migrate", "run", *ends, "--yes", "--allow-rejected", "--json")
    assert moved.code == 3, moved
    (report,) = moved.document["endpoints"]
    assert (report["counts"]["moved"], report["counts"]["rejected"]) == (2, 3)
    assert {one["row_id"] for one in report["rejections"]} == {"m00002", "m00003", "m00004"}
    assert "only this run has 3 rejected messages of 'sales'" in run.refused("migrate", "cleanup", *ends, "--yes")

    assert run("migrate", "abort", *ends, "--yes").code == 0
    assert kept(postgresql_url) == [originals[1], originals[2], originals[3]]
    assert run("migrate", "verify", *ends).code == 0
    assert run("migrate", "cleanup", *ends, "--yes").code == 0


def test_too_many_rejected_messages_stop_the_run(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, broker: Any
) -> None:
    keep(postgresql_url, *(message(number, destination="nowhere") for number in range(5)), message(6))
    ends = ["--from", postgresql_url, "--to", v2(rabbitmq_url), "--endpoint", "sales"]
    result = run("migrate", "run", *ends, "--yes", "--allow-rejected", "--max-rejected", "2")
    assert result.code == 2
    *cautions, line = result.err.splitlines()
    assert any("no such queue" in caution for caution in cautions)
    assert line.startswith("error: stopped: 5 rejected")
    assert "no queue 'nowhere'" in line


def phased(run: CommandLine, source: str, target: str) -> list[DelayedMessage]:
    """Two runs, the far future first, of which each rejects every other message; the rejected messages."""
    originals = keep(source, *(message(number, HOUR * number) for number in range(1, 9)))
    with store_at(target) as store:
        store.store_many(replace(one, body=b"other") for one in originals if one.message_id[-1] in "2468")
    ends = ["--from", source, "--to", target, "--endpoint", "sales", "--yes", "--allow-rejected"]
    assert run("migrate", "run", *ends, "--due-after", originals[4].due_time.isoformat()).code == 3
    assert run("migrate", "run", *ends).code == 3
    return originals[1::2]


def test_what_an_earlier_phase_rejected_is_told_until_an_abort_gives_it_back(
    run: CommandLine, sqlite_url: str, postgresql_url: str
) -> None:
    rejected = phased(run, sqlite_url, postgresql_url)
    ends = ["--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales"]
    assert "an earlier run, begun" in run("migrate", "preview", *ends).out

    verified = run("migrate", "verify", *ends, "--json")
    assert verified.code == 3
    assert not verified.document["good"]
    (found,) = verified.document["endpoints"]
    assert (found["findings"], found["counts"]["rejected"]) == ([], 2)
    assert [one["rejected"] for one in found["earlier_rejected"]] == [2]
    assert "not verified: sales: 4 rejected messages left" in run("migrate", "verify", *ends).out

    (status,) = run("migrate", "status", *ends, "--json").document["endpoints"]
    assert [one["counts"]["rejected"] for one in (status, *status["earlier_runs"])] == [2, 2]
    listed = run("migrate", "status", *ends, "--list-rejected").out
    assert all(f": {one.message_id}: another message with the id" in listed for one in rejected)

    nothing = run("migrate", "run", *ends, "--yes", "--json")
    assert nothing.code == 3, "nothing is left to move, and four rows are hidden"
    assert [one["rejected"] for one in nothing.document["endpoints"][0]["earlier_rejected"]] == [2, 2]

    aborted = run("migrate", "abort", *ends, "--yes", "--json")
    assert aborted.code == 0, aborted
    assert aborted.document["endpoints"][0]["given_back"] == 4
    assert kept(sqlite_url) == rejected
    assert run("migrate", "verify", *ends).code == 0


def test_what_a_file_has_rejected_in_an_earlier_phase_is_told_as_well(
    run: CommandLine, sqlite_url: str, tmp_path: Path
) -> None:
    lines = [
        {"message_id": f"m{number}", "destination": "billing", "due_time": f"2036-01-0{number}T00:00:00Z"}
        for number in (1, 2, 3, 4)
    ]
    file = tmp_path / "export.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    waiting: dict[str, Any] = {"destination": "other", "due_time": datetime(2036, 1, 1, tzinfo=UTC), "body": b""}
    keep(sqlite_url, *(DelayedMessage(message_id=id_, **waiting) for id_ in ("m2", "m4")))
    ends = ["--from", f"file://{file}", "--to", sqlite_url, "--endpoint", "sales"]
    settings = ["--yes", "--allow-rejected"]
    assert run("migrate", "run", *ends, *settings, "--due-after", "2036-01-03T00:00:00Z").code == 3
    assert run("migrate", "run", *ends, *settings).code == 3
    assert run("migrate", "verify", *ends).code == 3
    listed = run("migrate", "status", *ends, "--list-rejected").out
    assert "line 2: another message with the id 'm2'" in listed
    assert "line 4: another message with the id 'm4'" in listed
    aborted = run("migrate", "abort", *ends, "--yes", "--json")
    assert (aborted.code, aborted.document["endpoints"][0]["given_back"]) == (0, 2)


def test_messages_go_from_sqlite_to_postgresql_and_both_checksums_are_the_same(
    run: CommandLine, sqlite_url: str, postgresql_url: str
) -> None:
    originals = keep(sqlite_url, *(message(number, HOUR * number, **CONTENT) for number in range(120)))
    ends = ["--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales"]
    preview = run("migrate", "preview", *ends)
    assert "will be created" in preview.out
    assert preview.code == 0
    assert not all_tables(postgresql_url)
    assert run("migrate", "run", *ends, "--yes", "--batch-size", "7").code == 0
    assert kept(postgresql_url) == originals
    assert not kept(sqlite_url)
    (verified,) = run("migrate", "verify", *ends, "--json").document["endpoints"]
    assert verified["source_checksum"] == verified["target_checksum"]
    assert verified["no_longer_there"] == 0


def test_messages_that_were_sent_again_meanwhile_pass(run: CommandLine, sqlite_url: str, postgresql_url: str) -> None:
    noon = datetime(2041, 1, 1, 12, tzinfo=UTC)
    times = [noon, noon + timedelta(microseconds=1), noon + timedelta(microseconds=999_999)]
    originals = [replace(message(number), due_time=time, next_attempt=time) for number, time in enumerate(times)]
    keep(sqlite_url, *originals)
    ends = ["--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales"]
    run("migrate", "run", *ends, "--yes")
    with store_at(postgresql_url) as store:
        for each in originals * 2:
            with pytest.raises(DuplicateMessageError):
                store.store(each)
    assert kept(postgresql_url) != originals
    (verified,) = run("migrate", "verify", *ends, "--json").document["endpoints"]
    assert verified["source_checksum"] == verified["target_checksum"]
    assert run("migrate", "cleanup", *ends, "--yes").code == 0


@pytest.mark.long
def test_messages_that_were_changed_meanwhile_do_not_pass(
    run: CommandLine, sqlite_url: str, postgresql_url: str
) -> None:
    keep(sqlite_url, *(message(number) for number in range(3)))
    ends = ["--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales"]
    run("migrate", "run", *ends, "--yes")
    with store_at(postgresql_url) as store:
        store.cancel("m00000")
    gone = run("migrate", "verify", *ends)
    assert gone.code == 0
    assert "1 no longer there: dispatched meanwhile or removed" in gone.err
    with store_at(postgresql_url) as store:
        store.store(message(0, HOUR * 9))
    assert run("migrate", "verify", *ends).code == 1
    assert "checksums differ" in run.refused("migrate", "cleanup", *ends, "--yes")
    assert run("migrate", "cleanup", *ends, "--yes", "--force").code == 0


def test_interrupted_it_finishes_what_is_in_flight_and_goes_on_when_run_again(
    run: CommandLine, postgresql_url: str, sqlite_url: str
) -> None:
    originals = keep(sqlite_url, *(message(number, HOUR + timedelta(seconds=number)) for number in range(2000)))
    ends = ["--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales"]
    command = ["migrate", "run", *ends, "--yes", "--batch-size", "20"]
    with started([*command, "--max-rate", "200"], {}) as process:
        wait_until(lambda: "sales_delayed" in all_tables(postgresql_url) and len(kept(postgresql_url)) > 20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, (out, err)
    assert "run it again" in err
    arrived = kept(postgresql_url)
    assert 20 < len(arrived) < 2000
    assert len(arrived) % 20 == 0

    assert "batch size 20, not 30" in run.refused("migrate", "run", *ends, "--yes", "--batch-size", "30")
    unfinished = run("migrate", "verify", *ends)
    assert unfinished.code == 1
    assert "the run has not ended" in unfinished.out
    again = run(*command, "--json")
    assert again.code == 0, again
    assert again.document["endpoints"][0]["resumed"]
    assert kept(postgresql_url) == originals
    assert run("migrate", "verify", *ends).code == 0


def test_the_second_run_says_who_is_at_it(run: CommandLine, postgresql_url: str, sqlite_url: str) -> None:
    keep(postgresql_url, message(1))
    source = open_source(postgresql_url)
    with source.lock("sales", "process 4711 on elsewhere"):
        line = run.refused(
            "migrate", "run", "--from", postgresql_url, "--to", sqlite_url, "--endpoint", "sales", "--yes"
        )
    source.close()
    assert "'sales_delayed' is being migrated by" in line


@pytest.mark.long
def test_where_a_later_endpoint_fails_the_report_of_the_earlier_ones_is_printed(
    run: CommandLine, postgresql_url: str, sqlite_url: str
) -> None:
    for endpoint in ("alpha", "beta"):
        keep(postgresql_url, message(1), endpoint=endpoint)
    ends = ["--from", postgresql_url, "--to", sqlite_url, "--all-endpoints", "--json"]
    with closing(open_source(postgresql_url)) as source:
        with source.lock("beta", "another"):
            moved = run("migrate", "run", *ends, "--yes")
        assert (moved.code, moved.document["endpoints"][0]["counts"]["moved"]) == (2, 1)
        assert "is being migrated by" in moved.document["error"]
        assert run("migrate", "run", *ends, "--yes").code == 0
        with source.lock("beta", "another"):
            for command in ("abort", "cleanup"):
                stopped = run("migrate", command, *ends, "--yes")
                assert stopped.code == 2
                assert [one["endpoint"] for one in stopped.document["endpoints"]] == ["alpha"]
                assert "is being migrated by" in stopped.document["error"]


def test_where_no_endpoint_has_a_run_nothing_is_verified(
    run: CommandLine, postgresql_url: str, sqlite_url: str
) -> None:
    keep(postgresql_url, message(1))
    ends = ["--from", postgresql_url, "--to", sqlite_url, "--all-endpoints"]
    for command in (["verify"], ["abort", "--yes"], ["cleanup", "--yes"]):
        assert "there is no run of any endpoint" in run.refused("migrate", *command, *ends)
        assert "there is no run of any endpoint" in run.refused("migrate", *command, *ends, "--json")


def test_only_what_is_due_goes_directly_to_its_queue(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, broker: Any
) -> None:
    originals = keep(postgresql_url, message(1, -HOUR), message(2))
    ends = ["--from", postgresql_url, "--to", rabbitmq_url, "--endpoint", "sales"]
    preview = run("migrate", "preview", *ends)
    assert preview.code == 1
    assert "1 message is not due yet" in preview.out
    assert run("migrate", "run", *ends, "--yes", "--allow-rejected").code == 3
    (arrival,) = arrivals(broker, ["billing"], 1)
    assert arrival.properties.message_id == "m00001"
    run("migrate", "abort", *ends, "--yes")
    assert kept(postgresql_url) == [originals[1]]


@pytest.mark.long
def test_a_dry_run_of_all_endpoints_moves_nothing(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, broker: Any
) -> None:
    sales = keep(postgresql_url, *(message(number) for number in range(5)))
    support = keep(postgresql_url, *(message(number) for number in range(7)), endpoint="support")
    to = f"noop:{v2(rabbitmq_url)}"
    result = run("migrate", "run", "--from", postgresql_url, "--to", to, "--all-endpoints", "--yes", "--json")
    assert result.code == 0, result
    assert {one["endpoint"]: one["would_move"] for one in result.document["endpoints"]} == {"sales": 5, "support": 7}
    assert kept(postgresql_url) == sales
    assert kept(postgresql_url, "support") == support


@pytest.mark.long
def test_a_dry_run_counts_what_the_run_then_rejects(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, broker: Any
) -> None:
    keep(postgresql_url, message(1), message(2), replace(message(3), destination="nowhere"))
    aim = v2(rabbitmq_url)
    ends = ["--from", postgresql_url, "--endpoint", "sales", "--yes", "--allow-rejected", "--json"]
    (dry_run,) = run("migrate", "run", "--to", f"noop:{aim}", *ends).document["endpoints"]
    (moved,) = run("migrate", "run", "--to", aim, *ends).document["endpoints"]
    assert (dry_run["would_move"], dry_run["would_be_rejected"]) == (2, 1)
    assert (moved["counts"]["moved"], moved["counts"]["rejected"]) == (2, 1)


@pytest.mark.long_runs("broker")
@pytest.mark.parametrize("kind", ["broker", "store"])
def test_preview_and_a_dry_run_know_what_the_target_would_refuse(
    run: CommandLine, postgresql_url: str, rabbitmq_url: str, sqlite_url: str, broker: Any, kind: str
) -> None:
    """What AMQP cannot carry unchanged; or what the store has another message of the same id for."""
    moment = datetime(2030, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    keep(postgresql_url, message(1), message(2, headers={"moment": moment}), message(3, headers={"moment": moment}))
    keep(sqlite_url, message(2, body=b"other"), message(3, body=b"other"))
    to = v2(rabbitmq_url) if kind == "broker" else sqlite_url
    ends = ["--from", postgresql_url, "--endpoint", "sales"]
    for target in (to, f"noop:{to}"):
        preview = run("migrate", "preview", *ends, "--to", target, "--json")
        assert preview.code == 1, preview
        (found,) = preview.document["endpoints"]
        assert found["immovable"] == 2
        reasons = {one["text"] for one in found["problems"] if one["blocks"]}
        assert all("header 'moment' (datetime)" in one or "another message with" in one for one in reasons)
    go = ["--yes", "--allow-rejected", "--json"]
    dry = run("migrate", "run", *ends, "--to", f"noop:{to}", *go)
    assert dry.code == 3
    (dry_run,) = dry.document["endpoints"]
    assert (dry_run["would_move"], dry_run["would_be_rejected"]) == (1, 2)
    (moved,) = run("migrate", "run", *ends, "--to", to, *go).document["endpoints"]
    assert moved["rejections"] == dry_run["rejections"]


def test_a_dry_run_without_a_target_says_that_none_was_asked(run: CommandLine, sqlite_url: str) -> None:
    keep(sqlite_url, message(1))
    ends = ["--from", sqlite_url, "--to", "noop:", "--endpoint", "sales"]
    assert "no target is asked" in run("migrate", "preview", *ends).out
    dry_run = run("migrate", "run", *ends, "--yes")
    assert dry_run.code == 0
    assert "no target is asked" in dry_run.err


def test_a_phased_migration_takes_the_far_future_first(run: CommandLine, sqlite_url: str, postgresql_url: str) -> None:
    originals = keep(sqlite_url, *(message(number, HOUR * number) for number in range(1, 11)))
    ends = ["--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales", "--yes"]
    cutoff = (originals[4].due_time).isoformat()
    assert run("migrate", "run", *ends, "--due-after", cutoff).code == 0
    assert kept(sqlite_url) == originals[:4]
    assert kept(postgresql_url) == originals[4:]
    assert run("migrate", "run", *ends).code == 0
    assert kept(postgresql_url) == originals


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize(("answer", "moved"), [("y\n", 3), ("n\n", 0)])
def test_on_a_terminal_it_asks_first(
    run: CommandLine, sqlite_url: str, postgresql_url: str, monkeypatch: pytest.MonkeyPatch, answer: str, moved: int
) -> None:
    keep(sqlite_url, *(message(number) for number in range(3)))
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    result = run("migrate", "run", "--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales")
    assert "Move 3 messages of sales" in result.err
    assert result.code == (0 if moved else 1)
    assert len(kept(postgresql_url)) == moved


def test_abort_and_cleanup_ask_first(
    run: CommandLine, sqlite_url: str, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(sqlite_url, *(message(number) for number in range(3)))
    keep(postgresql_url, message(0, body=b"another"))
    ends = ["--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales"]
    assert run("migrate", "run", *ends, "--yes", "--allow-rejected").code == 3
    for command, question, otherwise in (
        ("abort", "Abort the last run of sales, and give 1 message back to", "nothing was given back"),
        ("cleanup", "Delete the tables of the last run of sales in", "nothing was deleted"),
    ):
        assert "pass --yes" in run.refused("migrate", command, *ends)
        for answer in ("n\n", ""):
            monkeypatch.setattr("sys.stdin", Terminal(answer))
            declined = run("migrate", command, *ends)
            assert declined.code == 1
            assert question in declined.err
            assert declined.err.endswith(f"{otherwise}\n")
        monkeypatch.setattr("sys.stdin", Terminal("y\n"))
        assert run("migrate", command, *ends).code == 0
        monkeypatch.setattr("sys.stdin", io.StringIO())
    assert len(kept(sqlite_url)) == 1
    assert "there is no run" in run.refused("migrate", "abort", *ends, "--yes")


Mistake = Callable[[str, str], list[str]]
MISTAKES: dict[str, tuple[Mistake, str]] = {
    "neither endpoint nor all": (lambda pg, lite: ["run", "--from", pg, "--to", lite, "--yes"], "pass --endpoint"),
    "both": (
        lambda pg, lite: ["run", "--from", pg, "--to", lite, "--yes", "--endpoint", "sales", "--all-endpoints"],
        "not both",
    ),
    "nobody to ask": (
        lambda pg, lite: ["run", "--from", pg, "--to", lite, "--endpoint", "sales"],
        "no terminal confirms",
    ),
    "unknown source": (
        lambda pg, lite: ["preview", "--from", "redis://x", "--to", lite, "--endpoint", "sales"],
        "'redis'; known schemes",
    ),
    "unknown target": (
        lambda pg, lite: ["preview", "--from", pg, "--to", "redis://x", "--endpoint", "sales"],
        "known schemes: mariadb",
    ),
    "no source": (lambda pg, lite: ["preview", "--to", lite, "--endpoint", "sales"], "pass --from"),
    "no target": (lambda pg, lite: ["run", "--from", pg, "--endpoint", "sales", "--yes"], "pass --to"),
    "missing table": (
        lambda pg, lite: ["run", "--from", pg, "--to", lite, "--endpoint", "purchases", "--yes"],
        "purchases",
    ),
    "missing file": (
        lambda pg, lite: ["run", "--from", "sqlite:////nowhere.db", "--to", pg, "--endpoint", "sales", "--yes"],
        "no SQLite file",
    ),
    "a table given twice": (
        lambda pg, lite: ["preview", "--from", f"{lite}?table=a&table=b", "--to", pg, "--endpoint", "sales"],
        "the parameter table is given twice",
    ),
    "the same database, by its parameters": (
        lambda pg, lite: ["run", "--from", f"{lite}?table=a", "--to", lite, "--endpoint", "sales", "--yes"],
        "the same database",
    ),
    "the same database": (
        lambda pg, lite: ["run", "--from", pg, "--to", pg, "--endpoint", "sales", "--yes"],
        "the same database",
    ),
    "broker gone": (
        lambda pg, lite: ["run", "--from", pg, "--to", "amqp://127.0.0.1:9", "--endpoint", "sales", "--yes"],
        "cannot be reached",
    ),
    "unknown cascade": (
        lambda pg, lite: ["run", "--from", pg, "--to", "amqp://h?delays=x", "--endpoint", "sales", "--yes"],
        "no cascade is called 'x'",
    ),
    "cut-off without a zone": (
        lambda pg, lite: [
            *["preview", "--from", pg, "--to", lite, "--endpoint", "sales"],
            *["--due-after", "2030-01-01T00:00:00"],
        ],
        "no time zone",
    ),
    "nothing to abort": (lambda pg, lite: ["abort", "--yes", "--from", pg, "--endpoint", "sales"], "there is no run"),
    "nothing to verify": (
        lambda pg, lite: ["verify", "--from", pg, "--to", lite, "--endpoint", "sales"],
        "there is no run",
    ),
    "wrong login": (
        lambda pg, lite: [
            *["run", "--from", make_url(pg).set(password="wrong").render_as_string(hide_password=False)],
            *["--to", lite, "--endpoint", "sales", "--yes"],
        ],
        "refuses the login",
    ),
}


@pytest.mark.long_runs(after=10)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_in_one_line_and_harms_nothing(
    run: CommandLine, postgresql_url: str, sqlite_url: str, mistake: str
) -> None:
    originals = keep(postgresql_url, message(1))
    keep(sqlite_url)
    make, text_of_it = MISTAKES[mistake]
    line = run.refused("migrate", *make(postgresql_url, sqlite_url))
    assert text_of_it in line
    assert kept(postgresql_url) == originals


def test_without_the_right_to_create_tables_nothing_is_moved(
    run: CommandLine, postgresql: PostgreSQLDatabases, postgresql_url: str, sqlite_url: str
) -> None:
    originals = keep(postgresql_url, message(1))
    reader = postgresql.create_role("reader_of_sales", "only looks", postgresql_url)
    with connected(postgresql_url) as connection:
        connection.execute(text(f'GRANT SELECT ON sales_delayed TO "{make_url(reader).username}"'))
    ends = ["--from", reader, "--to", sqlite_url, "--endpoint", "sales"]
    assert run("migrate", "preview", *ends).code == 1
    assert "grant" in run.refused("migrate", "run", *ends, "--yes")
    assert kept(postgresql_url) == originals


@pytest.mark.long
def test_a_statement_timeout_is_named_where_it_ends_a_run(
    run: CommandLine, postgresql_url: str, sqlite_url: str
) -> None:
    originals = keep(postgresql_url, *(message(number) for number in range(4)))
    engine = create_engine(postgresql_url)
    with engine.begin() as connection:  # each row takes a while to be changed, as a million rows would
        slow = (
            "CREATE FUNCTION slow() RETURNS trigger AS 'BEGIN PERFORM pg_sleep(0.4); RETURN OLD; END' LANGUAGE plpgsql"
        )
        connection.execute(text(slow))
        trigger = "CREATE TRIGGER slow BEFORE UPDATE OR DELETE ON sales_delayed FOR EACH ROW EXECUTE FUNCTION slow()"
        connection.execute(text(trigger))
    impatient = make_url(postgresql_url).update_query_dict({"options": "-c statement_timeout=1000"})
    source = impatient.render_as_string(hide_password=False)
    ends = ["--from", source, "--to", sqlite_url, "--endpoint", "sales"]
    preview = run("migrate", "preview", *ends, "--json")
    assert preview.code == 0, preview
    assert preview.document["endpoints"][0]["count"] == 4
    stopped = run("migrate", "run", *ends, "--yes")
    assert stopped.code == 2
    assert "canceling statement due to statement timeout" in stopped.err
    assert "longer than a limit set there" in stopped.err
    with engine.begin() as connection:
        connection.execute(text("DROP TRIGGER slow ON sales_delayed"))
    engine.dispose()
    assert run("migrate", "run", *ends, "--yes").code == 0
    assert kept(sqlite_url) == originals


def test_an_interrupt_ends_the_question(sqlite_url: str, postgresql_url: str) -> None:
    keep(sqlite_url, message(1))
    person, terminal = os.openpty()
    command = ["migrate", "run", "--from", sqlite_url, "--to", postgresql_url, "--endpoint", "sales"]
    with started(command, {}, stdin=terminal) as process:
        assert process.stderr is not None
        asked = ""
        while "Move 1 message" not in asked:
            asked += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    os.close(person)
    os.close(terminal)
    assert process.returncode == 130
    assert not kept(postgresql_url)
