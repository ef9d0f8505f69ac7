"""docs/reference/special-queues.md: its commands list, send and delete in the queues."""

import re
import shlex

import pytest

from tests.documents import ROOT
from tests.ingress.ground import QUORUM, Ground
from tests.integration.cli import CommandLine

TEXT = (ROOT / "docs/reference/special-queues.md").read_text()


@pytest.mark.parametrize("queue", ["delays.poison", "ENDPOINT.control.rejected", "EXCHANGE.ingress.rejected"])
def test_the_commands_for_other_queues_than_the_error_queue_run(
    queue: str, ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.channel.queue_declare(queue, durable=True, arguments=QUORUM)
    header = "delaystore.poison-reason" if queue == "delays.poison" else "delaystore.rejected-reason"
    commands = re.findall(rf"`delaystore (errors [^`]* --error-queue {re.escape(queue)})`", TEXT)
    assert commands
    delaystore = CommandLine(capsys, {})
    for command in commands:
        ground.drain(queue)
        ground.channel.basic_publish("", queue, b"pay me", properties_of(header))
        words = shlex.split(command.replace(" ID ", " order-17 ").replace("--to QUEUE", "--to invoices"))
        result = delaystore(*words, "--transport", ground.url)
        assert result.code == 0, result.err
        if words[1] in ("list", "show"):
            assert "order-17" in result.out
        if words[1] == "show":
            assert "its routing key" in result.out
        if words[1] in ("replay", "discard"):
            assert ground.depth(queue) == 0
    if any(" replay " in f" {command} " for command in commands):
        assert ground.receive("invoices")[0].body == b"pay me"


def properties_of(header: str) -> object:
    import pika

    headers = {header: "its routing key is none of this cascade's"}
    return pika.BasicProperties(message_id="order-17", headers=headers, delivery_mode=2)
