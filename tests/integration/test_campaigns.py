"""Loads that spread due times, keep to windows, are previewed first, and write at a limited rate; without Spark."""

import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from PIL import Image
from sqlalchemy import event
from sqlalchemy.engine import Engine

from delaystore.delivery import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.cli import CommandLine, command_line
from tests.integration.sql_stores import url_for
from tests.long import long

AT = datetime(2030, 1, 7, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo")
SEND = ("send", "q", "--file", "a.csv", "--zone-column", "zone")


@pytest.fixture(params=["sqlite", long("postgresql"), long("mariadb")])
def url(request: pytest.FixtureRequest) -> str:
    return url_for(request, request.param)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path) -> CommandLine:
    environment = {"DELAYSTORE_STORE": url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_SEND_CREATE": "1"}
    monkeypatch.chdir(tmp_path)
    return command_line(capsys, monkeypatch, environment)


def write(count: int, zone: str | None = None) -> None:
    lines = (f"{n},{AT.isoformat()},{ZONES[n % 3] if zone is None else zone},x\n" for n in range(count))
    Path("a.csv").write_text("message_id,due_time,zone,body\n" + "".join(lines))


def due_times(url: str) -> dict[str, datetime]:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url))) as delivery:
        return {message.message_id: message.due_time for message in delivery.list(limit=1000).messages}


def test_a_load_is_spread_the_same_at_every_run(run: CommandLine, url: str) -> None:
    write(300)
    options = ("--spread", "4h", "--ramp", "1h", "--window", "mon-fri 09:00-18:00")
    assert run(*SEND, *options).code == 0
    first = due_times(url)
    assert run("cancel", "--all", "--yes").code == 0
    assert run(*SEND, *options).code == 0
    assert due_times(url) == first
    assert len(set(first.values())) > 295
    berlin, new_york, tokyo = (
        sorted(at for number, at in first.items() if int(number) % 3 == zone) for zone in range(3)
    )
    assert AT <= berlin[0] < berlin[-1] < AT + 4 * HOUR
    opening = AT.replace(hour=14)  # in New York; messages wait there for nine o'clock
    assert opening <= new_york[0] < new_york[-1] < opening + 4 * HOUR
    assert AT <= tokyo[0] < AT + HOUR  # where it closes an hour later
    assert sum(at < AT + HOUR for at in tokyo) < 30
    assert all(at < AT + HOUR or AT + 16 * HOUR <= at < AT + 20 * HOUR for at in tokyo)


def test_a_preview_shows_waiting_messages_and_limits_and_writes_nothing(run: CommandLine, url: str) -> None:
    write(6)
    empty = run(*SEND, "--preview")
    assert "a preview: 6 messages, without a search for duplicates; nothing was written" in empty.out
    assert "2030-01-07 08:00Z     6        0  ████████████████████████████████████████" in empty.out
    assert run("setup").code == 0
    assert "not counted" not in run(*SEND, "--preview").err
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url))) as delivery:
        delivery.operations.limit_rate("q", 5 / 60)
    for number in range(5):
        sent = run("send", "q", "x", "--at", AT.isoformat(), "--message-id", str(number))
        assert sent.code == 0
    shown = run(*SEND, "--preview")
    assert "2030-01-07 08:00Z     6        5  " in shown.out
    first = "the first minute that exceeds that is 2030-01-07 08:00Z, with 6 rows and 5 waiting messages"
    assert f"q is limited to 5/m; {first}" in shown.out
    document = run(*SEND, "--preview", "--json").document
    assert (document["would_store"], document["duplicates"]) == (6, None)
    minute = {"start": AT.isoformat(), "rows": 6, "waiting": 5}
    assert document["preview"]["minutes"] == [minute]
    (queue,) = document["preview"]["destinations"]
    assert (queue["destination"], queue["minutes"], queue["first_exceeded"]) == ("q", [minute], minute)
    tried = run(*SEND, "--dry-run", "--json").document
    assert tried["duplicates"]["waiting"] == 5
    assert tried["preview"] == document["preview"]
    spread = run(*SEND, "--spread", "20h", "--preview")
    assert "q is limited to 5/m; no minute exceeds that" in spread.out
    assert len(due_times(url)) == 5


def test_rows_that_would_be_rejected_are_in_the_preview_as_well(run: CommandLine) -> None:
    write(2)
    Path("a.csv").write_text(f"{Path('a.csv').read_text()}bad,{AT.isoformat()},Mars/Olympus,x\n")
    options = ("--window", "00:00-24:00")
    shown = run(*SEND, *options, "--preview")
    assert "a preview: 2 messages" in shown.out
    assert "1 row would be rejected:\n  1 x time zone is unknown; write it as in Europe/Berlin or UTC" in shown.out
    Path("a.csv").write_text("message_id,due_time,zone,body\nfar,9999-12-29T00:00:00Z,UTC,x\n")
    shown = run(*SEND, "--spread", "36500d", "--preview")
    assert "1 x due_time is out of range" in shown.out
    assert "due  " not in shown.out


