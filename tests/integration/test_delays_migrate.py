"""Moving what waits between cascades and brokers, by the command line, on real brokers."""

import json
import re
import signal
import struct
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pika
import pytest

from delaystore.cascades.moving.broker_cascade import BrokerCascade
from delaystore.cascades.moving.mover import BATCH, WORKERS
from delaystore.text import EXPIRATION
from delaystore.transports.abc import DELIVERED
from delaystore.transports.rabbitmq.copies import Copy
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, due_time, time_sent_text
from delaystore.transports.rabbitmq.raw import RawProperties, TableEntry, bytes_value, join_table, text_value
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V1, NSERVICEBUS_V2, celery
from tests.dispatching import wait_until
from tests.integration.cascades import channel_to
from tests.integration.cli import PATIENCE, CommandLine, started
from tests.integration.waiting_messages import (
    QUORUM,
    declare_cascades,
    level_queues,
    nservicebus_headers,
    put,
    put_many,
    take_all,
)
from tests.long import long
from tests.servers import RabbitMQ, RabbitMQVhosts

V1, V2 = "nservicebus-v1", "nservicebus-v2"
MIGRATE = ("cascade", "migrate")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rabbitmq_url: str) -> CommandLine:
    """The command line, with a broker that has both of NServiceBus' cascades and a queue `sales`."""
    environment = {"DELAYSTORE_BROKER": rabbitmq_url}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    declare_cascades(rabbitmq_url, V1, V2)
    with channel_to(rabbitmq_url) as channel:
        channel.queue_declare("sales", durable=True, arguments=QUORUM)
    return CommandLine(capsys, environment)


@pytest.fixture
def broker(command: CommandLine) -> str:
    return command.environment["DELAYSTORE_BROKER"]


def depth(url: str, queues: list[str]) -> int:
    with channel_to(url) as channel:
        return sum(channel.queue_declare(queue, passive=True).method.message_count for queue in queues)


def killed_while_moving(
    arguments: list[str], environment: dict[str, str], source: tuple[str, str], target: tuple[str, str], enough: int
) -> None:
    """Run it, and kill it once more than so many copies are in the target; until the source has its messages back.

    `source`, `target`: URL and cascade. It is stopped while they are looked at, so that it never is over before, and
    the brokers have read all that it has written: no acknowledgement is lost with its connection.
    """
    process = started(arguments, environment)
    deadline = time.monotonic() + 3 * PATIENCE
    try:
        while stopped_and_settled(process, source, target) <= enough:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            process.send_signal(signal.SIGCONT)
            time.sleep(0.1)
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: not consumers(source), "the source has noticed")


def stopped_and_settled(process: subprocess.Popen[str], source: tuple[str, str], target: tuple[str, str]) -> int:
    """Stop it, and wait until neither side changes any more; how many are in the target."""
    process.send_signal(signal.SIGSTOP)
    before, now = (-1, -1), (0, 0)
    while now != before:
        before, now = now, (depth(source[0], level_queues(source[1])), depth(target[0], level_queues(target[1])))
    return now[1]


def consumers(place: tuple[str, str]) -> int:
    url, cascade = place
    with channel_to(url) as channel:
        declared = [channel.queue_declare(queue, passive=True).method for queue in level_queues(cascade)]
    return sum(method.consumer_count for method in declared)


