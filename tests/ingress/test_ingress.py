"""Messages that any program publishes are stored, and arrive when they are due."""

import time

import pytest

from delaystore.errors import ConfigurationError, TransportError
from delaystore.ingress.ingress import Ingress
from delaystore.ingress.settings import IngressSettings
from tests.faults.patience import wait_until
from tests.ingress.ground import (
    DESTINATION,
    EXPIRED,
    LONG,
    QUEUE,
    REJECTED,
    Ground,
    await_settled,
    bodies,
    endpoint,
    rules,
    running,
    settled,
)


@pytest.mark.long_runs("sqlite")
def test_what_is_published_with_a_delay_arrives_when_it_is_due(ground: Ground, database_url: str) -> None:
    with endpoint(database_url, ground.url) as delivery, running(delivery, ground.url):
        began = time.time()
        ground.publish(b"later", delay=1500, message_id="one")
        ground.publish(b"sooner", delay=700)
        ground.publish(b"now")
        received = ground.receive(count=3)
    assert bodies(received) == [b"now", b"sooner", b"later"]
    assert received[1].at - began >= 0.7
    assert received[2].at - began >= 1.5
    assert received[2].properties.message_id == "one"
    assert received[2].properties.headers["x-delay"] == -1500
    assert [one.routing_key for one in received] == ["invoice.new"] * 3


def test_what_waits_can_be_listed_and_cancelled(ground: Ground, database_url: str) -> None:
    with endpoint(database_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"pay", delay=LONG, message_id="invoice-7")
        await_settled(ingress, 1)
        waiting = delivery.get("invoice-7")
        assert waiting is not None
        assert (waiting.body, waiting.destination) == (b"pay", "/exchanges/orders.out/invoice.new")
        assert delivery.cancel("invoice-7").value == "done"
    assert ground.depth(QUEUE) == 0


def test_the_same_message_again_is_acknowledged(ground: Ground, database_url: str) -> None:
    with endpoint(database_url) as delivery, running(delivery, ground.url) as ingress:
        for _ in range(3):
            ground.publish(b"pay", delay=LONG, message_id="invoice-7")
        ground.publish(b"other", delay=LONG, message_id="invoice-8")
        await_settled(ingress, 4)
        assert (ingress.health().stored, ingress.health().duplicate) == (2, 2)
        assert delivery.count() == 2


@pytest.mark.parametrize(
    ("rule", "stored", "waiting"),
    [
        ("both", 3, [b"one", b"two", b"three"]),
        ("keep", 1, [b"one"]),
        ("replace", 3, [b"three"]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_another_message_with_an_id_that_waits(
    ground: Ground, postgresql_url: str, rule: str, stored: int, waiting: list[bytes], at_once: bool
) -> None:
    published = [b"one", b"two", b"three"]
    with endpoint(postgresql_url) as delivery:
        if at_once:
            for body in published:
                ground.publish(body, delay=LONG, message_id="invoice-7")
        with running(delivery, ground.url, on_duplicate=rule) as ingress:
            for number, body in enumerate([] if at_once else published, 1):
                ground.publish(body, delay=LONG, message_id="invoice-7")
                await_settled(ingress, number)
            await_settled(ingress, 3)
            if at_once and rule == "replace":  # of a batch only the newest is stored
                assert ingress.health().stored + ingress.health().discarded == 3
            else:
                assert ingress.health().stored == stored
        found = delivery.list().messages
        assert sorted(one.body for one in found) == sorted(waiting)
        renamed = [one for one in found if one.message_id != "invoice-7"]
        assert all(one.headers["delaystore.original-message-id"] == "invoice-7" for one in renamed)


def test_both_and_the_same_again_are_two(ground: Ground, postgresql_url: str) -> None:
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url) as ingress:
        for body in (b"one", b"two", b"one", b"two"):
            ground.publish(body, delay=LONG, message_id="invoice-7")
            await_settled(ingress, settled(ingress) + 1)
        assert (ingress.health().stored, ingress.health().duplicate) == (2, 2)
        assert sorted(one.body for one in delivery.list().messages) == [b"one", b"two"]


@pytest.mark.parametrize("numbered", ["x-dotnet-pub-seq-no", "spring_returned_message_correlation", "traceparent"])
def test_what_a_client_counts_its_publishing_by_makes_no_other_message(
    ground: Ground, postgresql_url: str, numbered: str
) -> None:
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url) as ingress:
        for number, body in enumerate((b"one", b"two", b"one", b"two")):
            ground.publish(body, delay=LONG, message_id="invoice-7", headers={numbered: str(number)})
            await_settled(ingress, settled(ingress) + 1)
        assert (ingress.health().stored, ingress.health().duplicate) == (2, 2)
        found = {one.body: one.headers[numbered] for one in delivery.list().messages}
        assert found == {b"one": "0", b"two": "1"}


def test_a_bad_message_is_put_aside_with_the_reason_and_the_others_go_on(
    ground: Ground, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with endpoint(database_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"good", delay=LONG)
        ground.publish(b"bad", delay="soon", message_id="bad-1", headers={"kind": "x"}, app_id="shop")
        ground.publish(b"good too", delay=LONG)
        await_settled(ingress, 3)
        assert (ingress.health().stored, ingress.health().rejected) == (2, 1)
        (rejected,) = ground.receive(REJECTED)
        headers = rejected.properties.headers
        assert (rejected.body, rejected.properties.message_id, rejected.properties.app_id) == (b"bad", "bad-1", "shop")
        assert "x-delay" in headers["delaystore.rejected-reason"]
        assert (headers["delaystore.rejected-exchange"], headers["delaystore.rejected-routing-key"]) == (
            "orders",
            "invoice.new",
        )
        assert (headers["kind"], headers["x-delay"]) == ("x", "soon")
        said = f"rejected the message 'bad-1' of 'orders.ingress', moved to {REJECTED!r}: header x-delay is 'soon'"
        assert said in caplog.text
        assert delivery.count() == 2


@pytest.mark.long_runs("keep")
@pytest.mark.parametrize(("on_duplicate", "waits"), [("keep", b"0"), ("replace", b"2499")])
def test_an_id_that_a_whole_batch_has(
    ground: Ground, sqlite_url: str, on_duplicate: str, waits: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2500):
        ground.publish(b"%d" % number, delay=LONG, message_id="same")
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url, on_duplicate=on_duplicate) as ingress:
        await_settled(ingress, 2500)
        assert [one.body for one in delivery.list().messages] == [waits]
    assert "storing incoming messages fails" not in caplog.text


def test_the_newest_that_can_be_stored_replaces_the_others(ground: Ground, sqlite_url: str) -> None:
    for body in (b"oldest", b"older", b"newest", b"newest", b"x" * 11):
        ground.publish(body, delay=LONG, message_id="same")
    with (
        endpoint(sqlite_url, max_body_bytes=10) as delivery,
        running(delivery, ground.url, on_duplicate="replace") as ingress,
    ):
        await_settled(ingress, 5)
        assert [one.body for one in delivery.list().messages] == [b"newest"]
        assert (ingress.health().rejected, ingress.health().duplicate) == (1, 1)
    assert [one.body for one in ground.receive(REJECTED)] == [b"x" * 11]


def test_a_message_that_the_endpoint_refuses_is_put_aside(ground: Ground, database_url: str) -> None:
    with endpoint(database_url, max_body_bytes=100) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"x" * 101, delay=LONG)
        ground.publish(b"x" * 100, delay=LONG)
        await_settled(ingress, 2)
        assert (ingress.health().stored, ingress.health().rejected) == (1, 1)
        (rejected,) = ground.receive(REJECTED)
        assert "max_body_bytes" in rejected.properties.headers["delaystore.rejected-reason"]


