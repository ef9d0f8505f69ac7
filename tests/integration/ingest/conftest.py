"""A broker, and the command line that is told of it."""

from collections.abc import Iterator

import pytest

from tests.integration.cli import CommandLine, command_line
from tests.integration.ingress_brokers import Broker
from tests.servers import RabbitMQVhosts


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Broker]:
    """A virtual host with nothing in it."""
    opened = Broker(rabbitmq_url, rabbitmq.management_url or "")
    yield opened
    opened.close()


@pytest.fixture
def run(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line, told its broker by the environment."""
    environment = {"DELAYSTORE_BROKER": broker.url, "DELAYSTORE_MANAGEMENT": broker.management_url}
    return command_line(capsys, monkeypatch, environment)
