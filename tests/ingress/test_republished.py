"""Consumers that publish again, under the same id, what they get while its dispatcher has not removed it yet."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delaystore.stores import SqlDelayedMessageStore
from tests.faults.patience import wait_until
from tests.faults.scale import scaled
from tests.ingress.ground import DESTINATION, LONG, QUEUE, Ground, endpoint, running, settled
from tests.long import long
from tests.service import serving as service
from tests.service.serving import serving, write

MESSAGES = 100
ROUNDS = scaled(6, 300)
DELAY = 300
"""Milliseconds: many are dispatched at once, so that their receiver has the first ones before they are removed."""
PATIENCE = 60
SILENCE = 25
"""Seconds without any message, after which none comes any more."""


def databases(*, quick: tuple[str, ...]) -> list[object]:
    return [name if name in quick else long(name) for name in ("postgresql", "mariadb", "sqlite")]


@pytest.mark.parametrize("database_url", databases(quick=("postgresql",)), indirect=True)
@pytest.mark.parametrize("rule", ["both", *(long(rule) for rule in ("keep", "replace"))])
def test_a_message_that_is_published_again_and_again_is_never_lost(
    ground: Ground, database_url: str, rule: str, tmp_path: Path
) -> None:
    rounds = {f"job-{number}": 0 for number in range(MESSAGES)}
    ingress = f'[endpoint.sales.ingress.orders]\non_duplicate = "{rule}"\n'
    config = write(tmp_path / "delaystore.toml", service.endpoint("sales", database_url, ground.url), ingress)
    with serving("--config", str(config)) as served:  # another process: what it forwards is here before it is removed
        served.wait_until_ready()
        for name in rounds:
            ground.publish(b"work", delay=DELAY, message_id=name)
        for method, properties, body in ground.channel.consume(DESTINATION, inactivity_timeout=SILENCE):
            assert method is not None, f"nothing comes any more: {sum(n < ROUNDS for n in rounds.values())} are lost"
            name = properties.message_id
            rounds[name] += 1
            if rounds[name] < ROUNDS:
                properties.headers["x-delay"] = DELAY if rounds[name] % 2 else -DELAY  # as it came
                ground.channel.basic_publish("orders", "invoice.new", body, properties, mandatory=True)
            ground.channel.basic_ack(method.delivery_tag)
            if min(rounds.values()) >= ROUNDS:
                break
        ground.channel.cancel()
        wait_until(lambda: ground.depth(QUEUE) == 0, "all is stored", PATIENCE)
        assert served.stop() == 0


@contextmanager
def claimed(url: str) -> Iterator[threading.Event]:
    """A dispatcher of another process that has claimed all that is due; it removes them once the event is set."""
    store, done, has_claimed = SqlDelayedMessageStore(url), threading.Event(), threading.Event()
    store.initialize("sales", "none")  # type: ignore[arg-type]

    def dispatch() -> None:
        with store.transaction() as block:
            messages = block.fetch_due(store.now(), 100)
            has_claimed.set()
            done.wait(PATIENCE)
            block.remove_many(messages)

    thread = threading.Thread(target=dispatch)
    thread.start()
    assert has_claimed.wait(PATIENCE)
    try:
        yield done
    finally:
        done.set()
        thread.join(PATIENCE)
        store.close()


@pytest.mark.long_runs("sqlite")
@pytest.mark.parametrize("database_url", databases(quick=("postgresql", "sqlite")), indirect=True)
@pytest.mark.parametrize("rule", ["both", *(long(rule) for rule in ("keep", "replace"))])
def test_what_stays_claimed_keeps_the_message_in_its_queue_while_others_go_on(
    ground: Ground, database_url: str, rule: str
) -> None:
    with endpoint(database_url) as delivery, running(delivery, ground.url, on_duplicate=rule) as ingress:
        ground.publish(b"work", message_id="job")
        wait_until(lambda: settled(ingress) == 1, "the first is stored", PATIENCE)
        with claimed(database_url) as dispatched:
            ground.publish(b"work", delay=LONG, message_id="job")
            wait_until(
                lambda: "a dispatcher has the message" in str(ingress.health().why_unacknowledged), "it waits", PATIENCE
            )
            for number in range(5):
                ground.publish(b"other", delay=LONG, message_id=f"other-{number}")
            wait_until(lambda: settled(ingress) == 6, "others are stored", PATIENCE)
            assert delivery.count() == 6
            dispatched.set()
        wait_until(lambda: settled(ingress) == 7, "it is stored in the end", PATIENCE)
        waiting = delivery.get("job")
        assert waiting is not None
        assert waiting.due_time.timestamp() > time.time() + LONG / 2000
        assert delivery.count() == 6
