"""Queues that are declared for programs: of which type, and when the broker is down at first."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pika
import pytest

from delaystore import DelayedDelivery, DelayedDeliverySettings, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError
from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.servers import RabbitMQ

PATIENCE = 60.0


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


@pytest.fixture
def channel(rabbitmq_url: str) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    """As another program has it, such as a Celery worker."""
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        yield connection.channel()


def type_of(url: str, queue: str) -> str:
    """Which type the broker does not refuse; on RabbitMQ 4 an error queue has another argument besides."""
    for queue_type in ("classic", "quorum"):
        with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
            try:
                connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": queue_type})
            except pika.exceptions.ChannelClosedByBroker as error:
                if "'x-queue-type'" in error.reply_text:
                    continue
            return queue_type
    raise AssertionError(f"{queue} is neither")


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize("automatic_setup", [True, False])
def test_a_program_starts_while_the_broker_is_down_and_its_queues_come_with_it(
    private_rabbitmq: RabbitMQ, tmp_path: Path, automatic_setup: bool
) -> None:
    store = SqlDelayedMessageStore(f"sqlite:///{tmp_path}/app.db")
    store.initialize("sales", DelayedDeliverySettings().transaction_mode)
    store.setup_infrastructure()
    queue = f"reminders-{automatic_setup}"
    settings = DelayedDeliverySettings(automatic_setup=automatic_setup)
    private_rabbitmq.kill()
    transport = RabbitMQTransport(private_rabbitmq.url, queues=[queue])
    with DelayedDelivery("sales", store, transport, settings) as delivery:
        message_id = delivery.send(queue, b"pay me", delay=0)
        assert delivery.get(message_id) is not None
        private_rabbitmq.start()
        wait_until(lambda: delivery.get(message_id) is None)
        with transport.receive(queue, timeout=10) as received:
            assert [one.message_id for one in received] == [message_id]


def test_a_queue_that_may_not_be_created_is_logged_and_the_others_are(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, queues=["amq.reserved", "/queues/mine"])) as transport:
        with caplog.at_level(logging.WARNING):
            transport.declare_error_queue("error")
        assert "queue 'amq.reserved' cannot be declared: 403" in caplog.text
        assert "will retry in 30 s" in caplog.text
    assert type_of(rabbitmq_url, "mine") == "quorum"


@pytest.mark.parametrize(
    ("queues", "says"), [("reminders", "a list of names, as in queues=['reminders']"), (["/exchanges/x/y"], "exchange")]
)
def test_names_that_cannot_be_are_refused(queues: str | list[str], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RabbitMQTransport("amqp://localhost", queues=queues)
    assert says in str(caught.value)


def test_the_url_says_which_type_queues_have(rabbitmq_url: str) -> None:
    with closing(RabbitMQTransport(f"{rabbitmq_url}?queue_type=classic&heartbeat=30")) as transport:
        transport.declare("celery")
    assert type_of(rabbitmq_url, "celery") == "classic"
    with pytest.raises(ConfigurationError, match="queue_type must be one of quorum, classic, not 'stream'"):
        RabbitMQTransport("amqp://localhost?queue_type=stream")


def test_setup_makes_a_queue_that_a_celery_worker_can_declare(
    rabbitmq_url: str, run: CommandLine, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    setup = ("setup", "--transport", rabbitmq_url, "--queue")
    assert run(*setup, "celery", "--queue-type", "classic").code == 0
    channel.queue_declare("celery", durable=True)  # as the worker does
    assert type_of(rabbitmq_url, "error") == "quorum"
    assert run(*setup, "celery", "--queue-type", "classic").code == 0
    line = run.refused(*setup, "celery", "--queue-type", "quorum")
    assert "queue 'celery' is a classic queue, and no quorum one (406 PRECONDITION_FAILED" in line
    assert "write --queue-type classic, or delete it" in line
    assert run(*setup, "celery").code == 0, "of whatever type"


def test_setup_takes_a_classic_queue_that_others_have_made(
    rabbitmq_url: str, run: CommandLine, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.queue_declare("plain", durable=True)
    channel.queue_declare("urgent", durable=True, arguments={"x-max-priority": 5})
    for queue in ("plain", "urgent"):
        assert run("setup", "--transport", rabbitmq_url, "--queue", queue, "--queue-type", "classic").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--transport", "amqp://127.0.0.1:1"], "--queue-type needs --queue"),
        (["--queue", "q", "--transport", "sqlite:///a.db"], "--queue-type applies to RabbitMQ only"),
    ],
)
def test_a_type_for_nothing_is_refused(run: CommandLine, arguments: list[str], says: str) -> None:
    assert says in run.refused("setup", "--queue-type", "classic", *arguments)