def test_many_minutes_are_shown_in_longer_bars_and_drawn(run: CommandLine) -> None:
    write(900)
    shown = run(*SEND, "--spread", "10h", "--preview", "--plot", "a.png")
    assert "each line is 15m, in UTC" in shown.out
    assert sum("█" in line for line in shown.out.splitlines()) == 40
    minutes = run(*SEND, "--spread", "10h", "--preview", "--json").document["preview"]["minutes"]
    assert len(minutes) > 400
    assert sum(minute["rows"] for minute in minutes) == 900
    with Image.open("a.png") as picture:
        assert picture.format == "PNG"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--window", "20:00"], "--window '20:00' is no window; write 08:00-20:00, 22:00-06:00"),
        (["--window", "25:00-26:00"], "--window '25:00-26:00' is no window"),
        (["--window", "08:00-08:00"], "--window '08:00-08:00' opens and closes at the same time"),
        (["--window", "08:00-20:00", "--zone-column", "none"], "the zone column none is not there"),
        (["--window", "08:00-20:00", "--time-zone", "Mars/Olympus"], "the time zone 'Mars/Olympus' is unknown"),
        (["--ramp", "1h"], "--ramp is a part of --spread; set --spread to the same time or a longer one"),
        (["--ramp", "2h", "--spread", "1h"], "--ramp is a part of --spread"),
        (["--spread", "0"], "--spread must be above 0"),
        (["--spread=-1h"], "--spread '-1h' is negative"),
        (["--spread", "4 parsecs"], "--spread '4 parsecs' is no duration"),
        (["--spread", ""], "--spread is empty; give it a value, or leave it out"),
        (["--max-rows-per-second", "0"], "--max-rows-per-second must be a whole number from 1"),
        (["--plot", "a.png"], "--plot draws a load that is only tried; add --dry-run or --preview"),
        (["--plot", "none/a.png", "--preview"], "--plot 'none/a.png' cannot be written: its folder does not exist"),
        (["--plot", "rows.csv", "--preview"], "--plot 'rows.csv' does not end with .png; name a PNG file"),
        (["--plot", ".", "--dry-run"], "--plot '.' is a folder; name a file in it"),
        (["--plot", "/proc/a.png", "--preview"], "--plot '/proc/a.png' cannot be written"),
        (["--preview", "--dry-run"], "--preview is a part of --dry-run; leave one out"),
    ],
)
def test_mistakes_are_one_line(run: CommandLine, url: str, options: list[str], says: str) -> None:
    write(1)
    lines = run(*SEND, *options).err.splitlines()
    assert says in lines[-1]
    assert not Path(url.removeprefix("sqlite:///")).exists() or due_times(url) == {}


def test_a_window_needs_a_time_zone(run: CommandLine) -> None:
    write(1)
    line = run.refused("send", "q", "--file", "a.csv", "--unknown-columns", "headers", "--window", "08:00-20:00")
    assert line.endswith("--window needs zones; set --time-zone or --zone-column")
    line = run.refused("send", "q", "x", "--delay", "5", "--spread", "1h")
    assert line.endswith("--spread goes with --file only")
    assert "--preview goes with --file only" in run.refused("send", "q", "x", "--delay", "5", "--preview")


def test_a_plot_without_matplotlib_names_the_extra(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    write(1)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = run.refused(*SEND, "--preview", "--plot", "a.png")
    assert "--plot" in line
    assert "pip install '.[plot]'" in line


def test_a_load_writes_no_more_rows_than_its_limit_evenly(run: CommandLine, url: str) -> None:
    write(200)
    assert run("setup").code == 0
    commits: list[int] = []
    took: list[float] = []

    def note(_connection: object) -> None:
        commits[-1] += 1

    event.listen(Engine, "commit", note)
    try:
        for limit in ([], [], ["--max-rows-per-second", "200"]):  # the first one also makes tables
            commits.append(0)
            began = time.monotonic()
            assert run(*SEND, *limit, "--on-duplicate", "replace").code == 0
            took.append(time.monotonic() - began)
    finally:
        event.remove(Engine, "commit", note)
    assert took[2] >= (200 - 20) / 200  # a tenth of a second's rows may go at once
    assert commits[2] >= commits[1] + 200 / 20 - 1
    assert len(due_times(url)) == 200
