"""Reloads of `delaystore serve` at bad moments: parts that are still finishing, many at once, faults nobody foresaw."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.dispatching import wait_until
from tests.long import long
from tests.servers import RabbitMQ
from tests.service.busy import Busy, depth, sending
from tests.service.serving import endpoint, serving, write

STILL = r"^sales dispatcher is still finishing, beside what has taken its place$"


def change(busy: Busy, drain: str, what: str) -> None:
    """A configuration in which the dispatcher, or its endpoint, is another; asked for by SIGHUP."""
    text = busy.config.read_text().replace('drain = "20s"', f'drain = "{drain}"')
    if what == "dispatcher":
        busy.config.write_text(f"{text}\nnumber_of_retries = 3\n")
    elif what == "store":
        busy.config.write_text(text.replace(busy.store, f"{busy.store}?application_name=other"))
    else:
        busy.config.write_text(text.replace("[endpoint.sales", "[endpoint.stock"))
    busy.service.process.send_signal(signal.SIGHUP)


@pytest.mark.long
@pytest.mark.parametrize("what", ["removed", long("dispatcher"), long("store")])
def test_the_end_waits_for_what_a_reload_has_left_behind(busy: Busy, private_rabbitmq: RabbitMQ, what: str) -> None:
    change(busy, "3s", what)
    busy.service.says(STILL)
    busy.service.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    private_rabbitmq.resume()
    assert busy.service.end() == 0
    with sending("sales", busy.store) as delivery:
        waiting = delivery.count()
    arrived = depth(busy.broker, "billing")
    assert arrived
    assert waiting + arrived == 50


@pytest.mark.long
def test_what_a_reload_has_left_behind_is_named_at_the_end(busy: Busy, private_rabbitmq: RabbitMQ) -> None:
    change(busy, "1s", "removed")
    busy.service.says(STILL)
    assert busy.service.stop() == 1
    assert busy.service.lines[-1].startswith("ended before it was finished: sales dispatcher")
    private_rabbitmq.resume()


@pytest.mark.long
@pytest.mark.parametrize("what", ["dispatcher", "store"])
def test_a_part_begins_once_the_one_before_has_finished(busy: Busy, private_rabbitmq: RabbitMQ, what: str) -> None:
    change(busy, "20s", what)
    time.sleep(2)
    assert not any(line.startswith("reloaded") for line in busy.service.lines)
    assert busy.service.probe("/livez")[0] == 200
    private_rabbitmq.resume()
    busy.service.says("^reloaded: ")
    with sending("sales", busy.store) as delivery:
        wait_until(lambda: delivery.count() == 0, "the messages")
    assert busy.service.stop() == 0
    assert depth(busy.broker, "billing") == 50


@pytest.mark.long
def test_a_request_to_stop_interrupts_a_reload(busy: Busy, private_rabbitmq: RabbitMQ) -> None:
    change(busy, "30s", "dispatcher")
    time.sleep(1)
    busy.service.process.send_signal(signal.SIGTERM)
    busy.service.says(STILL)
    private_rabbitmq.resume()
    assert busy.service.end() == 0


@pytest.mark.long
def test_fifty_reloads_in_a_moment_leave_all_as_it_should_be(sqlite_url: str, tmp_path: Path) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        good = config.read_text()
        for retries in range(50):
            config.write_text(f"{good}[endpoint.sales.dispatcher]\nnumber_of_retries = {retries}\n")
            service.process.send_signal(signal.SIGHUP)
            time.sleep(0.005)
        config.write_text(good.replace("20s", "21s"))
        service.process.send_signal(signal.SIGHUP)
        service.says("^reloaded: drain")
        service.wait_until_ready()
        assert service.stop() == 0
    assert not any("Traceback" in line for line in service.lines)


@pytest.mark.long
def test_a_pipe_in_place_of_the_file_is_said_to_be_none(sqlite_url: str, tmp_path: Path) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    text = config.read_text()
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        config.unlink()
        assert "cannot be read: No such file" in service.reload()
        os.mkfifo(config)
        assert "is no regular file, and could not be read again" in service.reload()
        config.unlink()
        config.write_text(text)
        assert service.reload() == "reloaded: nothing has changed"
        assert service.stop() == 0


@pytest.mark.long
def test_a_fault_of_a_plug_in_while_reloading_is_logged_and_all_goes_on(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "odd_store.py").write_text("def opened(url):\n    raise KeyError('odd')\n")
    package = tmp_path / "odd-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[delaystore.stores]\nodd = odd_store:opened\n")
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with serving("--config", str(config), environment={"PYTHONPATH": path}) as service:
        service.wait_until_ready()
        good = config.read_text()
        write(config, endpoint("sales", "odd://x", sqlite_url))
        assert service.reload() == "not reloaded, all is as it was: KeyError: 'odd'"
        service.says("ERROR internal error while reading the configuration again")
        config.write_text(good.replace("20s", "21s"))
        assert service.reload() == "reloaded: drain"
        service.wait_until_ready()
        assert service.stop() == 0
