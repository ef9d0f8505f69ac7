"""An endpoint to look at: messages of a week, a dispatcher's last hour, failures; the same each time."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any

from delaystore import (
    DelayedDelivery,
    DelayedDeliverySettings,
    DelayedMessage,
    MessageFilter,
    SqlDelayedMessageStore,
)
from delaystore.stores.documents import LatenessHistogram
from delaystore.stores.records import Activity, DispatcherRecord, IngressRecord
from delaystore.transports.rabbitmq.topology import topology_named
from tests.integration.cascades import channel_to, declare, make_destination, send
from tests.integration.loading import load

CASCADE = "custom:delay:14"
LONG = "Contoso.Sales.OrderProcessing.Endpoint-Reminders_v2"
LONG_IDS = (
    "Sales.OrderReminders/7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "2f1c9f6e-6d5b-4b52-a2d3-0f2f8f2f7c11",
)
EVIL = "<script>alert('queue')</script>"
QUEUES = ("billing", "shipping", "reminders", "mail.newsletter")
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}
MESSAGES = 1_500
_SECONDS_OF_A_WEEK = 7 * 86_400


def fill(url: str) -> None:
    """Store messages, most of them due soon and by day, and keep a history."""
    store = SqlDelayedMessageStore(url)
    with DelayedDelivery("sales", store) as delivery:
        delivery.prepare()
        store.keep_history(timedelta(days=30))
        delivery.send_many(_week(delivery.operations.now()))
        _last_hour(delivery)


def make_queues(url: str) -> None:
    """What the broker has: `full` takes nothing, and `gone` does not exist."""
    with channel_to(url) as channel:
        for name in QUEUES:
            channel.queue_declare(name, durable=True)
        channel.queue_declare("full", durable=True, arguments=FULL)
        channel.basic_publish("", "full", b"in the way")


def make_cascade(url: str) -> None:
    """A cascade with messages in most of its levels."""
    topology = topology_named(CASCADE)
    with channel_to(url) as channel:
        declare(channel, topology.layout())
        make_destination(channel, topology, "invoices")
        random = Random(3)
        for _ in range(200):
            send(channel, topology, 300 + 16_000 * random.random() ** 3, "invoices", b"later")


def fill_with_long_names(url: str) -> None:
    """Store messages, a dispatcher and an ingress with names as long as those of large systems."""
    with reminding(url) as delivery:
        store = delivery._store
        assert isinstance(store, SqlDelayedMessageStore)
        for number, name in enumerate(LONG_IDS):
            delivery.cancel(name)
            delivery.send(LONG, b"{}", delay=timedelta(seconds=170 - number), message_id=name, headers={LONG: name})
        if not any(each.load_id == LONG for each in delivery.operations.loads.list()):
            load(url, LONG, _reminders(LONG, 5, delivery.operations.now() + timedelta(days=9)))
        now = store.now()
        host = "ip-10-20-117-203.eu-central-1.compute.internal"
        common: dict[str, Any] = {"host": host, "pid": 2_117_401, "version": "0.2.0", "since": now, "heartbeat": now}
        problem = f"[Errno 111] Connection refused: amqps://{host}:5671/production; retrying in 5 s"
        store.heartbeat(
            DispatcherRecord(dispatcher_id=host, name=f"{host}-2117401", problem=problem, **common),
            [],
        )
        store.heartbeat_of_ingress(
            IngressRecord(
                ingress_id=host,
                queue=f"{LONG}.ingress",
                rejected_queue=f"{LONG}.ingress.rejected",
                unacknowledged=12,
                why_unacknowledged=problem,
                rejected_depth=3,
                **common,
            )
        )


def fill_with_loads(url: str) -> None:
    """Load a campaign that is on its way, a paused one, a cancelled one, and one that is delivered."""
    with reminding(url) as delivery:
        operations = delivery.operations.acting_as("ada")
        now = operations.now()
        load(url, "newsletter-old", _reminders("newsletter-old", 1_200, now + timedelta(days=3)))
        operations.loads.cancel("newsletter-old")
        load(url, "invoices-march", _reminders("invoices-march", 300, now - timedelta(hours=1)))
        load(url, "easter-offers", _reminders("easter-offers", 900, now + timedelta(days=8)))
        operations.loads.pause("easter-offers")
        load(url, "spring-reminders", _reminders("spring-reminders", 2_000, now + timedelta(days=9)))
        operations.cancel(MessageFilter(load="spring-reminders", id_prefix="spring-reminders/0"))


def _reminders(load_id: str, count: int, due: datetime) -> list[DelayedMessage]:
    """Messages of a load, 100 due in each second from `due` on."""
    return [
        DelayedMessage(
            message_id=f"{load_id}/{number:04d}",
            destination="reminders",
            due_time=due + timedelta(seconds=number / 100),
            body=b"",
            headers={"customer": ("acme", "bolt")[number % 2]},
        )
        for number in range(count)
    ]


@contextmanager
def reminding(url: str) -> Iterator[DelayedDelivery]:
    """The endpoint, to send something more; nothing is dispatched in this process."""
    settings = DelayedDeliverySettings(automatic_setup=False)
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), settings=settings) as delivery:
        yield delivery


def _week(now: datetime) -> Iterator[DelayedMessage]:
    random = Random(7)
    number = 0
    while number < MESSAGES:
        due = now + timedelta(seconds=180 + _SECONDS_OF_A_WEEK * random.random() ** 1.5)
        if random.random() > 0.15 + 0.85 * max(0.0, 1 - abs(due.hour - 13) / 8):
            continue
        number += 1
        order = {
            "order": 40_000 + number,
            "customer": "Ada Lovelace",
            "city": "Köln",
            "lines": [{"sku": "A-7", "n": 2}],
        }
        yield DelayedMessage(
            message_id=f"order-{40_000 + number}",
            destination=random.choice(QUEUES),
            due_time=due,
            body=json.dumps(order).encode(),
            headers={"tenant": random.choice(("north", "south")), "attempt": 1, "trace": f"4bf92f35{number:08x}"},
            properties={"content_type": "application/json", "type": "OrderReminder"},
        )


def _last_hour(delivery: DelayedDelivery) -> None:
    """As if a dispatcher elsewhere had worked for five hours."""
    store = delivery._store
    assert isinstance(store, SqlDelayedMessageStore)
    now, random = store.now(), Random(11)
    minute = now.replace(second=0, microsecond=0)
    done = []
    for ago in range(60, 0, -1):
        busy = 1_900 if 14 < ago < 24 else 420
        count = int(busy * (0.8 + 0.4 * random.random()))
        lateness = LatenessHistogram()
        slow = 0.25 if 14 < ago < 24 else 0.06
        lateness.add(0.004 + abs(random.gauss(0.012, 0.006)) + (random.random() < 0.03) * slow for _ in range(count))
        by_destination = {"billing": count // 2, "reminders": count // 3, "shipping": count - count // 2 - count // 3}
        done.append(
            Activity(
                minute=minute - timedelta(minutes=ago),
                delivered=count,
                lateness=lateness,
                by_destination=by_destination,
            )
        )
    store.heartbeat(
        DispatcherRecord(
            dispatcher_id="elsewhere",
            name="worker-2",
            host="worker-2.example",
            pid=4117,
            version="0.2.0",
            since=now - timedelta(hours=5),
            heartbeat=now,
            rate=3.6,
            breakers={"fetch": "disarmed", "dispatch": "disarmed"},
        ),
        done,
    )
