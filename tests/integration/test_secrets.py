"""A password in a URL is shown nowhere: not printed, not logged even at DEBUG, not in a traceback or a repr."""

import logging
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
from sqlalchemy import make_url

from delaystore.bulk.options import read_options, write_options
from delaystore.bulk.staging import open_staging
from delaystore.cascades import BrokerClient
from delaystore.errors import DelaystoreError
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore, open_store
from delaystore.transports import open_transport
from tests.integration.cli import CommandLine
from tests.servers import RabbitMQVhosts

PASSWORD = "m4rk/er@pa:ss#w?ord%"
QUOTED = quote(PASSWORD, safe="")
SHOWN = ("m4rk", "pa:ss", "pa%3Ass", "w?ord", "w%3Ford")
"""Parts of it, one of which would be seen if any of it were."""
CLOSED = "127.0.0.1:1"
DATABASES = [
    f"postgresql://app:{QUOTED}@{CLOSED}/app",
    f"postgresql://app@{CLOSED}/app?password={QUOTED}",
    f"mysql://app:{QUOTED}@{CLOSED}/app",
    f"mysql://app@{CLOSED}/app?passwd={QUOTED}",
    f"postgresql://app:{QUOTED}@{CLOSED},localhost:1/app",
    f"mysql://app:{QUOTED}@{CLOSED},localhost:1/app",
]
BROKER = f"amqp://app:{QUOTED}@{CLOSED}/"
BROKERS = [BROKER, BROKER.replace("amqp", "amqps"), BROKER.replace(CLOSED, f"{CLOSED},localhost:1")]
MANAGEMENT = f"http://app:{QUOTED}@{CLOSED}"
NATIVE = [f"{url}?delays=nservicebus-v2&management={quote(MANAGEMENT, safe='')}" for url in BROKERS]
OF_A_STORE = [
    ["setup"],
    ["send", "billing", "text", "--delay", "1"],
    ["list"],
    ["show", "a"],
    ["count"],
    ["cancel", "a"],
    ["reschedule", "a", "--delay", "1"],
    ["health"],
    ["load", "--cleanup"],
    ["dispatch", "--once", "--verbose", "--transport", "sqlite:///queues.db"],
    ["demo", "--transport", "sqlite:///queues.db"],
]
OF_A_BROKER = [
    ["create"],
    ["verify"],
    ["delete"],
    ["bind", "billing"],
    ["status"],
    ["migrate"],
    ["transfer", "--to-broker", BROKER.replace(":1/", ":2/")],
]
OF_A_MIGRATION = {
    "preview": ["--to", "noop:"],
    "run": ["--yes", "--to", "noop:"],
    "verify": ["--to", "noop:"],
    "status": [],
    "abort": ["--yes"],
    "cleanup": ["--yes", "--to", "noop:"],
}
MISTAKES = [
    "{scheme}://app:{password}@127.0.0.1:1/app",
    "{scheme}://app:{password}@127.0.0.1:1/app?{password}=1",
    "{scheme}://app:{quoted}@127.0.0.1:port/app",
    "{scheme}://app:{quoted}@127.0.0.1:1/app?nonsense={quoted}",
    "{scheme}://app:1/{quoted}@127.0.0.1/app",
    "{scheme}:/app:{quoted}@127.0.0.1:1/app",
    "{scheme}//app:{quoted}@127.0.0.1:1/app",
    "app:{quoted}@127.0.0.1:1/app",
    "{scheme}+{quoted}://app:{quoted}@127.0.0.1:1/app",
]
"""How a URL with a password is written wrong."""


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> CommandLine:
    """The command line, with every logger at DEBUG."""
    monkeypatch.chdir(tmp_path)
    for name in ["", *logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, name)
    monkeypatch.setenv("DELAYSTORE_ENDPOINT", "sales")
    monkeypatch.setenv("DELAYSTORE_MIGRATE_ENDPOINT", "sales")
    return CommandLine(capsys, {})


