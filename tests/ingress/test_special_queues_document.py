"""docs/reference/special-queues.md: the queues have these names, and its commands list, send and delete in them."""

import re
import shlex

import pytest

from delaystore.cascades.moving.mover import MoveSettings
from delaystore.cascades.policies import undeliverable_name
from delaystore.ingress.control._queue import ControlNames
from delaystore.ingress.settings import IngressNames
from delaystore.settings import DelayedDeliverySettings
from delaystore.transports.rabbitmq.topology import topology_named
from tests.documents import ROOT
from tests.ingress.ground import QUORUM, Ground
from tests.integration.cli import CommandLine

TEXT = (ROOT / "docs/reference/special-queues.md").read_text()


def test_the_queues_have_the_names_of_the_code() -> None:
    ingress = IngressNames.of("EXCHANGE")
    own = {
        DelayedDeliverySettings().error_queue,
        ingress.rejected,
        ingress.expired,
        ControlNames("ENDPOINT.control").rejected,
        MoveSettings().poison_queue,
        undeliverable_name(topology_named("nservicebus-v2")),
        undeliverable_name(topology_named("custom:PREFIX")),
    }
    assert {name for name in own if f"`{name}`" not in TEXT} == set()


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
