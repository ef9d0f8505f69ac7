"""`delaystore serve` as a process: it forwards, shows, tells, reloads, drains, and survives its servers."""

import re
import secrets
import signal
import time
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from tests.dispatching import wait_until
from tests.servers import PostgreSQL, PostgreSQLDatabases, RabbitMQ
from tests.service.busy import Busy, declare, depth, sending
from tests.service.serving import endpoint, serving, write


def test_one_endpoint_by_options_dispatches_and_has_a_page_and_metrics(postgresql_url: str, rabbitmq_url: str) -> None:
    declare(rabbitmq_url, "billing")
    environment = {
        "DELAYSTORE_STORE": postgresql_url,
        "DELAYSTORE_TRANSPORT": rabbitmq_url,
        "DELAYSTORE_ENDPOINT": "sales",
    }
    with serving(
        *("--web", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--health", "127.0.0.1:0", "--name", "one"),
        environment=environment,
    ) as service:
        metrics = service.says(r"^serving metrics at (\S+)").group(1)
        service.wait_until_ready()
        with sending("sales", postgresql_url) as delivery:
            delivery.send("billing", b"pay me", delay=0)
            delivery.send("billing", b"pay me later", delay=timedelta(hours=1), message_id="later")
        wait_until(lambda: depth(rabbitmq_url, "billing") == 1, "the message")
        page = httpx.get(f"{service.url}/", follow_redirects=True)
        assert str(page.url) == f"{service.url}/sales/"
        assert "later" in httpx.get(f"{service.url}/sales/messages").text
        assert httpx.get(f"{service.url}/sales/api/v1/messages/later").json()["destination"] == "billing"
        delivered = r'delaystore_messages_total\{.*endpoint="sales".*outcome="delivered".*\} 1'
        wait_until(lambda: re.search(delivered, httpx.get(metrics).text), "the metric")
        health = service.says(r"^serving health at (\S+)/").group(1)
        assert service.probe("/readyz", health) == (200, {"live": True, "ready": True, "not_ready": [], "reasons": {}})
        assert service.stop() == 0
    assert service.lines[-1] == "stopped"
    assert "Traceback" not in "\n".join(service.lines)


def test_a_service_keeps_the_history_of_its_file(sqlite_url: str, tmp_path: Path) -> None:
    table = endpoint("sales", sqlite_url, sqlite_url, 'history = "30d"')
    with serving("--config", str(write(tmp_path / "delaystore.toml", table))) as service:
        service.wait_until_ready()
        with sending("sales", sqlite_url) as delivery:
            wait_until(lambda: delivery.operations.history_status().kept == timedelta(days=30), "the setting")
            delivery.send("nowhere", b"pay me", delay=0, message_id="gone")
            wait_until(lambda: [each.ending for each in delivery.history("gone")] == ["failed"], "the entry")
        assert service.stop() == 0


@pytest.mark.long
def test_several_endpoints_have_a_page_each(
    sqlite_url: str, postgresql_url: str, rabbitmq_url: str, tmp_path: Path
) -> None:
    config = write(
        tmp_path / "delaystore.toml",
        '[metrics]\nlisten = "127.0.0.1:0"',
        endpoint("sales", postgresql_url, rabbitmq_url),
        endpoint('"My.Stock"', sqlite_url, sqlite_url),
    )
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        front = httpx.get(f"{service.url}/").text
        assert 'href="/sales/"' in front
        assert 'href="/My.Stock/"' in front
        for name in ("sales", "My.Stock"):
            assert f"<title>Overview · {name}" in httpx.get(f"{service.url}/{name}/").text
        assert httpx.get(f"{service.url}/nobody/").status_code == 404
        metrics = httpx.get(service.says(r"^serving metrics at (\S+)").group(1)).text
        for name in ("sales", "My.Stock"):
            assert f'endpoint="{name}"' in metrics
        assert service.stop(signal.SIGINT) == 0


def test_the_page_lets_in_whom_the_file_names_and_probes_let_in_anybody(sqlite_url: str, tmp_path: Path) -> None:
    config = write(
        tmp_path / "delaystore.toml",
        'users = "ada:operate:lovelace"',
        endpoint("sales", sqlite_url, sqlite_url),
        endpoint("stock", sqlite_url, sqlite_url),
    )
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        for path in ("/", "/sales/"):
            assert httpx.get(service.url + path).status_code == 401
            answer = httpx.get(service.url + path, auth=("ada", "lovelace"))
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"]
        assert service.probe("/livez")[0] == 200
        (tmp_path / "delaystore.toml").write_text(config.read_text().replace("lovelace", "byron"))
        assert service.reload() == "reloaded: [web] users"
        assert httpx.get(f"{service.url}/sales/", auth=("ada", "lovelace")).status_code == 401
        assert httpx.get(f"{service.url}/sales/", auth=("ada", "byron")).status_code == 200
        config.write_text(config.read_text().replace('users = "ada:operate:byron"', ""))
        assert "not reloaded, all is as it was: [web] users: the last user is removed" in service.reload()
        assert httpx.get(f"{service.url}/sales/").status_code == 401


def test_a_reload_goes_over_to_what_it_can_and_names_the_rest(
    sqlite_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    sales, stock = endpoint("sales", sqlite_url, sqlite_url), endpoint("stock", sqlite_url, sqlite_url)
    config = write(tmp_path / "delaystore.toml", sales, stock)
    with serving("--config", str(config)) as service:
        service.wait_until_ready()
        write(config, '[metrics]\nlisten = "127.0.0.1:0"', sales, "[endpoint.sales.dispatcher]", "name = 'anew'")
        assert service.reload() == "reloaded: [endpoint.sales.dispatcher] name, [endpoint.stock] removed"
        service.says(r"^restart for: \[metrics\] listen$")
        assert httpx.get(f"{service.url}/stock/").status_code == 404
        service.wait_until_ready()
        with sending("sales", sqlite_url) as delivery:
            wait_until(
                lambda: [each.name for each in delivery.operations.overview().dispatchers or ()] == ["anew"], "name"
            )
        broken = config.read_text()
        write(config, sales, "batch_sise = 3")
        assert "not reloaded, all is as it was: delaystore.toml: [endpoint.sales] batch_sise" in service.reload()
        write(config, endpoint("sales", "nothing://x", sqlite_url))
        assert "the endpoint 'sales': no store is registered for the URL scheme 'nothing'" in service.reload()
        write(config, sales, '[endpoint.sales.dispatcher]\nhandover_horizon = "1h"')
        assert "the endpoint 'sales': handover_horizon 1:00:00 is longer than" in service.reload()
        config.write_text(broken)
        service.wait_until_ready()
        write(config, '[metrics]\nlisten = "127.0.0.1:0"', endpoint("sales", postgresql_url, sqlite_url), stock)
        assert "[endpoint.sales] store" in service.reload()
        service.wait_until_ready()
        with sending("sales", postgresql_url) as delivery:
            delivery.send("billing", b"x", delay=timedelta(hours=1), message_id="moved")
        assert "moved" in httpx.get(f"{service.url}/sales/messages").text
        assert "<title>Overview · stock" in httpx.get(f"{service.url}/stock/").text
        assert service.stop() == 0


@pytest.mark.long
def test_the_end_waits_for_the_answer_to_messages_in_flight(busy: Busy, private_rabbitmq: RabbitMQ) -> None:
    busy.service.process.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert busy.service.process.poll() is None
    private_rabbitmq.resume()
    assert busy.service.end() == 0
    with sending("sales", busy.store) as delivery:
        waiting = delivery.count()
    arrived = depth(busy.broker, "billing")
    assert arrived
    assert waiting + arrived == 50  # what was in flight was confirmed, and removed


@pytest.mark.long
def test_an_end_that_takes_too_long_says_what_was_left_and_loses_nothing(
    busy: Busy, private_rabbitmq: RabbitMQ
) -> None:
    busy.config.write_text(busy.config.read_text().replace('drain = "20s"', 'drain = "1s"'))
    assert busy.service.reload() == "reloaded: drain"
    assert busy.service.stop() == 1
    assert busy.service.lines[-1].startswith("ended before it was finished: sales dispatcher")
    private_rabbitmq.resume()
    with sending("sales", busy.store) as delivery:
        assert delivery.count() == 50
        with serving("--config", str(busy.config)) as service:
            wait_until(lambda: delivery.count() == 0, "the messages")
            assert service.stop() == 0
    arrived = depth(busy.broker, "billing")
    assert arrived is not None
    assert arrived >= 50


@pytest.mark.long  # test_serve_early.py has a second signal, without messages in flight
def test_the_second_signal_ends_it_at_once(busy: Busy, private_rabbitmq: RabbitMQ) -> None:
    busy.service.process.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert busy.service.process.poll() is None
    began = time.monotonic()
    assert busy.service.stop() in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert time.monotonic() - began < 5
    private_rabbitmq.resume()


@pytest.mark.long
def test_readiness_while_the_broker_is_down_and_back(private_rabbitmq: RabbitMQ, sqlite_url: str) -> None:
    broker = private_rabbitmq.create_vhost()
    declare(broker, "billing")
    environment = {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_TRANSPORT": broker, "DELAYSTORE_ENDPOINT": "sales"}
    with serving("--web", "127.0.0.1:0", "--health", "127.0.0.1:0", environment=environment) as service:
        health = service.says(r"^serving health at (\S+)/").group(1)
        service.wait_until_ready()
        private_rabbitmq.kill()
        with sending("sales", sqlite_url) as delivery:
            delivery.send("billing", b"x", delay=0)
        wait_until(lambda: service.probe()[0] == 503, "not to be ready")
        assert service.probe() == (503, {"live": True, "ready": False, "not_ready": ["sales dispatcher"]})
        assert "nothing can be sent" in service.probe("/readyz", health)[1]["reasons"]["sales dispatcher"][0]
        assert service.probe("/livez")[0] == 200
        private_rabbitmq.restore()
        service.wait_until_ready()
        wait_until(lambda: depth(broker, "billing") == 1, "the message")
        assert service.stop() == 0


@pytest.mark.long  # test_cli_processes.py has a dispatcher that waits for a server
def test_a_store_that_is_down_at_the_start_is_waited_for(private_postgresql: PostgreSQL, sqlite_url: str) -> None:
    store = private_postgresql.create_database()
    private_postgresql.kill()
    environment = {"DELAYSTORE_STORE": store, "DELAYSTORE_TRANSPORT": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    with serving("--web", "127.0.0.1:0", environment=environment) as service:
        service.says("WARNING sales dispatcher waits: ")
        assert service.probe()[1]["not_ready"] == ["sales dispatcher"]
        private_postgresql.restore()
        service.wait_until_ready()
        assert service.stop() == 0


def test_a_part_that_dies_is_started_again_until_it_can_work(
    postgresql: PostgreSQLDatabases, postgresql_url: str, sqlite_url: str
) -> None:
    password = secrets.token_urlsafe(12)
    store = postgresql.create_role(f"poor-{secrets.token_hex(4)}", password, postgresql_url)
    environment = {"DELAYSTORE_STORE": store, "DELAYSTORE_TRANSPORT": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}
    with serving("--web", "127.0.0.1:0", environment=environment) as service:
        service.says(r"ERROR sales dispatcher: it died: .*permission.*; it is started again within ")
        assert service.probe()[1] == {"live": True, "ready": False, "not_ready": ["sales dispatcher"]}
        assert service.probe("/livez")[0] == 200
        with psycopg.connect(postgresql_url.replace("+psycopg", "")) as connection:
            role = sql.Identifier(make_url(store).username or "")
            connection.execute(sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(role))
        service.wait_until_ready()
        assert service.stop() == 0
    text = "\n".join(service.lines)
    assert "Traceback" not in text
    assert password not in text


def test_without_a_file_nothing_is_reloaded(sqlite_url: str) -> None:
    usual = ("--endpoint", "sales", "--store", sqlite_url, "--transport", sqlite_url)
    with serving("--web", "127.0.0.1:0", *usual) as service:
        service.wait_until_ready()
        assert service.reload().startswith("not reloaded: there is no configuration file")
        service.wait_until_ready()
        assert service.stop() == 0
