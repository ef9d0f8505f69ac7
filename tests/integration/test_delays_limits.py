"""Looking at what waits never sends it on early: delivery limits, on a real broker."""

from collections.abc import Callable
from contextlib import closing
from urllib.parse import quote

import pytest

from delaystore.cascades.delivery_limits import limit_policy
from delaystore.cascades.management import Management
from delaystore.cascades.policies import policy_for
from delaystore.transports import RabbitMQTransport
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2
from tests.integration.cascades import channel_to
from tests.integration.cli import CommandLine
from tests.integration.waiting_messages import QUORUM, declare_cascades, level_queues, nservicebus_headers, put
from tests.servers import RabbitMQVhosts

V2, MINE = "nservicebus-v2", "custom:mine:20"
LEVEL = NSERVICEBUS_V2.level(16)
DELAY = 70_000
MOVE = ("cascade", "migrate", "--from", V2, "--to", MINE)


@pytest.fixture
def limits_by_default(management: Management) -> bool:
    """Whether the broker has limits without being told; RabbitMQ 3 has not."""
    return int(management.version().partition(".")[0]) >= 4


@pytest.fixture
def environment(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> dict[str, str]:
    return {"DELAYSTORE_BROKER": rabbitmq_url, "DELAYSTORE_MANAGEMENT": rabbitmq.management_url or ""}


@pytest.fixture
def limit(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Callable[[int], None]:
    """Sets a delivery limit for all level queues, by a policy of somebody else's."""
    path = f"/api/policies/{quote(rabbitmq.vhost_name(rabbitmq_url), safe='')}/theirs"

    def set_limit(number: int) -> None:
        rabbitmq.request(
            "PUT", path, {"pattern": "level", "definition": {"delivery-limit": number}, "apply-to": "queues"}
        )

    return set_limit


def put_one(url: str) -> None:
    with channel_to(url) as channel:
        channel.confirm_delivery()
        channel.queue_declare("sales", durable=True, arguments=QUORUM)
        put(channel, NSERVICEBUS_V2, DELAY, "sales", message_id="one", headers=nservicebus_headers(DELAY))


def give_back(url: str, queue: str, times: int) -> int:
    """Read and reject the first message of the queue, over and over; how often that worked."""
    with channel_to(url) as channel:
        for time in range(times):
            method = next((found for _ in range(200) if (found := channel.basic_get(queue)[0]) is not None), None)
            if method is None:
                return time
            channel.basic_reject(method.delivery_tag, requeue=True)
            channel.basic_qos(prefetch_count=1)  # its answer shows that the message is back
    return times


def waiting(url: str) -> dict[str, int]:
    with channel_to(url) as channel:
        counts = {name: channel.queue_declare(name, passive=True).method.message_count for name in level_queues(V2)}
    return {name: count for name, count in counts.items() if count}


def test_what_create_made_may_be_read_as_often_as_one_likes(
    run: CommandLine, rabbitmq_url: str, management: Management, limits_by_default: bool
) -> None:
    if not limits_by_default:
        pytest.skip("RabbitMQ 3 has no limit unless told")
    created = run("cascade", "create", "--json")
    assert created.code == 0
    assert created.document["limit_policy"]["state"] == "set"
    assert run("cascade", "verify").code == 0
    put_one(rabbitmq_url)
    assert give_back(rabbitmq_url, LEVEL, 30) == 30
    assert waiting(rabbitmq_url) == {LEVEL: 1}
    declare_cascades(rabbitmq_url, V2)  # as NServiceBus does
    assert run("cascade", "create", "--json").document["limit_policy"]["state"] == "present"
    deleted = run("cascade", "delete", "--yes", "--force", "--json")
    assert f"policy {limit_policy(NSERVICEBUS_V2).name!r}" in deleted.document["deleted_policies"]  # type: ignore[union-attr]
    assert list(management.policies()) == []


def test_a_limit_of_old_is_told_and_lifted(run: CommandLine, rabbitmq_url: str, limits_by_default: bool) -> None:
    if not limits_by_default:
        pytest.skip("RabbitMQ 3 has no limit unless told")
    declare_cascades(rabbitmq_url, V2)
    found = run("cascade", "verify", "--json")
    assert found.code == 1
    (limited,) = (one for one in found.document["findings"] if one["kind"] == "delivery-limit")
    assert "run delaystore cascade create" in limited["text"]
    put_one(rabbitmq_url)
    assert run("cascade", "create").code == 0
    assert run("cascade", "verify").code == 0
    assert give_back(rabbitmq_url, LEVEL, 30) == 30
    assert waiting(rabbitmq_url) == {LEVEL: 1}


def test_older_brokers_need_no_policy(run: CommandLine, management: Management, limits_by_default: bool) -> None:
    if limits_by_default:
        pytest.skip("this broker needs one")
    assert run("cascade", "create", "--json").document["limit_policy"]["state"] == "not-needed"
    assert list(management.policies()) == [policy_for(NSERVICEBUS_V2)]
    assert run("cascade", "verify").code == 0


def test_a_policy_of_somebody_else_is_named_and_left(
    run: CommandLine,
    limit: Callable[[int], None],
    rabbitmq: RabbitMQVhosts,
    management: Management,
    limits_by_default: bool,
) -> None:
    if not limits_by_default:
        pytest.skip("RabbitMQ 3 has no limit unless told")
    path = f"/api/policies/{quote(management.virtual_host, safe='')}/theirs"
    rabbitmq.request("PUT", path, {"pattern": "level", "definition": {"max-length": 10**6}, "apply-to": "queues"})
    created = run("cascade", "create")
    assert created.code == 1
    assert "policy 'theirs' (priority 0) applies" in created.err
    assert run("cascade", "verify").code == 1
    limit(5)
    assert run("cascade", "create", "--json").document["limit_policy"]["state"] == "not-set"
    limit(100_000)  # for the levels, and not for the queue of undeliverable messages
    assert run("cascade", "create", "--json").document["limit_policy"]["state"] == "set"
    assert run("cascade", "verify").code == 0
    assert run("cascade", "create", "--json").document["limit_policy"]["state"] == "present"


def test_a_dry_run_reads_nothing_that_reading_wears_out(
    run: CommandLine, rabbitmq_url: str, limit: Callable[[int], None]
) -> None:
    declare_cascades(rabbitmq_url, V2, MINE)
    limit(20)
    put_one(rabbitmq_url)
    line = run.refused(*MOVE, "--dry-run")
    assert "so messages would leave it early; run delaystore cascade create --cascade nservicebus-v2" in line
    with channel_to(rabbitmq_url) as channel:
        method, properties, _ = channel.basic_get(LEVEL)
        assert not method.redelivered
        assert not properties.headers.get("x-delivery-count")
    limit(100_000)


def test_without_the_management_api_a_dry_run_asks_for_it(
    run: CommandLine, rabbitmq_url: str, limits_by_default: bool
) -> None:
    declare_cascades(rabbitmq_url, V2, MINE)
    put_one(rabbitmq_url)
    if limits_by_default:
        assert "pass --management URL" in run.refused(*MOVE, "--dry-run", "--management", "")
    else:
        assert run(*MOVE, "--dry-run", "--management", "").code == 0
    assert waiting(rabbitmq_url) == {LEVEL: 1}


def test_a_move_stops_long_before_the_limit(run: CommandLine, rabbitmq_url: str, limit: Callable[[int], None]) -> None:
    declare_cascades(rabbitmq_url, V2, MINE)
    limit(20)
    put_one(rabbitmq_url)
    assert give_back(rabbitmq_url, LEVEL, 10) == 10
    assert "was read and given back 10 times, and after 20" in run.refused(*MOVE)
    assert waiting(rabbitmq_url) == {LEVEL: 1}
    limit(100_000)
    moved = run(*MOVE, "--json")
    assert (moved.code, moved.document["moved"]) == (0, 1)


def test_people_may_look_at_the_error_queue_as_often_as_they_like(
    rabbitmq_url: str, management: Management, limits_by_default: bool
) -> None:
    with channel_to(rabbitmq_url) as channel:
        channel.queue_declare("older", durable=True, arguments=QUORUM)
    with closing(RabbitMQTransport(rabbitmq_url)) as transport:
        for name in ("error", "error", "older"):
            transport.declare_error_queue(name)
        transport.declare("billing")
    with channel_to(rabbitmq_url) as channel:
        channel.basic_publish("", "error", b"failed")
        channel.queue_declare("billing", durable=True, arguments=QUORUM)  # as its consumer does
    assert give_back(rabbitmq_url, "error", 30) == 30
    arguments = {name: dict(queue.arguments) for name, queue in management.queues().items()}
    lifted = {"x-delivery-limit": 100_000} if limits_by_default else {}
    assert arguments == {"error": {**QUORUM, **lifted}, "older": QUORUM, "billing": QUORUM}


def test_health_warns_of_an_error_queue_that_drops_what_is_looked_at(
    run: CommandLine, rabbitmq_url: str, limit: Callable[[int], None], sqlite_url: str
) -> None:
    health = ("health", "--store", sqlite_url, "--endpoint", "sales", "--error-queue")
    assert run("setup", "--store", sqlite_url, "--endpoint", "sales").code == 0
    with closing(RabbitMQTransport(rabbitmq_url)) as transport:
        transport.declare_error_queue("error")
    with channel_to(rabbitmq_url) as channel:
        channel.queue_declare("level of old", durable=True, arguments=QUORUM)
        channel.queue_declare("level lifted", durable=True, arguments={**QUORUM, "x-delivery-limit": 100_000})
    limit(20)
    assert run(*health, "error").err == ""
    warned = run(*health, "level of old")
    assert warned.code == 0
    assert "warning: queue 'level of old' has a delivery limit of 20" in warned.err
    assert run(*health, "level of old", "--json").document["warning"] in warned.err
    assert "policy 'theirs' (priority 0) applies" in run(*health, "level lifted").err
    unknown = run(*health, "error", "--management", "http://127.0.0.1:1", "--json")
    assert unknown.code == 0
    assert "limit of queue 'error' is unknown" in unknown.document["warning"]