@pytest.mark.parametrize("count", [3000, long(8000), pytest.param(20_000, marks=pytest.mark.soak)])
def test_messages_outlive_kills_while_they_are_migrated(broker: str, rabbitmq: RabbitMQVhosts, count: int) -> None:
    kills = 2
    put_many(broker, NSERVICEBUS_V1, range(count), "sales")
    environment = {"DELAYSTORE_BROKER": broker, "DELAYSTORE_MANAGEMENT": rabbitmq.management_url or ""}
    for kill in range(1, kills + 1):
        enough = kill * (WORKERS * BATCH + count // 20)  # so that some were acknowledged, beside those in both
        killed_while_moving([*MIGRATE], environment, (broker, V1), (broker, V2), enough)
    last = started([*MIGRATE, "--json"], environment)
    out, err = last.communicate(timeout=3 * PATIENCE)
    assert last.returncode == 0, err
    report = json.loads(out)
    assert report["adds_up"], report
    assert report["source"] == {
        "cascade": report["source"]["cascade"],
        "before": report["read"],
        "after": 0,
        "held": 0,
    }
    assert 0 < report["moved"] == report["read"] < count
    found = take_all(broker, level_queues(V2))
    ids = Counter(properties.message_id for _, _, properties, _ in found)
    assert ids.keys() == {str(number) for number in range(count)}
    assert ids.total() - count <= kills * WORKERS * BATCH
    for _, method, properties, body in found[:: count // 500]:
        key = NSERVICEBUS_V2.read_key(method.routing_key)
        due = due_time(properties.headers)
        assert key is not None
        assert due is not None
        assert key.address == "sales"
        assert body == properties.message_id.encode()
        now = datetime.now(UTC)
        assert due - timedelta(minutes=5) < now + timedelta(seconds=key.units) < due + timedelta(minutes=5)


def test_a_moved_message_arrives_when_it_is_due_and_not_before(command: CommandLine, broker: str) -> None:
    with channel_to(broker) as channel:
        put(channel, NSERVICEBUS_V1, 5, "sales", message_id="soon", headers=nservicebus_headers(5))
        put(
            channel,
            NSERVICEBUS_V1,
            4000,
            "sales",
            message_id="overdue",
            headers=nservicebus_headers(60, datetime.now(UTC) - timedelta(hours=1)),
        )
    result = command(*MIGRATE, "--json")
    assert result.code == 0, result.err
    assert result.document["moved"] == 2
    assert result.document["disagreeing"] == 1
    arrived = {}
    deadline = time.monotonic() + PATIENCE
    with channel_to(broker) as channel:
        while len(arrived) < 2:
            method, properties, _ = channel.basic_get("sales", auto_ack=True)
            if method is not None:
                arrived[properties.message_id] = (datetime.now(UTC), due_time(properties.headers))
            assert time.monotonic() < deadline
            time.sleep(0.02)
    for at, due in arrived.values():
        assert due is not None
        assert at >= due


def test_properties_and_headers_of_any_kind_survive_unchanged(command: CommandLine, broker: str) -> None:
    odd = odd_properties()
    publish_raw(broker, odd, "sales")
    assert command(*MIGRATE).code == 0
    ((_, _, properties, body),) = take_all(broker, level_queues(V2), raw=True)
    assert body == b"odd"
    assert properties.encoded == odd.encoded


@pytest.mark.long
def test_what_the_broker_left_on_a_message_is_taken_off(command: CommandLine, broker: str) -> None:
    own = {**nservicebus_headers(5000), "number": 7}
    death = {"x-death": [{"queue": "q", "count": 1}], "x-first-death-queue": "q", "x-last-death-reason": "expired"}
    with channel_to(broker) as channel:
        put(channel, NSERVICEBUS_V1, 5000, "sales", headers=own | death, expiration="3600000")
    take_all(broker, level_queues(V1), give_back=True)  # it goes back, and counts as redelivered
    assert command(*MIGRATE).code == 0
    ((_, _, properties, _),) = take_all(broker, level_queues(V2))
    assert properties.headers == own | {EXPIRATION: "3600000"}
    assert properties.expiration is None
    assert properties.message_id is None


def test_what_cannot_be_moved_goes_to_the_poison_queue_with_the_reason(command: CommandLine, broker: str) -> None:
    known = nservicebus_headers(5000)
    with channel_to(broker) as channel:
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="good", headers=known)
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="undated", headers={"n": 1})
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="half-dated", headers={TIME_SENT: known[TIME_SENT]})
        put(channel, NSERVICEBUS_V1, 5000, "gone", message_id="no such queue", headers=known)
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="copies", headers={**known, "CC": ["sales"]})
        far = nservicebus_headers(2**28 + 9000)
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="too far", headers=far, expiration="3600000")
        channel.basic_publish("", NSERVICEBUS_V1.level(12), b"", pika.BasicProperties(message_id="no key"))
    result = command(*MIGRATE, "--json", "--poison-queue", "my.poison")
    assert result.code == 0, result.err
    assert (result.document["read"], result.document["moved"], result.document["poisoned"]) == (7, 1, 6)
    assert "'my.poison'" in result.err
    reasons = {
        properties.message_id: (properties.headers, properties.expiration)
        for _, _, properties, _ in take_all(broker, ["my.poison"])
    }
    expected = {
        "undated": "do not say when",
        "half-dated": "do not say when",
        "no such queue": "no queue 'gone'",
        "copies": "'CC'",
        "too far": "beyond the maximum",
        "no key": "routing key",
    }
    assert reasons.keys() == expected.keys()
    for name, (headers, expiration) in reasons.items():
        assert expected[name] in headers["delaystore.poison-reason"]
        assert headers["delaystore.poison-queue"] == NSERVICEBUS_V1.level(12)
        assert expiration is None
    assert reasons["undated"][0]["n"] == 1
    assert reasons["copies"][0]["delaystore.cc"] == ["sales"]
    assert reasons["too far"][0][EXPIRATION] == "3600000"
    assert NSERVICEBUS_V1.read_key(reasons["no such queue"][0]["delaystore.poison-routing-key"]) == (5000, "gone")
    assert depth(broker, ["sales"]) == 0


