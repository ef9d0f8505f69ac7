"""What docs/reference/ingress-messages.md says about rejected messages, each command of it run."""

import shlex

import pytest

from tests.documents import ROOT, blocks_of
from tests.ingress.ground import REJECTED, Ground, await_settled, endpoint, running
from tests.integration.cli import CommandLine


def test_rejected_messages_are_listed_shown_and_discarded(
    ground: Ground, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = [
        block
        for block in blocks_of((ROOT / "docs/reference/ingress-messages.md").read_text())
        if block.language == "sh"
    ]
    lines = [line for block in blocks for line in block.text.splitlines()]
    listing, show, discard, retry = [shlex.split(line)[1:] for line in lines]
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"bad", delay="soon", message_id="invoice-7")
        await_settled(ingress, 1)
    delaystore = CommandLine(capsys, {"DELAYSTORE_ENDPOINT": "sales"})

    def run(command: list[str]) -> str:
        result = delaystore(*(ground.url if word == "amqp://localhost" else word for word in command))
        assert result.code == 0, result.err
        return result.out

    assert "invoice-7" in run(listing)
    assert "header x-delay is 'soon'" in run(show)
    run(discard)
    assert ground.depth(REJECTED) == 0
    assert "0 messages of 0" in run(retry)
