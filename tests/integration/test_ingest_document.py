"""What docs/how-to/ingress.md says runs as it stands, with a broker that shows exchanges of the plugin."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ingress_brokers import Broker
from tests.integration.plugin_stand_in import RECORDED, declare_shop, plugin_management
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
    at = f"export DELAYSTORE_BROKER={broker.url} DELAYSTORE_MANAGEMENT={broker.management_url}\n"
    create, look, delete, rename, old, prepare, replace, plan = commands_of("docs/how-to/ingress.md")
    own = create.replace("amqp://localhost", broker.url).replace("http://localhost:15672", broker.management_url)
    done = shell(own + look + delete, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nothing is new") == 1
    assert "look at it" in done.stdout, "nobody takes from the ingress queue"
    assert "deleted: exchange 'orders'" in done.stdout

    declare_shop(broker)
    shutil.copy(RECORDED / "plugin_definitions.json", tmp_path / "before.json")
    done = shell(at + rename + old + prepare + replace + plan, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0 wait in the delayed-message plugin" in done.stdout
    assert "deleted: exchange 'orders'" in done.stdout
    assert {one.destination for one in broker.management.bindings("orders")} == {"orders.ingress"}
    assert {one.destination for one in broker.management.bindings("reminders.v2.out")} == {"billing", "shipping"}