@pytest.mark.long
def test_messages_without_headers_go_by_their_key_if_told(command: CommandLine, broker: str) -> None:
    with channel_to(broker) as channel:
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="undated")
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="dated", headers=nservicebus_headers(9000))
    assert command(*MIGRATE, "--due-from", "either").code == 0
    waits = {}
    for _, method, properties, _ in take_all(broker, level_queues(V2)):
        key = NSERVICEBUS_V2.read_key(method.routing_key)
        assert key is not None
        waits[properties.message_id] = key.units
        assert due_time(properties.headers) is not None
    assert waits["undated"] == 5000
    assert 8900 < waits["dated"] <= 9000


def test_celerys_tasks_go_by_their_eta_and_are_bound_as_told(command: CommandLine, broker: str) -> None:
    declare_cascades(broker, "celery")
    eta = datetime.now(UTC) + timedelta(seconds=7000)
    headers = {"task": "tasks.add", "id": "1", "eta": eta.isoformat()}
    with channel_to(broker) as channel:
        channel.exchange_declare("orders", "fanout", durable=True)
        channel.queue_bind("sales", "orders")
        put(channel, celery(), 8000, "orders", headers=headers)
    assert command(*MIGRATE, "--from", "celery", "--to", V2, "--routing", "conventional").code == 0
    ((_, method, properties, _),) = take_all(broker, level_queues(V2))
    assert properties.headers == headers
    key = NSERVICEBUS_V2.read_key(method.routing_key)
    assert key is not None
    assert 6900 < key.units <= 7000
    with channel_to(broker) as channel:
        channel.basic_publish("nsb.v2.delay-delivery", NSERVICEBUS_V2.key(0, "orders"), b"bound", mandatory=True)
        channel.queue_declare("sales", passive=True)
    assert depth(broker, ["sales"]) == 1


def test_a_dry_run_says_what_would_happen_and_changes_nothing(command: CommandLine, broker: str) -> None:
    put_many(broker, NSERVICEBUS_V1, range(50), "sales")
    put_many(broker, NSERVICEBUS_V1, range(50, 60), "gone")
    result = command(*MIGRATE, "--dry-run", "--json")
    assert result.code == 0, result.err
    report = result.document
    assert (report["dry_run"], report["read"], report["moved"], report["poisoned"]) == (True, 60, 50, 10)
    assert report["destinations"] == {"sales": 50}
    assert list(report["poison_reasons"].values()) == [10]
    assert depth(broker, level_queues(V1)) == 60
    assert depth(broker, level_queues(V2)) == 0
    with channel_to(broker) as channel, pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare("delays.poison", passive=True)
    with channel_to(broker) as channel:
        channel.basic_publish("nsb.v2.delay-delivery", NSERVICEBUS_V2.key(0, "sales"), b"unbound")
        channel.queue_declare("sales", passive=True)
    assert depth(broker, ["sales"]) == 0


