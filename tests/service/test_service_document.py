"""docs/tutorials/any-language.md, from top to bottom, with a real broker, a real database and a program of Node's."""

import os
import shutil
from pathlib import Path

import pytest

from tests.documents import blocks_of, is_as_shown, printed, script
from tests.servers import RabbitMQVhosts
from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_page_runs_from_top_to_bottom(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    if shutil.which("npm") is None:
        assert os.environ.get("CI") != "true"
        pytest.skip("Node is not installed")
    text = (ROOT / "docs/tutorials/any-language.md").read_text()
    for given, own in {
        "postgresql://localhost/app": postgresql_url,
        "amqp://localhost": rabbitmq_url,
        "http://localhost:15672": rabbitmq.management_url or "",
        "127.0.0.1:8765": f"127.0.0.1:{(port := free_port())}",
        "make demo                       # installs delaystore into .venv\nsource .venv/bin/activate\n": "",
        "createdb app\n": "",
        "[endpoint.sales]\n": f'[web]\nlisten = "127.0.0.1:{port}"\n\n[endpoint.sales]\n',
    }.items():
        text = text.replace(given, own)
    blocks = [block for block in blocks_of(text) if block.language != "toml" or block.file]
    code, shown = printed(script(blocks), tmp_path)
    assert code == 0, shown
    for number, block in enumerate(blocks):
        if block.language == "text":
            assert is_as_shown(block.text, shown[number - 1]), (block.text, shown[number - 1])
