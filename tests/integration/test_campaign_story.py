"""A campaign from a messy file to its last number, at the command line; in the long test, with kills in the middle.

docs/tutorials/campaign.md tells the same. Every number is computed here from the rows of the file.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delaystore.transports import Transport, open_transport
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine, started

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kathmandu", "Europe/Lisbon")
CUSTOMERS = ("acme", "bolt", "coral", "delta")
COLUMNS = ("--zone-column", "zone", "--unknown-columns", "headers")
TIMES = ("--spread", "4h", "--window", "mon-fri 09:00-18:00")
TUESDAY_ENDS = "2030-03-06T00:00Z"
BERLIN_S_THURSDAY = ("--due-after", "2030-03-07T00:00+01:00", "--due-before", "2030-03-08T00:00+01:00")
A_WEEK_LATER = ("--due-after", "2030-03-14T00:00+01:00", "--due-before", "2030-03-15T00:00+01:00")


@dataclass(frozen=True)
class Row:
    """A reminder of the file: due at nine o'clock of a weekday in its zone."""

    number: int

    @property
    def message_id(self) -> str:
        return f"reminder-{self.number:05d}"

    @property
    def is_wrong(self) -> bool:
        """Its time or its zone cannot be read."""
        return self.number % 500 in (17, 33)

    @property
    def is_twice(self) -> bool:
        return self.number % 500 == 40

    @property
    def customer(self) -> str:
        return CUSTOMERS[self.number % 4]

    @property
    def weekday(self) -> int:
        return self.number % 5

    @property
    def queue(self) -> str:
        """Its destination; the queue `vip` does not exist at first."""
        return "vip" if self.number % 20 == 1 else ""

    def line(self) -> str:
        due = "soon" if self.number % 500 == 17 else f"2030-03-0{4 + self.weekday}T09:00"
        zone = "Mars/Base" if self.number % 500 == 33 else ZONES[self.number // 5 % 5]
        return f"{self.message_id};{due};{zone};{self.customer};{self.queue};Grüße! Nr. {self.number}"


class Campaign:
    """The story's steps. `rows`: all of the file; `spring`: those that the first load stores."""

    def __init__(self, run: CommandLine, folder: Path, transport: Transport, count: int) -> None:
        self.run = run
        self.transport = transport
        self.file = folder / "reminders.csv"
        self.rejects = folder / "rejects"
        self.rows = [Row(number) for number in range(count)]
        self.wrong = [row for row in self.rows if row.is_wrong]
        self.spring = [row for row in self.rows if not row.is_wrong]
        self.kept = [row for row in self.spring if row.customer != "acme"]
        self.due = [row for row in self.kept if row.weekday < 2]
        lines = [line for row in self.rows for line in [row.line()] * (2 if row.is_twice else 1)]
        text = "\n".join(["message_id;due_time;zone;customer;destination;body", *lines, ""])
        self.file.write_text(text, encoding="utf-8-sig", newline="\r\n")

    def load_command(self, *more: str) -> list[str]:
        return ["send", "reminders", "--file", str(self.file), *COLUMNS, *TIMES, *more]

    def load_spring_command(self) -> list[str]:
        return self.load_command("--load-id", "spring", "--rejects-dir", str(self.rejects))

    def document(self, *command: str) -> Any:
        result = self.run(*command, "--json")
        assert result.code == 0, result
        return result.document

    def load(self, load_id: str = "spring") -> Any:
        return self.document("loads", "show", load_id)

    def count(self, *filters: str) -> int:
        counted: int = self.document("count", "--load", "spring", *filters)["count"]
        return counted

    def received(self, queue: str) -> list[str]:
        """Take all messages from the queue; the ids."""
        return [each["message_id"] for each in self.document("receive", queue, "--limit", "100000")["messages"]]

    def look(self) -> None:
        """Preview the file: as it is, more is due in one minute than the limit allows; spread, it is not."""
        minute = len(self.rows) // 25  # five days in five zones
        self.document("limit", "reminders", "--max-rate", f"{minute // 2}/m")
        crowded = self.document("send", "reminders", "--file", str(self.file), *COLUMNS, "--preview")
        assert crowded["rejected"] == len(self.wrong)
        assert sum(each["rows"] for each in crowded["preview"]["minutes"]) == len(self.spring) + self.twice
        exceeded = {each["destination"]: each["first_exceeded"] for each in crowded["preview"]["destinations"]}
        assert exceeded["reminders"]["start"] == "2030-03-04T00:00:00+00:00"  # nine o'clock in Tokyo
        spread = self.document(*self.load_command("--preview"))
        assert [each["first_exceeded"] for each in spread["preview"]["destinations"]] == [None, None]
        tried = self.run(*self.load_command("--dry-run", "--json"))
        dry = tried.document
        assert (tried.code, dry["rejected"], dry["duplicates"]["in_the_files"]) == (1, len(self.wrong), self.twice)
        assert self.document("loads", "list")["loads"] == []

    @property
    def twice(self) -> int:
        return sum(row.is_twice for row in self.rows)

    def load_and_correct(self) -> None:
        """Load the file, which any kill before has left unstored; correct the rejected rows and load these."""
        loaded = self.document(*self.load_spring_command())
        assert (loaded["stored"], loaded["rejected"]) == (len(self.spring), len(self.wrong) + self.twice)
        again = self.run(*self.load_spring_command())
        assert again.out.startswith("nothing to do: the load 'spring' was finished at"), again
        lines = [line for path in self.rejects.rglob("spring-*.jsonl") for line in path.read_text().splitlines()]
        corrected = [json.loads(line) for line in lines if "is twice" not in line]
        assert sorted(row["message_id"] for row in corrected) == [row.message_id for row in self.wrong]
        self.file = self.file.with_name("corrected.jsonl")
        right = {"due_time": "2030-03-08T09:00", "zone": "Europe/Berlin"}
        self.file.write_text("".join(json.dumps({**row, **right}) + "\n" for row in corrected))
        assert self.document(*self.load_command("--load-id", "corrected"))["stored"] == len(self.wrong)
        stored = {each["load_id"]: each["stored"] for each in self.document("loads", "list")["loads"]}
        assert stored == {"spring": len(self.spring), "corrected": len(self.wrong)}

    def change(self) -> None:
        """Cancel one customer's messages, and put Thursday off by a week."""
        cancelled = self.document("cancel", "--load", "spring", "--header", "customer=acme", "--yes")
        assert cancelled["changed"] == len(self.spring) - len(self.kept)
        assert self.count() == len(self.kept)
        assert self.count("--header", "customer=acme") == 0
        thursday = sum(row.weekday == 3 for row in self.kept)
        assert (self.count(*BERLIN_S_THURSDAY), self.count(*A_WEEK_LATER)) == (thursday, 0)
        by = ("--by", "7d", "--time-zone", "Europe/Berlin", "--yes")
        assert self.document("reschedule", "--load", "spring", *BERLIN_S_THURSDAY, *by)["changed"] == thursday
        assert (self.count(*BERLIN_S_THURSDAY), self.count(*A_WEEK_LATER)) == (0, thursday)

    def pause(self, dispatch: Callable[[], None]) -> None:
        """Pause the load; its messages become due meanwhile and are parked, and the other load is delivered."""
        self.document("limit", "reminders", "--max-rate", "none")
        self.document("loads", "pause", "spring", "--for", "2d")
        due = self.document("reschedule", "--load", "spring", "--due-before", TUESDAY_ENDS, "--delay", "0", "--yes")
        assert due["changed"] == len(self.due)
        self.document("reschedule", "--load", "corrected", "--delay", "0", "--yes")
        dispatch()
        wait_until(lambda: self.load("corrected")["state"] == "done")
        wait_until(lambda: self.count("--paused") == len(self.due))
        paused = self.load()
        assert (paused["paused"], paused["delivered"], paused["failed"]) == (True, 0, 0)
        wait_until(lambda: self.transport.depth("reminders") == len(self.wrong))
        assert sorted(self.received("reminders")) == [row.message_id for row in self.wrong]

    def resume(self) -> None:
        """Resume the load. A dispatcher that runs shows some of the parked messages itself."""
        resumed = self.document("loads", "resume", "spring")
        assert resumed["was_paused"]
        assert 0 < resumed["shown"] <= len(self.due)
        assert not self.load()["paused"]

    def repair(self, *, may_repeat: bool) -> None:
        """All that was due has arrived, or is in the error queue, from which it is replayed."""
        vips = [row.message_id for row in self.due if row.queue == "vip"]
        others = [row.message_id for row in self.due if row.queue != "vip"]
        groups = self.document("errors", "list")["groups"]
        assert [(each["destination"], each["kind"]) for each in groups] == [("vip", "Unroutable")]
        assert self.run("setup", "--queue", "vip").code == 0
        replayed = self.document("errors", "replay", "--destination", "vip")
        assert replayed["done"] == groups[0]["count"]
        for queue, wanted in (("reminders", others), ("vip", vips)):
            found = self.received(queue)
            assert sorted(set(found)) == wanted
            assert may_repeat or len(found) == len(wanted)

    def end(self) -> None:
        """Cancel the rest: the numbers add up, and the same load id is refused."""
        failed = sum(row.queue == "vip" for row in self.due)
        delivered = len(self.due) - failed
        result = self.run("loads", "cancel", "spring", "--yes")
        assert f"cancelled: {len(self.kept) - len(self.due):,} messages (load spring)" in result.out
        not_reached = f"{delivered:,} messages delivered, {failed:,} messages moved to the error queue"
        assert result.err.splitlines()[-1] == f"not reached: {not_reached}"
        load = self.load()
        numbers = {name: load[name] for name in ("stored", "waiting", "delivered", "cancelled", "failed", "replaced")}
        assert numbers == {
            "stored": len(self.spring),
            "waiting": 0,
            "delivered": delivered,
            "cancelled": len(self.spring) - len(self.due),
            "failed": failed,
            "replaced": 0,
        }
        assert self.document("count")["count"] == 0
        refused = self.run(*self.load_command("--load-id", "spring"))
        assert (refused.code, refused.err.splitlines()[-1].partition(" at ")[0]) == (
            2,
            "error: the load 'spring' was cancelled by ada",
        )


@contextmanager
def campaign(run: CommandLine, folder: Path, count: int) -> Iterator[Campaign]:
    with closing(open_transport(run.environment["DELAYSTORE_TRANSPORT"])) as transport:
        assert run("setup", "--queue", "reminders").code == 0
        yield Campaign(run, folder, transport, count)


def named(url: str, broker: str) -> dict[str, str]:
    return {
        "DELAYSTORE_STORE": url,
        "DELAYSTORE_TRANSPORT": broker,
        "DELAYSTORE_ENDPOINT": "sales",
        "DELAYSTORE_ACTOR": "ada",
    }


class TestOnOneFile:
    """A short version on SQLite with SQL queues."""

    @pytest.fixture
    def environment(self, prepared_sqlite_url: str) -> dict[str, str]:
        return named(prepared_sqlite_url, prepared_sqlite_url)

    def test_the_campaign_is_run(self, run: CommandLine, tmp_path: Path) -> None:
        def dispatch() -> None:
            assert run("dispatch", "--once").code == 0

        with campaign(run, tmp_path, 2_000) as spring:
            spring.look()
            spring.load_and_correct()
            spring.change()
            spring.pause(dispatch)
            spring.resume()
            dispatch()
            spring.repair(may_repeat=False)
            spring.end()


@pytest.mark.long
class TestOnServers:
    """The whole of it on PostgreSQL and RabbitMQ; the load and a dispatcher are killed."""

    @pytest.fixture
    def environment(self, prepared_postgresql_url: str, rabbitmq_url: str) -> dict[str, str]:
        return named(prepared_postgresql_url, rabbitmq_url)

    def test_the_campaign_is_run_though_programs_are_killed(self, run: CommandLine, tmp_path: Path) -> None:
        dispatchers: list[subprocess.Popen[str]] = []

        def dispatch() -> None:
            dispatchers.append(started(["dispatch"], run.environment))

        try:
            with campaign(run, tmp_path, 50_000) as spring:
                spring.look()
                kill_the_load(spring)
                spring.load_and_correct()
                spring.change()
                spring.pause(dispatch)
                spring.document("limit", "reminders", "--max-rate", "2000/s")
                spring.resume()
                wait_until(lambda: (spring.transport.depth("reminders") or 0) > len(spring.due) // 4)
                dispatchers[0].kill()
                assert 0 < spring.load()["delivered"] < len(spring.due)
                dispatch()
                wait_until(lambda: spring.load()["waiting"] == len(spring.kept) - len(spring.due))
                spring.repair(may_repeat=True)
                spring.end()
        finally:
            for each in dispatchers:
                each.kill()
                each.communicate()


def kill_the_load(spring: Campaign) -> None:
    """SIGKILL it while it stages its rows: no message of it is stored."""
    process = started([*spring.load_spring_command(), "--max-rows-per-second", "10000"], spring.run.environment)
    wait_until(lambda: [each["state"] for each in spring.document("loads", "list")["loads"]] == ["staging"])
    process.kill()
    process.communicate()
    assert spring.document("count")["count"] == 0