@pytest.mark.long
def test_what_a_dry_run_read_is_not_taken_for_copied_twice(command: CommandLine, broker: str) -> None:
    put_many(broker, NSERVICEBUS_V1, range(5), "sales")
    dry, moved = command(*MIGRATE, "--dry-run"), command(*MIGRATE)
    assert (dry.code, moved.code) == (0, 0)
    assert "copied twice" not in dry.out + moved.out
    assert depth(broker, level_queues(V2)) == 5


@pytest.mark.long
def test_a_maximum_rate_is_kept_and_an_interrupt_leaves_the_rest(broker: str) -> None:
    put_many(broker, NSERVICEBUS_V1, range(500), "sales")
    process = started([*MIGRATE, "--max-rate", "50", "--json"], {"DELAYSTORE_BROKER": broker})
    try:
        allowed, moved = moved_within(broker, 60)
        assert moved <= allowed
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert "run it again" in err
    report = json.loads(out)
    assert report["interrupted"]
    assert report["moved"] == depth(broker, level_queues(V2))
    assert report["moved"] + depth(broker, level_queues(V1)) == 500


def moved_within(broker: str, enough: int) -> tuple[float, int]:
    """How many may have been moved at 50 a second since the first were seen, a burst included, and how many were."""
    deadline = time.monotonic() + PATIENCE
    looked = time.monotonic()
    while not (first := depth(broker, level_queues(V2))):
        assert time.monotonic() < deadline
        looked = time.monotonic()  # before the look that sees the first
    while (moved := depth(broker, level_queues(V2))) < enough:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return 10 + 50 * (time.monotonic() - looked), moved - first


@pytest.mark.long
@pytest.mark.parametrize("count", [4000, pytest.param(8000, marks=pytest.mark.soak)])
def test_messages_are_transferred_to_another_broker_through_a_kill(
    broker: str, private_rabbitmq: RabbitMQ, count: int
) -> None:
    other = private_rabbitmq.url
    declare_cascades(other, V2)
    with channel_to(other) as channel:
        channel.queue_declare("sales", durable=True, arguments=QUORUM)
    put_many(broker, NSERVICEBUS_V2, range(count), "sales")
    put_many(broker, NSERVICEBUS_V2, range(count, count + 10), "gone")
    environment = {"DELAYSTORE_BROKER": broker, "DELAYSTORE_CASCADE_TRANSFER_TO_BROKER": other}
    transfer = ["cascade", "transfer"]
    killed_while_moving(transfer, environment, (broker, V2), (other, V2), count // 4)
    last = started([*transfer, "--json"], environment)
    out, err = last.communicate(timeout=3 * PATIENCE)
    assert last.returncode == 0, err
    assert json.loads(out)["adds_up"]
    ids = Counter(properties.message_id for _, _, properties, _ in take_all(other, level_queues(V2)))
    assert ids.keys() == {str(number) for number in range(count)}
    assert ids.total() - count <= WORKERS * BATCH
    poisoned = {properties.message_id for _, _, properties, _ in take_all(broker, ["delays.poison"])}
    assert poisoned == {str(number) for number in range(count, count + 10)}
    assert depth(broker, level_queues(V2)) == 0


def test_what_neither_target_nor_poison_queue_takes_stays_and_is_told(
    command: CommandLine, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.copies._MOST", 2**20)  # as if a frame held more
    with channel_to(broker) as channel:
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="too large to explain", headers={"h": "x" * 131_000})
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="good", headers=nservicebus_headers(5000))
    result = command(*MIGRATE, "--json")
    assert result.code == 1
    assert (result.document["moved"], result.document["left"], result.document["adds_up"]) == (1, 1, False)
    assert "does not add up: 1 stayed in the source" in result.err
    assert depth(broker, level_queues(V1)) == 1