@pytest.mark.long
def test_a_rejected_queue_that_takes_nothing_blocks_nobody(ground: Ground, postgresql_url: str) -> None:
    full = {"x-queue-type": "classic", "x-max-length": 0, "x-overflow": "reject-publish"}
    ground.channel.queue_declare(REJECTED, durable=True, arguments=full)
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"bad", delay="soon")
        ground.publish(b"good", delay=LONG)
        await_settled(ingress, 1)
        wait_until(lambda: ingress.health().unacknowledged == 1, "the bad one is unacknowledged")
        assert any(REJECTED in problem for problem in ingress.health().problems)
        for number in range(20):
            ground.publish(b"good %d" % number, delay=LONG)
        await_settled(ingress, 21)
        ground.channel.queue_delete(REJECTED)
        ground.channel.queue_declare(REJECTED, durable=True)
        await_settled(ingress, 22)
        assert ingress.health().healthy
        assert bodies(ground.receive(REJECTED)) == [b"bad"]
    assert ground.depth(QUEUE) == 0


def test_a_bad_message_whose_headers_leave_no_room_for_the_reason_is_put_aside(ground: Ground, sqlite_url: str) -> None:
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"bad", headers={"large": "x" * 130_900})
        await_settled(ingress, 1, patience=30)
        (rejected,) = ground.receive(REJECTED)
        headers = rejected.properties.headers
        size = headers["delaystore.rejected-properties-size"]
        assert rejected.properties.delivery_mode == 2
        assert (rejected.body[size:], len(rejected.body)) == (b"bad", size + 3)
        assert rejected.body.count(b"x") >= 130_900
        assert headers["delaystore.rejected-reason"]


def test_a_rejected_queue_that_was_deleted_is_declared_again(ground: Ground, sqlite_url: str) -> None:
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"good", delay=LONG)
        await_settled(ingress, 1)
        ground.channel.queue_delete(REJECTED)
        ground.publish(b"bad", delay="soon")
        await_settled(ingress, 2, patience=30)
        assert bodies(ground.receive(REJECTED)) == [b"bad"]


def test_what_expires_before_it_is_taken_is_not_lost(ground: Ground, postgresql_url: str) -> None:
    ground.publish(b"short-lived", delay=LONG, expiration="1")
    wait_until(lambda: ground.depth(EXPIRED) == 1, "it has expired")
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url) as ingress:
        await_settled(ingress, 1)
        (waiting,) = delivery.list().messages
        assert waiting.body == b"short-lived"
        assert waiting.destination == "/exchanges/orders.out/invoice.new"


