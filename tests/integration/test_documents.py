"""Every example in the documents runs as it stands, but for the addresses of servers."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties, BlockingConnection, URLParameters

from delaystore import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.engine import create_store_engine
from delaystore.transports import open_transport
from delaystore.transports.rabbitmq.parameters import broker_from_url
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened
from tests.preloaded.starting import commands_folder
from tests.servers import RabbitMQVhosts
from tests.service.serving import serving

ROOT = Path(__file__).parents[2]


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(document), re.DOTALL)


def test_the_readmes_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = blocks("README.md", "python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(program, names)
    assert capsys.readouterr().out == "done\n"
    with closing(names["delivery"]) as delivery:
        bodies = {message.body for message in delivery.list().messages}
        assert bodies == {b"please pay order 18", b"your basket is waiting"}
    names["engine"].dispose()


@pytest.mark.long
def test_the_readmes_service_delays_a_message(
    postgresql_url: str, rabbitmq: RabbitMQVhosts, rabbitmq_url: str, tmp_path: Path
) -> None:
    (_, commands, _) = blocks("README.md", "bash")
    (publish,) = blocks("README.md", "js")
    (exchange, routing_key), (delay,) = (
        re.findall(r'publish\("(\w+)", "(\w+)"', publish)[0],
        re.findall(r'{ "x-delay": (\d+) }', publish),
    )
    for written, own in {
        "amqp://localhost": rabbitmq_url,
        "http://localhost:15672": rabbitmq.management_url or "",
        "postgresql://localhost/app": postgresql_url,
    }.items():
        commands = commands.replace(written, own)
    _, create, serve = commands.splitlines()
    assert shell(create, tmp_path).returncode == 0
    with (
        serving(*shlex.split(serve)[2:], "--web", "127.0.0.1:0") as service,
        closing(BlockingConnection(URLParameters(rabbitmq_url))) as connection,
    ):
        service.wait_until_ready()
        channel = connection.channel()
        channel.queue_declare("billing", durable=True)
        channel.queue_bind("billing", f"{exchange}.out", routing_key)
        sooner = BasicProperties(headers={"x-delay": int(delay) // 100}, message_id="invoice-7")
        channel.basic_publish(exchange, routing_key, b"pay me", sooner)
        assert channel.basic_get("billing")[0] is None
        wait_until(lambda: channel.queue_declare("billing", passive=True).method.message_count == 1, "the message")


@pytest.mark.parametrize(
    "url", re.findall(r"`((?:amqp|postgresql|mysql)\S*://[^`\s.]+)`", text_of("docs/explanation/high-availability.md"))
)
def test_the_urls_for_high_availability_can_be_read(url: str) -> None:
    if url.startswith("amqp"):
        assert len(broker_from_url(url).hosts) == 3
    else:
        engine = create_store_engine(url)
        assert "h2" in str(engine.url)
        engine.dispose()


def test_the_observer_counts_what_is_dispatched() -> None:
    (program,) = (block for block in blocks("docs/reference/metrics.md", "python") if "DispatchObserver" in block)
    names: dict[str, Any] = {"wait_until": wait_until}
    exec(f"{program}    wait_until(lambda: metrics.messages['billing', 'delivered'])\n", names)
    assert names["metrics"].messages["billing", "delivered"] == 1
    assert names["metrics"].most_late >= 0


def test_the_columns_of_keys_can_be_made_before(postgresql_url: str) -> None:
    (statements,) = blocks("docs/reference/keys.md", "sql")
    with opened(postgresql_url) as store:
        undo = "DROP COLUMN message_key, DROP COLUMN first_sent; UPDATE sales_delayed_version SET version_num = '0002'"
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"ALTER TABLE sales_delayed {undo}")
            for statement in statements.split(";\n"):
                connection.exec_driver_sql(statement)
            store.setup_infrastructure()
            found = "SELECT indexdef FROM pg_indexes WHERE indexname = 'sales_delayed_keys'"
            assert connection.exec_driver_sql(found).scalar_one().endswith("WHERE (message_key IS NOT NULL)")
        store.store(message(store.now(), 60, "a", key="k"))
        assert store.message_id_of("k") == "a"


def shell(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([commands_folder(), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    return subprocess.run(["bash", "-euc", commands], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_readmes_commands_run(tmp_path: Path) -> None:
    (_, _, commands) = blocks("README.md", "bash")
    commands = commands.replace("source .venv/bin/activate", "")  # the tests' own environment has it
    done = shell(commands, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "invoice-7" in done.stdout
    assert '"pay me"' in done.stdout


@pytest.mark.long
def test_the_commands_for_native_delays_run(rabbitmq: RabbitMQVhosts, rabbitmq_url: str, tmp_path: Path) -> None:
    (commands,) = blocks("docs/how-to/cascades.md", "bash")
    commands = commands.replace("amqp://localhost", rabbitmq_url)
    commands = commands.replace("http://localhost:15672", rabbitmq.management_url or "")
    with closing(open_transport(rabbitmq_url)) as transport:
        transport.declare("billing")
        transport.declare("shipping")
    done = shell(f"{commands}\ndelaystore cascade delete --yes", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "nsb.v2.delay-level-27" in done.stdout


def test_the_program_for_native_delays_runs(postgresql_url: str, rabbitmq_url: str) -> None:
    (program,) = blocks("docs/how-to/cascades.md", "python")
    program = program.replace("postgresql://localhost/app", postgresql_url)
    names: dict[str, Any] = {}
    exec(program.replace("amqp://localhost", rabbitmq_url), names)
    with closing(names["delivery"]) as delivery:
        assert delivery.send("billing", b"pay me", delay=3600)


@pytest.mark.long
def test_the_walk_through_a_migration_runs(postgresql_url: str, rabbitmq_url: str, tmp_path: Path) -> None:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery:
        for days in (0.01, 2, 40, 400):
            delivery.send("billing", b"pay me", delay=timedelta(days=days))
    with closing(open_transport(rabbitmq_url)) as transport:
        transport.declare("billing")
    assert shell(f"delaystore cascade create --broker '{rabbitmq_url}'", tmp_path).returncode == 0
    *walk, _ = blocks("docs/how-to/migrating.md", "bash")  # the last is about Celery
    commands = "\n".join(walk)
    commands = commands.replace("postgresql://localhost/app", postgresql_url)
    done = shell(commands.replace("amqp://localhost", rabbitmq_url), tmp_path)
    assert done.returncode == 0, done.stderr
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(postgresql_url))) as delivery:
        assert delivery.count() == 0


@pytest.mark.long
def test_the_kit_runs_as_documented(tmp_path: Path) -> None:
    (kit,) = blocks("docs/writing-a-store.md", "python")
    (tmp_path / "test_your_store.py").write_text(kit)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert re.search(r"^\d\d passed in", done.stdout, re.MULTILINE), done.stdout


def test_every_link_leads_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        text = document.read_text()
        for target in re.findall(r"\]\(([^)#:]+)[)#]", text) + re.findall(r"^\[\w+\]: (\.[^\s#]+)", text, re.MULTILINE):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_readme_stays_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 140


def test_make_targets_that_documents_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"^make ([a-z-]+)", document.read_text(), re.MULTILINE):
            assert f"\n{target}:" in makefile, f"{document.name}: make {target}"


def test_the_unit_for_systemd_is_one(tmp_path: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd is not installed")
    (unit,) = blocks("docs/how-to/deploy.md", "ini")
    path = tmp_path / "delaystore@.service"
    path.write_text(unit.replace("/opt/app/.venv/bin/delaystore", sys.executable))
    done = subprocess.run([verifier, "verify", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, str(path) in done.stderr) == (0, False), done.stderr