@pytest.mark.long
def test_a_full_poison_queue_ends_it_with_nothing_lost(command: CommandLine, broker: str) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with channel_to(broker) as channel:
        channel.queue_declare("delays.poison", durable=True, arguments=full)
        channel.basic_publish("", "delays.poison", b"")
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="undated")
    line = command.refused(*MIGRATE, "--target-timeout", "1s")
    assert "nothing could be published for 1 s: nacked" in line
    assert depth(broker, level_queues(V1)) == 1


@pytest.mark.long
def test_a_message_of_another_user_goes_to_the_poison_queue(
    command: CommandLine, broker: str, rabbitmq: RabbitMQVhosts
) -> None:
    vhost = rabbitmq.vhost_name(broker)
    other = f"other-{vhost}"
    rabbitmq.request("PUT", f"/api/users/{other}", {"password": "hidden", "tags": ""})
    try:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        rabbitmq.request("PUT", f"/api/permissions/{vhost}/{other}", everything)
        with channel_to(f"amqp://{other}:hidden@{broker.partition('@')[2]}") as channel:
            put(channel, NSERVICEBUS_V1, 5000, "sales", user_id=other, headers=nservicebus_headers(5000))
        with channel_to(broker) as channel:
            put(channel, NSERVICEBUS_V1, 5000, "sales", user_id="delaystore", headers=nservicebus_headers(5000))
        assert command(*MIGRATE).code == 0
    finally:
        rabbitmq.request("DELETE", f"/api/users/{other}")
    ((_, _, properties, _),) = take_all(broker, ["delays.poison"])
    assert properties.headers["delaystore.user-id"] == other
    assert "user_id is another's" in properties.headers["delaystore.poison-reason"]
    ((_, _, properties, _),) = take_all(broker, level_queues(V2))
    assert properties.user_id == "delaystore"


def test_mistakes_are_answered_in_one_line(command: CommandLine, broker: str, rabbitmq: RabbitMQVhosts) -> None:
    unreachable = "amqp://guest:secret@127.0.0.1:1/"
    elsewhere = broker.replace("127.0.0.1", "localhost")
    transfer = ("cascade", "transfer", "--to-broker")
    assert "share level queues" in command.refused(*MIGRATE, "--from", V2)
    assert "share level queues" in command.refused(*MIGRATE, "--from", "celery", "--to", "celery:classic")
    assert "share level queues" in command.refused(*transfer, elsewhere)
    assert "no cascade is called" in command.refused(*MIGRATE, "--to", "nservicebus-v3")
    assert "has no cascade celery" in command.refused(*MIGRATE, "--from", "celery")
    assert "run delaystore cascade create --cascade custom:x" in command.refused(*MIGRATE, "--to", "custom:x")
    assert "is a part of the cascade" in command.refused(*MIGRATE, "--poison-queue", NSERVICEBUS_V1.level(3))
    assert "above 0" in command.refused(*MIGRATE, "--max-rate", "0")
    assert "--to-broker" in command.refused("cascade", "transfer")
    line = command.refused(*transfer, unreachable)
    assert "cannot be reached" in line
    assert "secret" not in line
    assert "login refused" in command.refused(*MIGRATE, "--broker", broker.replace("://delaystore:", "://delaystore:x"))


def test_where_nothing_tells_whether_it_is_one_broker_nothing_is_moved(
    command: CommandLine, broker: str, rabbitmq: RabbitMQVhosts
) -> None:
    put_many(broker, NSERVICEBUS_V2, range(5), "sales")
    with rabbitmq.user(broker, configure="^nsb", write=".*", read=".*") as url:
        elsewhere = url.replace("127.0.0.1", "localhost")
        line = command.refused("cascade", "transfer", "--broker", url, "--to-broker", elsewhere)
    assert "may be one broker" in line
    assert depth(broker, level_queues(V2)) == 5


