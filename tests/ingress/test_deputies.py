"""A user who may write to one exchange reaches by an ingress what that exchange is for, and nothing else."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from delaystore import DelayedDelivery, DelayedDeliverySettings, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.ingress.control import ControlQueue
from delaystore.ingress.ingress import Ingress
from delaystore.ingress.reading.content import MOST
from delaystore.ingress.rejected import retry_rejected
from delaystore.server.configuration.ingress import IngressConfiguration
from tests.faults.patience import wait_until
from tests.servers import RabbitMQVhosts

OUT: Final = "orders.out"
ENTRANCES: Final = ("orders", "fixed", "named", "Sales.Timeouts")
INGRESSES: Final = {
    "orders": IngressConfiguration(exchange="orders"),
    "fixed": IngressConfiguration(exchange="fixed", destination="billing"),
    "named": IngressConfiguration(
        exchange="named", destination="header", allow_destination=("billing", f"/exchanges/{OUT}/due")
    ),
    "timeouts": IngressConfiguration(queue="Sales.Timeouts"),
}
TIMEOUT: Final = {"NServiceBus.Timeout.Expire": "2020-01-01 00:00:00:000000 Z"}
FUTURE_TIMEOUT: Final = {"NServiceBus.Timeout.Expire": "2900-01-01 00:00:00:000000 Z"}
ROUTE_TO, TO = "NServiceBus.Timeout.RouteExpiredTimeoutTo", "delaystore.destination"
SAGA: Final = "11111111-2222-3333-4444-555555555555"
SPARED: Final = "payments"
"""A queue that the publisher may not write to, and that nothing is to reach."""


class Shop:
    """Ingresses of one endpoint with a dispatcher and a control queue, and a publisher of few rights."""

    def __init__(self, url: str, publisher_url: str, store: str) -> None:
        self.url = url
        self.transport = RabbitMQTransport(url)
        settings = DelayedDeliverySettings(audit="all")
        self.delivery = DelayedDelivery("sales", SqlDelayedMessageStore(store), self.transport, settings)
        self._all = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self._all.channel()
        for exchange in ("orders", "fixed", "named"):
            self.channel.exchange_declare(exchange, "topic", durable=True)
            self.channel.queue_declare(f"{exchange}.ingress", durable=True)
            self.channel.queue_bind(f"{exchange}.ingress", exchange, "#")
        self.channel.exchange_declare("Sales.Timeouts", "fanout", durable=True)  # as an endpoint of NServiceBus has it
        self.channel.exchange_declare(OUT, "topic", durable=True)
        for queue in ("Sales.Timeouts", "due", "due.too", "billing", SPARED, "answers", "error"):
            self.channel.queue_declare(queue, durable=True)
        self.channel.queue_bind("Sales.Timeouts", "Sales.Timeouts", "")
        for queue in ("due", "due.too"):
            self.channel.queue_bind(queue, OUT, queue)
        self._publisher = pika.BlockingConnection(pika.URLParameters(publisher_url))
        self._publishing = self._publisher.channel()
        self._publishing.confirm_delivery()
        self.delivery.start()
        self.ingresses = [
            Ingress(self.delivery, url, each.rules(name, self.transport.check), each.settings(name))
            for name, each in INGRESSES.items()
        ]
        for ingress in self.ingresses:
            ingress.start()
        self.control = ControlQueue(self.delivery.operations, self.transport)
        self._controlling = threading.Thread(target=self.control.run)
        self._controlling.start()
        wait_until(lambda: self.control.health().healthy, "the control queue", 60)

    def warm_up(self) -> None:
        """Have each ingress forward and reject a message, so that no test is the one that starts its threads."""
        for exchange, arrives in {"orders": "due", "fixed": "billing", "named": "billing"}.items():
            self.publish(exchange, {TO: "billing"}, b"")
            self.publish(exchange, {TO: "billing", "x-delay": "abc"}, b"")
            self.next(arrives)
            self.next(f"{exchange}.ingress.rejected")
        for to, arrives in {"billing": "billing", "error": "Sales.Timeouts.rejected"}.items():
            self.publish("Sales.Timeouts", TIMEOUT | {ROUTE_TO: to}, b"")
            self.next(arrives)

    def close(self) -> None:
        assert all(ingress.stop(30) for ingress in self.ingresses)
        assert self.control.stop(30)
        self._controlling.join()
        self.delivery.close()
        self._publisher.close()
        self._all.close()

    def publish(self, exchange: str, headers: Any, body: bytes, key: str = "due", **properties: Any) -> None:
        """As the publisher."""
        self._publishing.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers, **properties))

    def next(self, queue: str) -> tuple[Any, bytes]:
        """Properties and body of the next message of a queue."""
        got: list[tuple[Any, bytes]] = []

        def has_come() -> bool:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is not None:
                got.append((properties, body))
            return bool(got)

        wait_until(has_come, f"a message in {queue}")
        return got[0]

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)


@pytest.fixture(scope="module")
def shop(rabbitmq: RabbitMQVhosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    url = rabbitmq.create_vhost()
    store: Path = tmp_path_factory.mktemp("deputies") / "store.db"
    with rabbitmq.user(url, write=f"^({'|'.join(ENTRANCES)})$") as publisher:
        shop = Shop(url, publisher, f"sqlite:///{store}")
        shop.warm_up()
        yield shop
        shop.close()
    rabbitmq.delete_vhost(url)


CC: Final = {"CC": [SPARED]}


@pytest.mark.parametrize(
    ("exchange", "headers", "arrives", "says"),
    [
        ("orders", {"x-delay": 1}, "due", None),
        ("orders", {"x-delay": 1} | CC, "due", None),
        ("orders", {"x-delay": "abc"} | CC, "orders.ingress.rejected", "header x-delay is 'abc'"),
        ("orders", TIMEOUT | {ROUTE_TO: SPARED}, "due", None),
        (
            "orders",
            FUTURE_TIMEOUT | {ROUTE_TO: SPARED},
            "orders.ingress.rejected",
            "delay format nservicebus is not enabled",
        ),
        ("orders", {TO: SPARED}, "due", None),
        ("fixed", {"x-delay": 1} | CC, "billing", None),
        ("fixed", TIMEOUT | {ROUTE_TO: SPARED} | CC, "billing", None),
        ("named", {"x-delay": 1, TO: "billing"} | CC, "billing", None),
        ("named", {TO: f"/exchanges/{OUT}/due"} | CC, "due", None),
        ("named", {TO: f"/exchanges/{OUT}/due.too"}, "named.ingress.rejected", "none that publishers may name"),
        ("named", {TO: SPARED}, "named.ingress.rejected", "none that publishers may name"),
        ("named", {TO: f"/queues/{SPARED}"}, "named.ingress.rejected", "none that publishers may name"),
        ("named", {TO: "sales.control"}, "named.ingress.rejected", "delaystore's own"),
        ("named", {TO: "/exchanges/sales.control/x"}, "named.ingress.rejected", "delaystore's own"),
        ("named", {TO: "named.ingress.expired"}, "named.ingress.rejected", "leads back to the ingress"),
        ("named", {TO: "/exchanges/named/x"}, "named.ingress.rejected", "leads back to the ingress"),
        ("named", {TO: "orders.ingress"}, "named.ingress.rejected", "delaystore's own"),
        ("Sales.Timeouts", TIMEOUT | {ROUTE_TO: "billing"} | CC, "billing", None),
        ("Sales.Timeouts", TIMEOUT | {ROUTE_TO: "sales.control"}, "Sales.Timeouts.rejected", "delaystore's own"),
        ("Sales.Timeouts", TIMEOUT | {ROUTE_TO: "error"}, "Sales.Timeouts.rejected", "delaystore's own"),
        ("Sales.Timeouts", TIMEOUT | {ROUTE_TO: "Sales.Timeouts"}, "Sales.Timeouts.rejected", "leads back"),
        ("Sales.Timeouts", {TO: "sales.control"}, "Sales.Timeouts.rejected", "delaystore's own"),
    ],
)
def test_which_message_reaches_which_queue(
    shop: Shop, exchange: str, headers: dict[str, Any], arrives: str, says: str | None
) -> None:
    body = b'{"get": "anything"}'
    shop.publish(exchange, headers, body, reply_to="answers")
    properties, found = shop.next(arrives)
    assert found == body
    reason = properties.headers.get("delaystore.rejected-reason", "")
    assert (says or "") in reason
    assert bool(reason) is (says is not None)
    if "CC" in headers and arrives != "due":
        assert properties.headers["delaystore.cc"] == [SPARED]
    assert (shop.depth(SPARED), shop.depth("answers")) == (0, 0)


def test_cc_reaches_what_is_bound_to_the_output_exchange(shop: Shop) -> None:
    shop.publish("orders", {"x-delay": 1, "CC": ["due.too", SPARED]}, b"both")
    assert (shop.next("due")[1], shop.next("due.too")[1]) == (b"both", b"both")
    assert shop.depth(SPARED) == 0


def test_cc_takes_no_effect_in_the_error_queue_and_is_restored_for_its_own_destination(shop: Shop) -> None:
    headers = {"x-delay": 1, "CC": ["late.too", SPARED], "delaystore.failed-bcc": [SPARED]}
    shop.publish("orders", headers, b"late", key="late", message_id="late")
    wait_until(lambda: shop.depth("error") == 1, "the error queue")
    (failed,) = shop.delivery.operations.errors.messages().messages
    assert failed.headers["CC"] == ["late.too", SPARED]
    assert "BCC" not in failed.headers
    shop.delivery.operations.errors.replay(destination="billing")
    properties, _ = shop.next("billing")
    assert properties.headers["delaystore.cc"] == ["late.too", SPARED]
    shop.publish("orders", headers, b"late", key="late", message_id="late")
    wait_until(lambda: shop.depth("error") == 1, "the error queue")
    for queue in ("late", "late.too"):
        shop.channel.queue_declare(queue)
        shop.channel.queue_bind(queue, OUT, queue)
    assert shop.delivery.operations.errors.replay().done == 1
    assert (shop.next("late")[1], shop.next("late.too")[1]) == (b"late", b"late")
    assert shop.depth(SPARED) == 0


def test_cc_of_another_programs_failed_message_takes_no_effect_when_it_is_sent_again(shop: Shop) -> None:
    headers = {"NServiceBus.FailedQ": "billing", "NServiceBus.ExceptionInfo.Message": "no", "CC": [SPARED]}
    properties = pika.BasicProperties(headers=headers, message_id="foreign")
    connection = pika.BlockingConnection(pika.URLParameters(shop.url))
    connection.channel().basic_publish("", "error", b"foreign", properties)
    connection.close()
    assert shop.next(SPARED)[1] == b"foreign"  # by its publisher
    wait_until(lambda: shop.depth("error") == 1, "the error queue")
    assert shop.delivery.operations.errors.replay().done == 1
    assert shop.next("billing")[0].headers["delaystore.cc"] == [SPARED]
    assert shop.depth(SPARED) == 0


def test_what_is_retried_goes_no_further_than_its_publisher_could(shop: Shop) -> None:
    shop.publish("orders", {"x-delay": "abc", "delaystore.cc": [SPARED]} | CC, b"retried")
    wait_until(lambda: shop.depth("orders.ingress.rejected") == 1, "it is rejected")
    assert retry_rejected(shop.transport.broker, "orders.ingress.rejected").published == 1
    assert shop.next("orders.ingress.rejected")[1] == b"retried"
    assert shop.depth(SPARED) == 0


def test_a_saga_is_cleared_only_by_its_own_ingress_and_it_is_noted(shop: Shop) -> None:
    for name in ("a", "b"):
        shop.delivery.send("billing", b"", delay=3600, message_id=f"{SAGA}/{name}")
    clear = {"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": SAGA}
    shop.publish("orders", clear, b"no order")
    assert shop.next("due")[1] == b"no order"
    assert len(shop.delivery.message_ids(SAGA)) == 2
    for _ in range(2):  # the second one finds nothing, and notes nothing
        shop.publish("Sales.Timeouts", clear, b"")
    wait_until(lambda: shop.ingresses[-1].health().applied >= 2, "it is cleared")
    assert not shop.delivery.message_ids(SAGA)
    noted = [each for each in shop.delivery.operations.changes() if SAGA in each.about]
    assert {(each.message_id, each.action, each.count, each.by, each.way) for each in noted} == {
        (f"{SAGA}/{name}", "cancel", 1, "a publisher, by the ingress of Sales.Timeouts", "ingress") for name in "ab"
    }


def test_what_bindings_bring_back_ends_in_the_rejected_queue_and_can_be_retried(shop: Shop) -> None:
    shop.channel.exchange_bind("orders", OUT, "loop")
    stored = shop.ingresses[0].health().stored
    shop.publish("orders", {"x-delay": 1}, b"round", key="loop")
    wait_until(lambda: shop.depth("orders.ingress.rejected") == 1, "the end of the loop")
    rounds = shop.ingresses[0].health().stored - stored
    assert rounds >= MOST + 2, "once from its publisher, then without a count, then MOST times"
    shop.channel.exchange_unbind("orders", OUT, "loop")
    shop.channel.queue_declare("loop")
    shop.channel.queue_bind("loop", OUT, "loop")
    assert retry_rejected(shop.transport.broker, "orders.ingress.rejected").published == 1
    properties, body = shop.next("loop")
    assert (properties.headers, body) == ({"x-delay": -1}, b"round")