@pytest.fixture
def check(run: CommandLine, caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Run a command that must fail, and show nothing of the password; what it said."""

    def check(*arguments: str) -> str:
        result = run(*arguments)
        assert result.code in (1, 2), result
        told = f"{result.out}{result.err}{caplog.text}"
        assert not_in(told)
        return told

    return check


def not_in(text: str) -> bool:
    shown = [part for part in SHOWN if part in text]
    assert not shown, text
    return True


@pytest.mark.parametrize(
    "arguments",
    [[*command, "--store", DATABASES[0]] for command in OF_A_STORE]
    + [["list", "--store", url] for url in DATABASES[1:]],
    ids=" ".join,
)
def test_of_a_store_that_does_not_answer(check: Callable[..., str], arguments: list[str]) -> None:
    assert "error: the database cannot be used now" in check(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [["cascade", *command, "--broker", url] for command in OF_A_BROKER for url in BROKERS]
    + [["cascade", "verify", "--broker", BROKER, "--management", MANAGEMENT]]
    + [["receive", "billing", "--transport", url] for url in BROKERS]
    + [["dispatch", "--once", "--verbose", "--store", "sqlite:///x.db", "--transport", url] for url in BROKERS],
    ids=" ".join,
)
def test_of_a_broker_that_does_not_answer(check: Callable[..., str], arguments: list[str]) -> None:
    assert "cannot be reached" in check(*arguments)


@pytest.mark.long_runs(after=8)
@pytest.mark.parametrize(
    "arguments",
    [[command, "--from", DATABASES[0], *to] for command, to in OF_A_MIGRATION.items()]
    + [["preview", "--from", "sqlite:///x.db", "--to", url] for url in [*DATABASES, *NATIVE]]
    + [["run", "--yes", "--from", "sqlite:///x.db", "--to", url] for url in [*DATABASES, *NATIVE]],
    ids=" ".join,
)
def test_of_a_migration_whose_ends_do_not_answer(
    run: CommandLine, check: Callable[..., str], arguments: list[str]
) -> None:
    assert run("setup", "--store", "sqlite:///x.db").code == 0
    said = check("migrate", *arguments)
    assert "cannot be used now" in said or "cannot be reached" in said


@pytest.mark.long_runs(after=24)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize(
    ("scheme", "command"),
    [
        ("postgresql", ["list", "--store"]),
        ("postgresql", ["load", "x.csv", "--store"]),
        ("postgresql", ["migrate", "preview", "--to", "noop:", "--from"]),
        ("nservicebus-sql+postgresql", ["migrate", "preview", "--to", "noop:", "--from"]),
        ("postgresql", ["migrate", "preview", "--from", "sqlite:///x.db", "--to"]),
        ("amqp", ["receive", "billing", "--transport"]),
        ("amqps", ["cascade", "verify", "--broker"]),
        ("http", ["cascade", "verify", "--broker", f"amqp://{CLOSED}", "--management"]),
    ],
    ids=str,
)
def test_of_a_url_that_is_written_wrong(
    run: CommandLine, check: Callable[..., str], mistake: str, scheme: str, command: list[str]
) -> None:
    assert run("setup", "--store", "sqlite:///x.db").code == 0
    Path("x.csv").write_text("message_id\n")
    check(*command, mistake.format(scheme=scheme, password=PASSWORD, quoted=QUOTED))


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_of_a_database_that_refuses_it(check: Callable[..., str], request: pytest.FixtureRequest, server: str) -> None:
    url = make_url(request.getfixturevalue(f"{server}_url"))
    given = url.set(username="nobody", password=PASSWORD).render_as_string(hide_password=False)
    check("list", "--store", given)
    with pytest.raises(DelaystoreError) as caught, closing(open_store(given)) as store:
        store.initialize("sales", TransactionMode.NONE)
        store.setup_infrastructure()
    assert not_in("".join(traceback.format_exception(caught.value)))


def test_of_a_broker_that_refuses_it(check: Callable[..., str], rabbitmq: RabbitMQVhosts) -> None:
    place = f"app:{QUOTED}@127.0.0.1"
    url = urlunsplit(urlsplit(rabbitmq.url)._replace(netloc=f"{place}:{urlsplit(rabbitmq.url).port}"))
    management = f"http://{place}:{urlsplit(rabbitmq.management_url or '').port}"
    assert "login refused" in check("receive", "billing", "--transport", url)
    assert "login refused" in check("cascade", "verify", "--broker", url)
    said = check("cascade", "verify", "--broker", rabbitmq.url, "--management", management)
    assert "refused the login" in said
    with pytest.raises(DelaystoreError) as caught, closing(open_transport(url)) as transport:
        transport.declare("billing")
    assert not_in("".join(traceback.format_exception(caught.value)))


def test_of_whatever_is_made_of_a_url(tmp_path: Path) -> None:
    urls = {"store": DATABASES[0], "endpoint": "sales"}
    made: list[Any] = [open_store(url) for url in DATABASES]
    made += [open_transport(url) for url in [*DATABASES, *BROKERS]]
    made += [open_source(url) for url in DATABASES]
    made += [open_target(url, "sales") for url in [*DATABASES, *NATIVE]]
    made += [BrokerClient(BROKER, MANAGEMENT)]
    engines = [one.engine for one in made if isinstance(one, SqlDelayedMessageStore)]
    for one in [*made, *engines, made[-1].management, made[-1].broker, read_options(urls), write_options(urls)]:
        assert not_in(repr(one))
        assert not_in(getattr(one, "label", ""))
    assert not_in(repr(open_staging(write_options(urls), 1)))
    for one in made:
        one.close()


def test_a_url_may_be_in_a_file(run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers get secrets: then no password is in an environment or a list of processes."""
    (tmp_path / "store").write_text("\ufeffsqlite:///my app.db\n", encoding="utf-8")  # as editors of Windows begin it
    assert run("setup", "--store", f"@{tmp_path}/store").code == 0
    monkeypatch.setenv("DELAYSTORE_STORE", "@store")
    assert run("count").out == "0\n"
    assert (tmp_path / "my app.db").exists()
    monkeypatch.setenv("DELAYSTORE_MIGRATE_FROM", "@store")
    assert run("migrate", "preview", "--to", "noop:").code == 0


@pytest.mark.parametrize("option", ["--store", "--transport"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "must hold one line"),
        (f"user\n{PASSWORD}".encode(), "must hold one line"),
        (b"\xff", "must hold one line"),
    ],
)
def test_a_file_that_holds_no_url_is_refused(
    check: Callable[..., str], tmp_path: Path, option: str, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    said = check("demo", option, "@secret")
    assert f"error: {option} @secret: the file" in said
    assert says in said