def test_several_ingresses_share_a_queue(ground: Ground, postgresql_url: str) -> None:
    with (
        endpoint(postgresql_url) as one,
        endpoint(postgresql_url) as other,
        running(one, ground.url, prefetch=10) as first,
        running(other, ground.url, prefetch=10) as second,
    ):
        wait_until(lambda: ground.consumers(QUEUE) == 2, "both take from the queue")
        for number in range(300):
            ground.publish(b"%d" % number, delay=LONG)
        wait_until(lambda: settled(first) + settled(second) >= 300, "all are stored")
        assert settled(first)
        assert settled(second)
        assert one.count() == 300


def test_a_stop_under_load_repeats_nothing(ground: Ground, postgresql_url: str) -> None:
    for number in range(400):
        ground.publish(b"%d" % number, delay=LONG)
    with endpoint(postgresql_url) as delivery:
        rounds = 0
        while ground.depth(QUEUE) and rounds < 50:
            with running(delivery, ground.url, batch_size=20, prefetch=40) as ingress:
                await_settled(ingress, 1)
            rounds += 1
        assert rounds > 1, "each stop left some in the queue"
        assert sorted(int(one.body) for one in delivery.list(limit=1000).messages) == list(range(400))


def test_what_is_due_soon_may_be_forwarded_at_once(ground: Ground, postgresql_url: str) -> None:
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url, direct_below=5.0) as ingress:
        ground.publish(b"now")
        ground.publish(b"soon", delay=2000)
        ground.publish(b"later", delay=6000)
        await_settled(ingress, 3)
        assert (ingress.health().passthrough, ingress.health().stored) == (2, 1)
        assert sorted(bodies(ground.receive(count=2))) == [b"now", b"soon"]


def test_what_is_due_soon_waits_for_a_paused_destination(ground: Ground, postgresql_url: str) -> None:
    with endpoint(postgresql_url) as delivery:
        delivery.prepare()
        delivery.operations.pause("/exchanges/orders.out/invoice.new")
        with running(delivery, ground.url, direct_below=5.0) as ingress:
            ground.publish(b"now")
            ground.publish(b"other", key="other")
            await_settled(ingress, 2)
            assert (ingress.health().passthrough, ingress.health().stored) == (1, 1)


def test_what_cannot_be_forwarded_at_once_goes_into_the_store(ground: Ground, postgresql_url: str) -> None:
    ground.channel.queue_unbind(DESTINATION, "orders.out", "#")
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url, direct_below=5.0) as ingress:
        ground.publish(b"now")
        await_settled(ingress, 1)
        assert (ingress.health().passthrough, ingress.health().stored) == (0, 1)


def test_a_missing_queue_is_told_and_waited_for(rabbitmq_url: str, sqlite_url: str) -> None:
    with endpoint(sqlite_url) as delivery:
        ingress = Ingress(delivery, rabbitmq_url, rules(), IngressSettings(queue=QUEUE))
        with pytest.raises(TransportError, match=r"there is no queue 'orders.ingress'.*ingress create"):
            ingress.check()
        ingress.start()
        wait_until(lambda: ingress.health().obstacle, "it says so")
        assert "there is no queue" in ingress.health().problems[0]
        with Ground(rabbitmq_url) as ground:
            ground.publish(b"pay", delay=LONG)
            await_settled(ingress, 1)
            assert ingress.health().healthy
            ground.channel.queue_delete(QUEUE)
            wait_until(lambda: ingress.health().obstacle, "it notices that the queue was deleted")
        assert ingress.stop(30)
        assert not ingress.health().running


def test_the_url_may_be_one_that_a_transport_takes(ground: Ground, sqlite_url: str) -> None:
    with endpoint(sqlite_url) as delivery, running(delivery, f"{ground.url}?queue_type=classic") as ingress:
        ground.publish(b"pay", delay=LONG)
        await_settled(ingress, 1)


def test_it_can_be_started_again(ground: Ground, sqlite_url: str) -> None:
    with endpoint(sqlite_url) as delivery:
        ingress = Ingress(delivery, ground.url, rules(), IngressSettings(queue=QUEUE))
        assert ingress.stop()
        for number in (1, 2):
            ingress.start()
            ingress.start()
            ground.publish(b"%d" % number, delay=LONG)
            await_settled(ingress, number)
            assert ingress.stop(30)
            assert ingress.stop(30)
        assert delivery.count() == 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"queue": ""}, "queue is empty"),
        ({"queue": "q", "on_duplicate": "ask"}, "on_duplicate must be one of both, keep, replace"),
        ({"queue": "q", "prefetch": 0}, "prefetch must be a whole number from 1"),
        ({"queue": "q", "batch_size": 70_000}, "batch_size must be a whole number"),
        ({"queue": "q", "memory_bytes": 5}, "memory_bytes must be a whole number from 1,048,576"),
        ({"queue": "q", "direct_below": -1}, "direct_below must be"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        IngressSettings(**settings)  # type: ignore[arg-type]
