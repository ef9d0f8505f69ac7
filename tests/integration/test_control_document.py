"""The document of the control queue: its command runs, and its programs ask, in each language."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pika.exceptions import ChannelClosedByBroker

from delaystore import DelayedDelivery
from tests.dispatching import wait_until
from tests.documents import is_as_shown
from tests.integration.asking import Asker, opened_delivery, running
from tests.integration.cli import PATIENCE, started
from tests.servers import RabbitMQ, ServerMissingError
from tests.servers.node import find_node, node_environment

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "control.md").read_text()
STORE, BROKER = "postgresql+psycopg://localhost/app", "amqp://localhost"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture
def delivery(prepared_postgresql_url: str) -> Iterator[DelayedDelivery]:
    with opened_delivery(prepared_postgresql_url) as delivery:
        delivery.send("billing", b"pay", delay=60, message_id="invoice-7", key="order 7")
        yield delivery


@pytest.fixture
def control(
    delivery: DelayedDelivery, prepared_postgresql_url: str, rabbitmq_url: str
) -> Iterator[subprocess.Popen[str]]:
    """The document's command, reading."""
    command = blocks("sh")[0].replace(STORE, prepared_postgresql_url).replace(BROKER, rabbitmq_url)
    process = started([*shlex.split(command)[1:], "--json"], {})
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "reading the control queue 'sales.control'\n"
        with Asker(rabbitmq_url) as asker:
            wait_until(lambda: there_is(asker), "the control queue")
        yield process
    finally:
        process.kill()
        process.communicate()


def there_is(asker: Asker) -> bool:
    asker.send({"ping": {}})  # where there is no queue yet, nobody hears it
    return bool(asker.listen())


def run(arguments: list[str], environment: dict[str, str] | None = None) -> list[str]:
    result = subprocess.run(
        arguments, capture_output=True, text=True, timeout=PATIENCE, env=environment or dict(os.environ), check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.usefixtures("control")
def test_the_program_for_node_reschedules_and_cancels(
    delivery: DelayedDelivery, rabbitmq_url: str, tmp_path: Path
) -> None:
    (program,) = blocks("js")
    try:
        node = find_node()
    except ServerMissingError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    (tmp_path / "ask.js").write_text(program.replace(BROKER, rabbitmq_url))
    printed = "\n".join(run([node, str(tmp_path / "ask.js")], node_environment()))
    assert is_as_shown(*blocks("text"), printed), printed
    assert delivery.get("invoice-7") is None


@pytest.mark.usefixtures("control")
def test_the_program_for_pika_looks_a_message_up(rabbitmq_url: str, tmp_path: Path) -> None:
    (program,) = blocks("python")
    (tmp_path / "ask.py").write_text(program.replace(BROKER, rabbitmq_url))
    (printed,) = run([sys.executable, str(tmp_path / "ask.py")])
    assert "'outcome': 'done', 'message_id': 'invoice-7', 'message': {'message_id': 'invoice-7'," in printed


@pytest.mark.long_runs("2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_when_it_is_told_to(control: subprocess.Popen[str], number: signal.Signals) -> None:
    control.send_signal(number)
    out, err = control.communicate(timeout=PATIENCE)
    assert control.returncode == 0, err
    assert re.fullmatch(r"stopped: \d+ requests?, \d+ answered, 0 rejected\n", err)
    assert '"rejected": 0' in out


@pytest.mark.long
def test_a_user_with_the_documents_rights_asks(delivery: DelayedDelivery, private_rabbitmq: RabbitMQ) -> None:
    url = private_rabbitmq.create_vhost()
    vhost = private_rabbitmq.vhost_name(url)
    for line in blocks("sh")[1].splitlines():
        program, command, *arguments = shlex.split(line)
        assert program == "rabbitmqctl"
        private_rabbitmq.ctl(command, *(["--vhost", vhost] if command == "set_permissions" else []), *arguments)
    own = urlsplit(url)._replace(netloc=f"shop-desk:a-password@127.0.0.1:{private_rabbitmq.port}").geturl()
    with running(delivery, url) as control:
        wait_until(lambda: control.health().connected)
        with Asker(own, "sales.control", "") as asker:
            assert asker.ask({"cancel": "invoice-7"}, user_id="shop-desk")["outcome"] == "done"
        with Asker(own) as asker, pytest.raises(ChannelClosedByBroker, match=r"amq\.default"):
            asker.send({"ping": {}})
            asker.channel.queue_declare("sales.control", passive=True)
    assert delivery.operations.changes(1)[0].by == "shop-desk, by the control queue"
