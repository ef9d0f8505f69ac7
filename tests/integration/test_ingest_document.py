"""The commands of docs/how-to/ingress.md run as they stand."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ingress_brokers import Broker
from tests.integration.plugin_stand_in import plugin_management
from tests.integration.test_documents import shell, text_of
from tests.servers import RabbitMQVhosts


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Broker]:
    with plugin_management(rabbitmq.management_url or "") as url:
        opened = Broker(rabbitmq_url, url)
        yield opened
        opened.close()


def commands_of(document: str) -> list[str]:
    """Its commands, a block each, those in lists as well."""
    found = re.findall(r"^( *)```bash\n(.*?)^ *```", text_of(document), re.DOTALL | re.MULTILINE)
    return [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


@pytest.mark.long
def test_the_commands_of_the_ingress_run(broker: Broker, tmp_path: Path) -> None:
    create, _, look, delete = commands_of("docs/how-to/ingress.md")  # the second runs for ever
    own = create.replace("amqp://localhost", broker.url).replace("http://localhost:15672", broker.management_url)
    done = shell(own + look + delete, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nothing is new") == 1
    assert "look at it" in done.stdout, "nobody takes from the ingress queue"
    assert "deleted: exchange 'orders'" in done.stdout
