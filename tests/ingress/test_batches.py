"""How arrivals are gathered into batches."""

import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pika
import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.ingress import consuming
from delaystore.message import DelayedMessage
from tests.ingress.ground import ENDPOINT, EXCHANGE, LONG, Ground, await_settled, running

GATHERED_FOR = 0.5
"""Seconds, for the test: far longer than a batch takes."""


class WatchedDelivery(DelayedDelivery):
    """Notes when each batch is stored, and of how many messages it is."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.batches: list[tuple[float, int]] = []

    def send_many(self, messages: Iterable[DelayedMessage], **more: Any) -> int:
        began = time.monotonic()
        count = super().send_many(messages, **more)
        self.batches.append((began, count))
        return count


def test_many_are_gathered_and_few_are_stored_at_once(
    ground: Ground, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_GATHERED_FOR", GATHERED_FOR)
    with (
        WatchedDelivery(ENDPOINT, SqlDelayedMessageStore(postgresql_url)) as delivery,
        running(delivery, ground.url) as ingress,
    ):
        ground.publish(b"one", delay=LONG)
        await_settled(ingress, 1)
        assert [count for _, count in delivery.batches] == [1]
        publish_quickly(ground, 300)
        for _ in range(800):  # fewer than a batch may have, in the time for which one gathers
            ground.publish(b"body", delay=LONG)
        await_settled(ingress, 1101)
        batches = delivery.batches
    follows_many = [
        later - earlier
        for (earlier, count), (later, next_one) in pairwise(batches)
        if count >= consuming.MANY and next_one < 1000
    ]
    assert sum(count for _, count in batches) == 1101
    assert follows_many, "there were batches of many"
    assert min(follows_many) > GATHERED_FOR / 2


def publish_quickly(ground: Ground, count: int) -> None:
    """Without confirms. The channel stays open: it would forget what the queue has not taken yet."""
    channel = ground.connection.channel()
    properties = pika.BasicProperties(headers={"x-delay": LONG}, delivery_mode=2)
    for _ in range(count):
        channel.basic_publish(EXCHANGE, "invoice.new", b"body", properties)