def test_a_missing_permission_ends_it_in_one_line_with_nothing_lost(
    command: CommandLine, broker: str, rabbitmq: RabbitMQVhosts
) -> None:
    put_many(broker, NSERVICEBUS_V1, range(20), "sales")
    vhost = rabbitmq.vhost_name(broker)
    limited = f"limited-{vhost}"
    rabbitmq.request("PUT", f"/api/users/{limited}", {"password": "hidden", "tags": ""})
    try:
        grants = {
            "cannot be looked at|cannot be read|403": {"configure": ".*", "write": ".*", "read": "^$"},
            "cannot be bound": {"configure": ".*", "write": "^(?!sales)", "read": ".*"},
            "cannot be declared": {"configure": "^$", "write": ".*", "read": ".*"},
        }
        url = f"amqp://{limited}:hidden@{broker.partition('@')[2]}"
        for reason, grant in grants.items():
            rabbitmq.request("PUT", f"/api/permissions/{vhost}/{limited}", grant)
            line = command.refused(*MIGRATE, "--broker", url)
            assert re.search(reason, line), line
            assert "hidden" not in line
            with channel_to(broker) as channel:
                channel.queue_delete("delays.poison")
    finally:
        rabbitmq.request("DELETE", f"/api/users/{limited}")
    assert depth(broker, level_queues(V1)) == 20


def odd_properties() -> RawProperties:
    """What pika would spoil: floats, narrow numbers, times no calendar has, text that is no UTF-8."""
    odd = {
        b"double": struct.pack(">cd", b"d", 1.5),
        b"float": struct.pack(">cf", b"f", 0.1),
        b"octet": struct.pack(">cb", b"b", -3),
        b"short": struct.pack(">ch", b"s", -300),
        b"long ago": struct.pack(">cQ", b"T", 2**60),
        b"text": b"S" + struct.pack(">I", 2) + b"\xff\xfe",
        b"bytes": bytes_value(b"\x00"),
        b"table": b"F" + join_table([TableEntry(b"half", struct.pack(">cf", b"f", 0.5))]),
    }
    known = {
        TIME_SENT.encode(): text_value(time_sent_text(datetime.now(UTC))),
        DELAY_IN_SECONDS.encode(): struct.pack(">ci", b"I", 5000),
    }
    typed = pika.BasicProperties(content_type="text/x", delivery_mode=1, priority=3, timestamp=2**50, type="t")
    entries = [TableEntry(name, value) for name, value in sorted((odd | known).items())]  # as RabbitMQ 4 sorts them
    return RawProperties(b"".join(typed.encode())).changed(entries)


def publish_raw(url: str, properties: RawProperties, address: str) -> None:
    with BrokerCascade(url, NSERVICEBUS_V1, V1) as cascade:
        copy = Copy(NSERVICEBUS_V1.route(5000, address), properties, b"odd")
        assert cascade.publish([copy], PATIENCE) == [DELIVERED]


@pytest.mark.long
def test_headers_that_fill_a_frame_keep_no_message_from_the_poison_queue(command: CommandLine, broker: str) -> None:
    with channel_to(broker) as channel:
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="undated", headers={"large": "x" * 130_900})
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="good", headers=nservicebus_headers(5000))
    result = command(*MIGRATE, "--json", "--poison-queue", "my.poison")
    assert result.code == 0, result.err
    assert (result.document["read"], result.document["moved"], result.document["poisoned"]) == (2, 1, 1)
    ((_, _, properties, body),) = take_all(broker, ["my.poison"])
    size = properties.headers["delaystore.poison-properties-size"]
    assert "do not say when" in properties.headers["delaystore.poison-reason"]
    assert (body[size:], body[:size].count(b"x") >= 130_900) == (b"undated", True)


@pytest.mark.long
def test_headers_without_room_for_the_due_time_are_told(command: CommandLine, broker: str) -> None:
    with channel_to(broker) as channel:
        put(channel, NSERVICEBUS_V1, 5000, "sales", message_id="undated", headers={"large": "x" * 131_000})
    result = command(*MIGRATE, "--json", "--poison-queue", "my.poison", "--due-from", "either")
    assert result.code == 0, result.err
    assert (result.document["read"], result.document["poisoned"]) == (1, 1)
    ((_, _, properties, _),) = take_all(broker, ["my.poison"])
    assert "the broker's frame_max is" in properties.headers["delaystore.poison-reason"]
