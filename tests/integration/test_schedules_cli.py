"""Recurring schedules on the command line, on real databases: each command, each mistake, files, questions."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.schedules import Schedule
from delaystore.schedules.documents import schedule_file
from tests.documents import ROOT
from tests.integration.cli import CommandLine, asked
from tests.integration.sql_stores import opened, url_for
from tests.long import long

WEEKLY = ("--cron", "0 9 * * 1", "--zone", "Europe/Berlin", "--to", "billing")
FILE = """
prefix = "invoices/"

[[schedule]]
name = "invoices/acme"
cron = "0 9 1 * *"
zone = "Europe/Berlin"
destination = "billing"
json = { customer = "acme" }

[[schedule]]
name = "invoices/check"
every = "2d"
at = 07:30:00
starts = 2026-11-01T00:00:00Z
destination = "billing"
body = "check"
"""


@pytest.fixture(params=["sqlite", "postgresql", long("mariadb")])
def database_url(request: pytest.FixtureRequest) -> str:
    return url_for(request, request.param)


@pytest.fixture
def store(database_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(database_url) as store:
        yield store


@pytest.fixture
def delivery(store: SqlDelayedMessageStore) -> DelayedDelivery:
    return DelayedDelivery("sales", store)


@pytest.fixture
def environment(database_url: str, delivery: DelayedDelivery) -> dict[str, str]:
    variables = {"STORE": database_url, "ENDPOINT": "sales", "ACTOR": "ada"}
    return {f"DELAYSTORE_{name}": value for name, value in variables.items()}


on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def waiting(delivery: DelayedDelivery) -> list[str]:
    return [each.message_id for each in delivery.list().messages]


def test_a_schedule_is_put_once_and_changed_live(run: CommandLine, delivery: DelayedDelivery) -> None:
    tried = run("schedules", "put", "reports/weekly", *WEEKLY, "--dry-run")
    assert tried.out.startswith("would be created: reports/weekly (0 9 * * 1 Europe/Berlin)\n")
    rows = tried.out.splitlines()[2:]
    assert len(rows) == 5
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d 0[78]:00:00Z +Mon 20\S+ 09:00:00\+0[12]00", row) for row in rows)
    assert delivery.schedules.get("reports/weekly") is None
    options = (*WEEKLY, "--header", "kind=report", "--headers-json", '{"n": 1}', "--property", "priority=3")
    more = ("--json-body", '{"a": 1}', "--max-runs", "9", "--catch-up", "all", "--jitter", "30s", "--max-late", "1h")
    for result in ("created", "unchanged"):
        assert run("schedules", "put", "reports/weekly", *options, *more).out.startswith(f"{result}: reports/weekly ")
    found = delivery.schedules.get("reports/weekly")
    assert found is not None
    expected = Schedule.of(
        "reports/weekly",
        destination="billing",
        json={"a": 1},
        cron="0 9 * * 1",
        zone="Europe/Berlin",
        headers={"kind": "report", "n": 1},
        properties={"priority": 3},
        max_runs=9,
        catch_up="all",
        jitter=30,
        max_late="1h",
    )
    assert found.schedule.as_document() == {**expected.as_document(), "body": '{"a": 1}'}
    changed = run("schedules", "put", "reports/weekly", "go", *WEEKLY, "--if-waiting", "skip", "--json").document
    assert changed["result"] == "changed"
    assert changed["zone"] == "Europe/Berlin"
    assert [datetime.fromisoformat(each) for each in changed["next_times"]] == list(
        delivery.schedules.upcoming("reports/weekly")
    )
    assert [(each.action, each.by) for each in delivery.operations.changes()] == [("put", "ada")] * 2


def test_an_interval_makes_its_runs_at_once(run: CommandLine, delivery: DelayedDelivery) -> None:
    assert run("schedules", "put", "ping", "hello", "--every", "30s", "--to", "probes").code == 0
    runs = waiting(delivery)
    assert runs
    assert all(each.startswith("schedule/ping/") for each in runs)
    body = run("schedules", "put", "ping", "--every", "30s", "--to", "probes", "--body-file", "-").code
    assert body in (0, 2)  # standard input may be closed


def test_schedules_are_listed_and_shown(run: CommandLine, delivery: DelayedDelivery) -> None:
    for name in ("a/1", "a/2", "b/1"):
        assert run("schedules", "put", name, *WEEKLY).code == 0
    assert run("schedules", "pause", "a/2").out == "paused: a/2\n"
    _, *rows = run("schedules", "list", "a/").out.splitlines()
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [("a/1", "active"), ("a/2", "paused")]
    first = run("schedules", "list", "--limit", "2")
    assert first.err == "more follow; the next page: --after a/2\n"
    rest = run("schedules", "list", "--after", "a/2", "--json").document
    assert [each["name"] for each in rest["schedules"]] == ["b/1"]
    assert rest["next"] is None
    shown = run("schedules", "show", "a/2").out
    assert "\nrule         0 9 * * 1 Europe/Berlin\nstate        paused\n" in shown
    assert " by ada (version 1)\n" in shown
    state = delivery.schedules.get("a/1")
    assert state is not None
    assert run("schedules", "show", "a/1", "--json").document == json.loads(json.dumps(state.as_dict()))


def test_upcoming_times_are_in_utc_and_in_the_zone(run: CommandLine, delivery: DelayedDelivery) -> None:
    assert run("schedules", "put", "a", "--cron", "30 9 * * *", "--zone", "Asia/Kolkata", "--to", "billing").code == 0
    heading, *rows = run("schedules", "upcoming", "a", "--count", "3").out.splitlines()
    assert heading.split() == ["next", "Asia/Kolkata"]
    assert [row.split()[1:] for row in rows] == [
        ["04:00:00Z", f"{each:%a}", f"{each:%Y-%m-%d}", "09:30:00+0530"] for each in delivery.schedules.upcoming("a", 3)
    ]
    first, second = run("schedules", "upcoming", "a", "--count", "2", "--json").document["next_times"]
    for _ in range(2):
        assert run("schedules", "skip", "a", "--at", first).out.startswith("skipped: a at ")
    assert run("schedules", "upcoming", "a", "--count", "1", "--json").document["next_times"] == [second]
    assert run("schedules", "pause", "a").code == 0
    assert run("schedules", "upcoming", "a").err.startswith("the schedule is paused; ")
    assert run("schedules", "put", "a", "--cron", "30 9 * * *", "--to", "billing").err.startswith(
        "the schedule is paused"
    )


def test_pause_and_resume_say_if_there_was_nothing_to_do(run: CommandLine, delivery: DelayedDelivery) -> None:
    assert run("schedules", "put", "a", "--every", "30s", "--to", "billing").code == 0
    assert waiting(delivery)
    assert run("schedules", "pause", "a").code == 0
    assert waiting(delivery) == []
    again = run("schedules", "pause", "a")
    assert (again.code, again.err) == (1, "paused already: a\n")
    assert run("schedules", "resume", "a").out == "resumed: a\n"
    assert waiting(delivery)
    again = run("schedules", "resume", "a", "--json")
    assert (again.code, again.document) == (1, {"name": "a", "result": "not paused"})


def test_a_run_is_made_now_and_past_ones_again(run: CommandLine, delivery: DelayedDelivery) -> None:
    assert (
        run("schedules", "put", "a", "--cron", "@daily", "--to", "billing", "--starts", "2020-01-01T00:00Z").code == 0
    )
    triggered = run("schedules", "trigger", "a").out.strip()
    assert waiting(delivery) == [triggered]
    span = ("--since", "2026-01-01T00:00Z", "--until", "2026-01-03T00:00Z")
    assert run("schedules", "backfill", "a", *span).out == "backfilled: a (3 runs)\n"
    assert run("schedules", "backfill", "a", *span, "--json").document == {"name": "a", "made": 0}
    assert "schedule/a/2026-01-02T00:00:00Z" in waiting(delivery)
    assert run("schedules", "delete", "a").out == "deleted: a\n"
    assert run("schedules", "delete", "a").code == 1


def write(folder: Path, text: str, name: str = "schedules.toml") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def test_a_file_is_applied_twice_changed_and_emptied(
    run: CommandLine, delivery: DelayedDelivery, tmp_path: Path
) -> None:
    for name in ("invoices/old", "other"):
        assert run("schedules", "put", name, *WEEKLY).code == 0
    file = write(tmp_path, FILE)
    diff = "+ invoices/acme\n+ invoices/check\n- invoices/old\n= 0 unchanged\n"
    tried = run("schedules", "apply", file, "--dry-run")
    assert (tried.out, tried.err) == (diff, "nothing is changed\n")
    assert delivery.schedules.get("invoices/old") is not None
    assert run("schedules", "apply", file).out == diff
    assert run("schedules", "apply", file).out == "= 2 unchanged\n"
    write(tmp_path, FILE.replace("0 9 1", "0 8 1"))
    changes = {"created": [], "changed": ["invoices/acme"], "deleted": [], "unchanged": 1}
    applied = run("schedules", "apply", file, "--json").document
    assert applied == {"prefix": "invoices/", "dry_run": False, **changes}
    write(tmp_path, 'prefix = "invoices/"\nschedule = []')
    assert run("schedules", "apply", file, "--yes").out == "- invoices/acme\n- invoices/check\n= 0 unchanged\n"
    assert [each.name for each in delivery.schedules.list()] == ["other"]


@on_sqlite
def test_json_says_the_same_as_toml(run: CommandLine, delivery: DelayedDelivery, tmp_path: Path) -> None:
    assert run("schedules", "apply", write(tmp_path, FILE)).code == 0
    documents = [each.schedule.as_document() for each in delivery.schedules.list()]
    as_json = write(tmp_path, json.dumps({"schedules": documents}), "schedules.JSON")
    assert run("schedules", "apply", as_json, "--prefix", "invoices/").out == "= 2 unchanged\n"


def test_the_file_of_the_document_can_be_read(tmp_path: Path) -> None:
    text = (ROOT / "docs/reference/configuration.md").read_text()
    (written,) = re.findall(r"^ +```toml\n( +prefix = .*?) +```$", text, re.DOTALL | re.MULTILINE)
    found = schedule_file(Path(write(tmp_path, dedent(written))))
    assert [each.name for each in found.schedules] == ["invoices/acme", "invoices/check"]


@on_sqlite
@pytest.mark.parametrize(
    ("answer", "code", "left", "says"),
    [(b"n\n", 1, 1, "nothing is"), (b"y\n", 0, 0, ""), (b"\x04", 1, 1, "nothing is"), (None, 130, 1, "stopped")],
    ids=["no", "yes", "end of input", "Ctrl-C"],
)
@pytest.mark.parametrize("command", ["delete", "apply"])
def test_a_terminal_is_asked_before_anything_is_deleted(
    run: CommandLine,
    delivery: DelayedDelivery,
    tmp_path: Path,
    command: str,
    answer: bytes | None,
    code: int,
    left: int,
    says: str,
) -> None:
    delivery.schedules.put("invoices/old", cron="@daily", destination="billing", body=b"")
    what = "invoices/old" if command == "delete" else write(tmp_path, 'prefix = "invoices/"\nschedule = []')
    exit_code, shown = asked(["schedules", command, what], run.environment, "[y/N]", answer)
    assert exit_code == code, shown
    question = {
        "delete": "Delete the schedule 'invoices/old' and its waiting runs?",
        "apply": "Delete 1 schedule, with all waiting runs: invoices/old?",
    }
    assert question[command] in shown
    assert says in shown
    assert len(delivery.schedules.list()) == left


@on_sqlite
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("show", []),
        ("upcoming", []),
        ("pause", []),
        ("resume", []),
        ("skip", ["--at", "2040-01-01T00:00Z"]),
        ("trigger", []),
        ("backfill", ["--since", "2026-01-01T00:00Z", "--until", "2026-01-02T00:00Z"]),
        ("delete", []),
    ],
)
@pytest.mark.usefixtures("delivery")
def test_an_unknown_name_is_not_found(run: CommandLine, command: str, arguments: list[str]) -> None:
    missed = run("schedules", command, "nope", *arguments)
    assert (missed.code, missed.out) == (1, "")
    assert missed.err == "not found: there is no schedule 'nope'; `delaystore schedules list` shows them\n"


PUT = ["put", "x", "--to", "billing"]


@on_sqlite
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "missing argument NAME"),
        (["put", "x", "--every", "5m"], "missing option --to; see `delaystore schedules put --help`"),
        (["put", "x", "--every", "5m", "--to", ""], "the schedule 'x' is invalid: destination is empty"),
        (PUT, "a schedule has either cron or every; give exactly one of them"),
        ([*PUT, "--cron", "@daily", "--every", "5m"], "give exactly one of them"),
        ([*PUT, "--cron", "0 9 * * 8"], "cron '0 9 * * 8' has the wrong day-of-week '8'"),
        ([*PUT, "--cron", "0 0 30 2 *"], "the schedule 'x' is invalid: cron '0 0 30 2 *'"),
        ([*PUT, "--cron", "@daily", "--zone", "Mars"], "the time zone 'Mars' is unknown; write it as in Europe/Berlin"),
        ([*PUT, "--every", "5m", "--at", "09:00"], "every is 5 minutes, and at needs whole days"),
        ([*PUT, "--every", "1d", "--at", "9 o'clock"], "at"),
        ([*PUT, "--every", "soon"], "every 'soon' is no duration"),
        ([*PUT, "--every", "0"], "every"),
        ([*PUT, "--every", "1d", "--starts", "2027-01-01"], "--starts '2027-01-01' has no time zone"),
        ([*PUT, "--every", "1d", "--ends", "soon"], "--ends 'soon' is not a time"),
        ([*PUT, "--every", "1d", "--max-runs", "0"], "invalid value for --max-runs: the least value is 1"),
        ([*PUT, "--every", "1d", "--catch-up", "some"], "--catch-up: 'some' is not one of 'last', 'none', 'all'"),
        ([*PUT, "--every", "1d", "--if-waiting", "no"], "--if-waiting: 'no' is not one of 'allow', 'skip'"),
        ([*PUT, "--every", "1d", "--jitter", "-1s"], "jitter '-1s' is negative"),
        ([*PUT, "--every", "1d", "--max-late", "soon"], "max_late 'soon' is no duration"),
        ([*PUT, "--every", "1d", "--header", "x"], "--header 'x' is not of the form KEY=VALUE"),
        ([*PUT, "--every", "1d", "--property", "colour=red"], "unknown property 'colour'"),
        ([*PUT, "--every", "1d", "--json-body", "{"], "--json-body is no JSON"),
        ([*PUT, "b", "--every", "1d", "--body-file", "f"], "the body is given twice"),
        (["put", "", "--every", "1d", "--to", "billing"], "a schedule's name must be a text"),
        (["put", "a\nb", "--every", "1d", "--to", "billing"], "contains a line break"),
        (["put", "x" * 201, "--every", "1d", "--to", "billing"], "has 201 bytes; 200 are allowed"),
        (["put", "\udcff", "--every", "1d", "--to", "billing"], "schedule's name '\\udcff'"),
        (["show", ""], "a schedule's name must be a text"),
        (["upcoming", "x", "--count", "0"], "--count: the least value is 1"),
        (["skip", "x"], "missing option --at"),
        (["skip", "x", "--at", "2027-01-01"], "--at '2027-01-01' has no time zone"),
        (["skip", "known", "--at", "2036-01-01T00:00:01Z"], "no future occurrence at 2036-01-01 00:00:01Z; the next"),
        (["skip", "known", "--at", "2020-01-01T00:00:00Z"], "no future occurrence at 2020-01-01 00:00:00Z; the next"),
        (["backfill", "x", "--since", "2026-01-01T00:00Z"], "missing option --until"),
        (["backfill", "x", "--since", "2026-01-02T00:00Z", "--until", "2026-01-01T00:00Z"], "must not be before since"),
        (["backfill", "known", "--since", "2026-01-01T00:00Z", "--until", "2099-01-01T00:00Z"], "is in the future"),
        (["apply"], "missing argument FILE"),
        (["apply", "nope.toml"], "nope.toml cannot be read: No such file"),
        (["apply", "nope.json"], "nope.json cannot be read: No such file"),
        (["apply", "."], "cannot be read: Is a directory"),
    ],
)
def test_a_mistake_is_one_line(run: CommandLine, delivery: DelayedDelivery, arguments: list[str], says: str) -> None:
    delivery.schedules.put("known", cron="@daily", destination="billing", body=b"")
    assert says in run.refused("schedules", *(arguments or ["put"]))
    assert [each.name for each in delivery.schedules.list()] == ["known"]


@on_sqlite
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "schedules.toml must have a table [[schedule]] for each schedule"),
        ("prefix = ", "schedules.toml is no TOML: Invalid value (at end of document)"),
        ("schedule = []", "schedules.toml: prefix is missing; write the beginning of all names"),
        ("schedule = []\nprefix = ''", "schedules.toml: prefix is no text, or empty"),
        ("schedule = []\nprefix = 7", "schedules.toml: prefix is no text, or empty"),
        ("schedule = 3\nprefix = 'a'", "must have a table [[schedule]]"),
        ("[schedule]\nname = 'a'", "must have a table [[schedule]]"),
        (f"schedules = 3\n{FILE}", "schedules.toml: 'schedules' is unknown; known are prefix and schedule"),
        (f"{FILE}{FILE.partition('[[')[2].join(['[[', ''])}", "schedule 'invoices/acme' occurs twice"),
        (FILE.replace("invoices/acme", "acme"), "'acme' does not begin with the prefix 'invoices/'"),
        (FILE.replace("0 9 1 * *", "0 9 1 *"), "schedules.toml: the schedule 'invoices/acme' is invalid: cron"),
        (FILE.replace("Europe/Berlin", "Mars"), "the time zone 'Mars' is unknown"),
        (FILE.replace("cron", "corn"), "'corn' is not one of "),
        (FILE.replace('name = "invoices/acme"', ""), "a schedule's name must be a text"),
        (FILE.replace('"invoices/acme"', "7"), "a schedule's name must be a text"),
        (FILE.replace("2026-11-01T00:00:00Z", "2026-11-01"), "starts"),
        (FILE.replace("2026-11-01T00:00:00Z", "2026-11-01T00:00:00"), "starts"),
        (FILE.replace('"acme" }', "2026-11-01T00:00:00Z }"), "the schedule 'invoices/acme' is invalid: "),
        (FILE.replace('"2d"', "[2]"), "the schedule 'invoices/check' is invalid: "),
        (FILE.replace("07:30:00", "true"), "the schedule 'invoices/check' is invalid: "),
        (FILE.replace('body = "check"', "headers = 3\nbody = 'x'"), "the schedule 'invoices/check' is invalid: "),
        (FILE.replace('body = "check"', "properties = [1]\nbody = 'x'"), "the schedule 'invoices/check' is invalid: "),
        (FILE.replace('body = "check"', "both_days = 'no'\nbody = 'x'"), "the schedule 'invoices/check' is invalid: "),
        (FILE.replace('body = "check"', "max_late = [1]\nbody = 'x'"), "the schedule 'invoices/check' is invalid: "),
        (FILE.replace('body = "check"', "jitter = true\nbody = 'x'"), "the schedule 'invoices/check' is invalid: "),
    ],
)
def test_a_mistake_in_a_file_is_one_line_and_changes_nothing(
    run: CommandLine, delivery: DelayedDelivery, tmp_path: Path, text: str, says: str
) -> None:
    assert says in run.refused("schedules", "apply", write(tmp_path, text))
    assert delivery.schedules.list() == []


@on_sqlite
@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "schedules.json is no JSON"),
        ("[]", "schedules.json must have an object"),
        ('{"prefix": "a", "prefix": "b", "schedules": []}', "schedules.json"),
        ('{"prefix": "a"}', 'must have an array "schedules" of objects'),
        ('{"prefix": "a", "schedules": [1]}', 'must have an array "schedules" of objects'),
        ('{"prefix": "a", "schedule": []}', "'schedule' is unknown; known are prefix and schedules"),
    ],
)
def test_a_mistake_in_a_json_file_is_one_line(
    run: CommandLine, delivery: DelayedDelivery, tmp_path: Path, document: Any, says: str
) -> None:
    assert says in run.refused("schedules", "apply", write(tmp_path, document, "schedules.json"))
    assert delivery.schedules.list() == []


@on_sqlite
def test_schedules_that_the_transport_cannot_carry_are_refused(run: CommandLine, delivery: DelayedDelivery) -> None:
    url = ("--transport", "amqp://127.0.0.1:1")
    refused = run.refused("schedules", "put", "x", "--every", "1d", "--to", "/exchanges/", *url)
    assert refused.startswith("error: the schedule 'x' is invalid: ")
    assert delivery.schedules.list() == []


@on_sqlite
def test_an_ended_schedule_says_so(run: CommandLine, delivery: DelayedDelivery) -> None:
    until = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    put = run("schedules", "put", "x", "--cron", "0 0 1 1 *", "--to", "billing", "--ends", until)
    assert (put.code, put.err) == (0, "it has no future run\n")
    assert run("schedules", "list").out.split()[-1] == "ended"
    assert waiting(delivery) == []
