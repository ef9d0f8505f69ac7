"""`delaystore cascade create`, `verify`, `delete` and `bind` on a real broker."""

import shlex
import signal
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from delaystore.cascades import BrokerClient, FindingKind, TopologyInUseError, check_deletion, create, delete, verify
from delaystore.errors import TransportSetupError, TransportUnavailableError, UnsupportedMessageError
from delaystore.transports.rabbitmq.declaring import DeclarationError, declare, declare_part, ensure_bound
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, custom, topology_named
from tests.dispatching import wait_until
from tests.integration.cascades import channel_to
from tests.integration.cli import PATIENCE, CommandLine, started
from tests.servers import RabbitMQ, RabbitMQVhosts

LEVEL = "nsb.v2.delay-level-05"
POLICY = "delaystore undeliverable for nsb.v2.delay-delivery"
UNDELIVERABLE = "nsb.v2.delay-delivery.undeliverable"
NEVER_SEEN = "s3cret&word"


@pytest.fixture
def management(rabbitmq: RabbitMQVhosts) -> str:
    assert rabbitmq.management_url is not None
    return rabbitmq.management_url


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rabbitmq_url: str) -> CommandLine:
    """The command line with a broker, and no management API."""
    monkeypatch.setenv("DELAYSTORE_BROKER", rabbitmq_url)
    return CommandLine(capsys, {"DELAYSTORE_BROKER": rabbitmq_url})


@pytest.fixture
def run(bare: CommandLine, monkeypatch: pytest.MonkeyPatch, management: str) -> CommandLine:
    """The command line with a broker and its management API."""
    monkeypatch.setenv("DELAYSTORE_MANAGEMENT", management)
    bare.environment["DELAYSTORE_MANAGEMENT"] = management
    return bare


@pytest.fixture
def broker(rabbitmq_url: str, management: str) -> Iterator[BrokerClient]:
    with BrokerClient(rabbitmq_url, management) as opened:
        yield opened


@pytest.fixture
def new_user(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Callable[..., str]]:
    """Makes users; the URL of the test's virtual host as one of them."""
    made: list[str] = []

    def make(tags: str = "management", **permissions: str) -> str:
        name = f"user-{rabbitmq.new_vhost_name()}"
        made.append(name)
        rabbitmq.request("PUT", f"/api/users/{name}", {"password": NEVER_SEEN, "tags": tags})
        vhost = rabbitmq.vhost_name(rabbitmq_url)
        granted = {"configure": ".*", "write": ".*", "read": ".*"} | permissions
        rabbitmq.request("PUT", f"/api/permissions/{vhost}/{name}", granted)
        return as_user(rabbitmq_url, name, NEVER_SEEN)

    yield make
    for name in made:
        rabbitmq.request("DELETE", f"/api/users/{name}")


def as_user(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{name}:{quote(password, safe='')}@{host}").geturl()


def queues_of(broker: BrokerClient) -> set[str]:
    assert broker.management is not None
    return set(broker.management.queues())


def printed_commands(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("rabbitmqctl ")]


def publish(channel: Any, topology_name: str, delay: float, address: str) -> None:
    where = topology_named(topology_name).route(delay, address)
    channel.basic_publish(where.exchange, where.routing_key, b"body", mandatory=True)


# the broker


def test_the_broker_is_that_of_the_transport_unless_it_is_given(
    bare: CommandLine, rabbitmq_url: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DELAYSTORE_BROKER")
    assert "no broker is given; pass --broker URL" in bare.refused("cascade", "create")
    assert "no broker is given" in bare.refused("cascade", "create", "--transport", sqlite_url)
    mark = "&" if "?" in rabbitmq_url else "?"
    monkeypatch.setenv("DELAYSTORE_TRANSPORT", f"{rabbitmq_url}{mark}delays=nservicebus-v2&queue_type=classic")
    assert bare("cascade", "create").code == 0
    assert bare("ingress", "create", "orders", "--type", "topic").code == 0
    assert bare("ingress", "replay", "orders.ingress.rejected").out.startswith("0 messages of 0 in")
    assert "cannot be reached" in bare.refused("cascade", "verify", "--broker", "amqp://127.0.0.1:1")


# create and verify


@pytest.mark.parametrize("cascade", ["nservicebus-v2", "celery:classic:mine", "skipping:mine:6", "custom:mine:6:ms"])
def test_what_was_created_verifies_and_may_be_created_again(run: CommandLine, cascade: str) -> None:
    found = run("cascade", "verify", "--cascade", cascade)
    assert found.code == 1
    assert "missing" in found.out
    assert run("cascade", "create", "--cascade", cascade).code == 0
    good = run("cascade", "verify", "--cascade", cascade)
    assert (good.code, good.err) == (0, "")
    assert good.out.startswith(f"good: {cascade} on ")
    again = run("cascade", "create", "--cascade", cascade, "--json")
    assert again.code == 0
    assert again.document["missing"] == []
    assert again.document["policy"]["state"] in ("present", "not-needed")


def test_without_the_management_api_it_is_created_and_what_is_unknown_is_said(bare: CommandLine) -> None:
    created = bare("cascade", "create")
    assert created.code == 0
    assert printed_commands(created.out)[-1].startswith("rabbitmqctl set_policy --vhost ")
    assert "can hold up everybody's" in created.err
    found = bare("cascade", "verify", "--json")
    assert found.code == 0
    assert found.document["findings"] == []
    limits_unknown = [one for one in found.document["unchecked"] if "delivery limit" in one]  # from RabbitMQ 4 on
    assert len(limits_unknown) == len(printed_commands(created.out)) - 1
    assert len(found.document["unchecked"]) == 4 + len(limits_unknown)
    assert "not checked: which bindings" in bare("cascade", "verify").err


def test_a_dry_run_changes_nothing(run: CommandLine, broker: BrokerClient) -> None:
    planned = run("cascade", "create", "--dry-run")
    assert planned.code == 0
    assert f"would declare: queue '{LEVEL}'" in planned.out.splitlines()
    assert f"would set: policy '{POLICY}'" in planned.out.splitlines()
    assert queues_of(broker) == set()
    document = run("cascade", "create", "--dry-run", "--json").document
    assert len(document["missing"]) == 116
    assert document["declared"] == 0
    assert document["missing"][0] == {"part": "exchange", "name": UNDELIVERABLE}
    assert queues_of(broker) == set()


@pytest.mark.parametrize("with_management", [True, False])
def test_a_queue_of_another_kind_is_refused_before_anything_is_declared(
    bare: CommandLine, broker: BrokerClient, channel: Any, management: str, with_management: bool
) -> None:
    channel.queue_declare(LEVEL, durable=True, arguments={"x-message-ttl": 1000})
    options = ["--management", management] if with_management else []
    line = bare.refused("cascade", "create", *options)
    assert f"queue '{LEVEL}': x-" in line
    assert "nothing was declared" in line
    assert queues_of(broker) == {LEVEL}
    found = bare("cascade", "verify", "--json", *options)
    assert found.code == 1
    different = [one for one in found.document["findings"] if one["kind"] == "inequivalent"]
    assert {one["subject"] for one in different} == {f"queue '{LEVEL}'"}
    if with_management:
        by_argument = {one["argument"]: (one["expected"], one["actual"]) for one in different}
        assert by_argument["x-message-ttl"] == (32000, 1000)
        assert by_argument["x-queue-type"] == ("quorum", "classic")
        assert by_argument["x-overflow"] == ("reject-publish", None)


@pytest.mark.long_runs(after=4)
@pytest.mark.parametrize("with_management", [True, False])
@pytest.mark.parametrize(
    ("permissions", "tags"),
    [
        ({"configure": "^$"}, "management"),
        ({"configure": "(delivery|level-0[0-9]|undeliverable)$"}, "management"),
        ({"write": "^amq"}, "management"),
        ({"read": "^amq"}, "management"),
        ({"read": "level"}, "administrator"),
    ],
)
def test_a_user_with_too_few_permissions_changes_nothing(
    bare: CommandLine,
    broker: BrokerClient,
    management: str,
    new_user: Callable[..., str],
    permissions: dict[str, str],
    tags: str,
    with_management: bool,
) -> None:
    url = new_user(tags, **permissions)
    options = ["--broker", url, *(["--management", management] if with_management else [])]
    line = bare.refused("cascade", "create", *options)
    assert "permission" in line
    assert "rabbitmqctl set_permissions" in line
    assert "nothing was declared" in line
    assert NEVER_SEEN not in line
    assert queues_of(broker) == set()
    bare("cascade", "verify", *options)
    assert queues_of(broker) == set()


def test_a_user_who_may_not_declare_can_look(
    run: CommandLine, bare: CommandLine, new_user: Callable[..., str], channel: Any
) -> None:
    url = new_user(configure="^$")
    assert run("cascade", "create").code == 0
    for options in (["--management", ""], []):
        assert bare("cascade", "create", "--passive", "--broker", url, *options).code == 0
        assert bare("cascade", "verify", "--passive", "--broker", url, *options).code == 0
        assert bare("cascade", "verify", "--broker", url, *options).code == 1
    channel.queue_delete(LEVEL)
    for options in (["--management", ""], []):
        missing = bare("cascade", "create", "--passive", "--json", "--broker", url, *options)
        assert missing.code == 1
        assert f"queue '{LEVEL}'" in {one["subject"] for one in missing.document["findings"]}


def test_bindings_missing_and_too_many_are_named(run: CommandLine, channel: Any) -> None:
    assert run("cascade", "create").code == 0
    channel.queue_declare("spy", durable=True)
    channel.queue_bind("spy", LEVEL, "#")
    missing = NSERVICEBUS_V2.layout().bindings[1]
    channel.exchange_unbind(missing.destination, missing.source, missing.routing_key)
    findings = run("cascade", "verify", "--json").document["findings"]
    assert sorted(one["kind"] for one in findings) == ["extra-binding", "missing"]
    assert all(set(one) == {"kind", "subject", "text", "argument", "expected", "actual"} for one in findings)
    assert run("cascade", "create").code == 0  # it puts back what was missing, and leaves what is not its own
    (extra,) = run("cascade", "verify", "--json").document["findings"]
    assert "'spy'" in extra["subject"]


def test_what_a_failure_leaves_is_said(broker: BrokerClient, channel: Any) -> None:
    topology = custom("mine", levels=3)
    channel.queue_declare("mine.delay-level-01", durable=True)
    with pytest.raises(DeclarationError, match="left so: 5 exchanges, 2 queues") as failure:
        declare(broker.connections, topology.layout().parts)
    assert isinstance(failure.value, TransportSetupError)
    assert "\n" not in str(failure.value)
    assert "inequivalent arg" in str(failure.value)
    assert queues_of(broker) == {"mine.undeliverable", "mine.delay-level-00", "mine.delay-level-01"}


def test_a_connection_lost_while_declaring_says_what_is_left(rabbitmq: RabbitMQVhosts, management: str) -> None:
    url = rabbitmq.create_vhost()
    declared = []

    def lose_the_connection(part: Any) -> None:
        declared.append(part)
        if len(declared) == 40:
            rabbitmq.delete_vhost(url)

    with (
        BrokerClient(url) as broker,
        pytest.raises(TransportUnavailableError, match="left so: 30 exchanges, ") as lost,
    ):
        create(broker, NSERVICEBUS_V2, on_declared=lose_the_connection)
    assert "\n" not in str(lost.value)


def test_an_interrupted_create_says_what_is_left(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def interrupted(channel: Any, part: Any) -> None:
        asked.append(part)
        if len(asked) == 35:
            raise KeyboardInterrupt
        declare_part(channel, part)

    monkeypatch.setattr("delaystore.transports.rabbitmq.declaring.declare_part", interrupted)
    result = run("cascade", "create")
    assert result.code == 130
    assert result.err.splitlines() == [
        "declared until then, and left so: 30 exchanges, 4 queues (the last: queue 'nsb.v2.delay-level-02')",
        "stopped",
    ]


def test_a_queue_is_bound_where_it_exists(broker: BrokerClient, channel: Any) -> None:
    topology = custom("mine", levels=3)
    channel.queue_declare("billing", durable=True)
    with pytest.raises(TransportSetupError, match="run delaystore cascade create"):
        ensure_bound(broker.connections, topology, "billing")
    declare(broker.connections, topology.layout().parts)
    declare(broker.connections, topology.layout().parts)
    assert ensure_bound(broker.connections, topology, "billing")
    assert ensure_bound(broker.connections, topology, "billing")
    assert not ensure_bound(broker.connections, topology, "nobody")
    with pytest.raises(UnsupportedMessageError):
        ensure_bound(broker.connections, topology, "")
    publish(channel, "custom:mine:3", 0, "billing")
    wait_until(lambda: channel.queue_declare("billing", passive=True).method.message_count == 1)


@pytest.mark.parametrize("exists", [False, True])
def test_queues_without_a_type_are_refused_where_they_would_be_quorum_queues(
    run: CommandLine, rabbitmq: RabbitMQVhosts, broker: BrokerClient, exists: bool
) -> None:
    assert broker.management is not None
    cascade = ["--cascade", "nservicebus-v1"]
    if exists:
        assert run("cascade", "create", *cascade).code == 0
    rabbitmq.request("PUT", f"/api/vhosts/{broker.management.virtual_host}", {"default_queue_type": "quorum"})
    if broker.management.default_queue_type() != "quorum":
        pytest.skip("this broker has no default queue type")
    before = queues_of(broker)
    line = run.refused("cascade", "create", *cascade)
    assert "default queue type of virtual host" in line
    assert "nothing was declared" in line
    assert run("cascade", "verify", *cascade).code == 1
    assert queues_of(broker) == before
    assert run("cascade", "create").code == 0


# the policy


def test_the_policy_catches_what_has_no_destination(run: CommandLine, channel: Any) -> None:
    assert run("cascade", "create").code == 0
    publish(channel, "nservicebus-v2", 1, "nobody")
    publish(channel, "nservicebus-v2", 0, "nobody")
    wait_until(lambda: channel.queue_declare(UNDELIVERABLE, passive=True).method.message_count == 2)


def test_the_printed_command_sets_the_policy(bare: CommandLine, rabbitmq: RabbitMQVhosts, management: str) -> None:
    if not isinstance(rabbitmq, RabbitMQ):
        pytest.skip("rabbitmqctl is at hand for a private broker only")
    commands = printed_commands(bare("cascade", "create").out)
    assert bare("cascade", "verify", "--management", management).code == 1
    for command in commands:
        rabbitmq.ctl(*shlex.split(command)[1:])
    assert bare("cascade", "verify", "--management", management).code == 0


def test_another_policy_is_not_overridden(run: CommandLine, broker: BrokerClient, rabbitmq: RabbitMQVhosts) -> None:
    assert broker.management is not None
    path = f"/api/policies/{broker.management.virtual_host}/theirs"
    theirs = {"pattern": "^nsb", "definition": {"alternate-exchange": "lost"}, "priority": 3}
    rabbitmq.request("PUT", path, theirs | {"definition": {"max-length": 1000000}})
    created = run("cascade", "create")
    assert created.code == 1
    assert "policy 'theirs' (priority 3) applies to it" in created.err
    assert broker.management.policy(POLICY) is None
    found = verify(broker, NSERVICEBUS_V2)
    kinds = [finding.kind for finding in found.findings]
    assert [kind for kind in kinds if kind is not FindingKind.DELIVERY_LIMIT] == [FindingKind.UNDELIVERABLE]
    rabbitmq.request("PUT", path, theirs)
    assert run("cascade", "create", "--json").document["policy"]["state"] == "not-set"  # it leads to what is not there


def test_a_user_who_may_not_set_policies_gets_the_command(run: CommandLine, new_user: Callable[..., str]) -> None:
    created = run("cascade", "create", "--broker", new_user("management"))
    assert created.code == 1
    assert created.out.splitlines()[-1].startswith("rabbitmqctl set_policy")
    assert "policymaker" in created.err
    assert run("cascade", "create", "--broker", new_user("policymaker")).code == 0


# delete


@pytest.mark.long
def test_a_cascade_is_deleted_with_its_policy_and_its_destinations_stay(
    run: CommandLine, broker: BrokerClient, channel: Any
) -> None:
    channel.queue_declare("billing", durable=True)
    assert run("cascade", "create").code == 0
    assert run("cascade", "bind", "billing").code == 0
    assert "--yes" in run.refused("cascade", "delete")
    planned = run("cascade", "delete", "--dry-run")
    assert f"would delete: queue '{LEVEL}'" in planned.out.splitlines()
    assert "caution: queue 'billing' gets no messages from it any more" in planned.err
    assert planned.code == 0
    deleted = run("cascade", "delete", "--yes", "--json")
    assert "caution: queue 'billing' gets no messages from it any more" in deleted.err
    assert deleted.code == 0
    assert deleted.document["deleted_policies"] == [f"policy {POLICY!r}"]
    assert len(deleted.document["deleted"]) == 59
    assert [one["destination"] for one in deleted.document["cut_off"]] == ["billing"]
    assert deleted.document["lost"] == 0
    assert queues_of(broker) == {"billing"}
    again = run("cascade", "delete", "--yes")
    assert (again.code, again.out) == (0, "nothing to delete: there is no cascade 'nservicebus-v2'\n")


def test_messages_that_wait_keep_it_from_being_deleted(
    run: CommandLine, bare: CommandLine, broker: BrokerClient, channel: Any
) -> None:
    cascade = ["--cascade", "custom:mine:20"]
    assert run("cascade", "create", *cascade).code == 0
    publish(channel, "custom:mine:20", 3600 * 24, "billing")
    refused = run("cascade", "delete", "--yes", "--json", *cascade)
    assert refused.code == 1
    assert refused.document["deleted"] == []
    assert refused.document["messages"] == 1
    assert refused.document["waiting"]["mine.delay-level-16"] == 1
    assert "mine.delay-level-16" in run("cascade", "delete", "--yes", *cascade).out
    assert run("cascade", "delete", "--dry-run", *cascade).code == 1
    assert "mine.delay-level-16" in queues_of(broker)
    forced = run("cascade", "delete", "--yes", "--force", "--json", *cascade)
    assert (forced.code, forced.document["lost"]) == (0, 1)
    assert queues_of(broker) == set()


def test_without_the_management_api_only_force_deletes(bare: CommandLine, broker: BrokerClient) -> None:
    cascade = ["--cascade", "custom:mine:3"]
    assert bare("cascade", "create", *cascade).code == 0
    assert "it is unknown whether messages are in it" in bare.refused("cascade", "delete", "--yes", *cascade)
    assert bare("cascade", "delete", "--dry-run", *cascade).code == 1
    assert len(queues_of(broker)) == 4
    assert bare("cascade", "delete", "--yes", "--force", *cascade).code == 0
    assert queues_of(broker) == set()


@pytest.mark.long
def test_messages_stuck_behind_a_missing_destination_are_counted(
    bare: CommandLine, broker: BrokerClient, channel: Any
) -> None:
    assert bare("cascade", "create").code == 0  # no policy: what has no destination stays where it expired
    publish(channel, "nservicebus-v2", 1, "nobody")
    level = "nsb.v2.delay-level-00"
    wait_until(lambda: channel.queue_declare(level, passive=True).method.message_count == 0)
    wait_until(lambda: check_deletion(broker, NSERVICEBUS_V2).uses.counts[level] == 1)
    assert channel.queue_declare(level, passive=True).method.message_count == 0
    with pytest.raises(TopologyInUseError, match=r"1 messages are in 'nsb\.v2\.delay-level-00'"):
        delete(broker, NSERVICEBUS_V2)


def test_a_message_that_comes_at_the_last_moment_is_kept(broker: BrokerClient, rabbitmq_url: str) -> None:
    topology = custom("mine", levels=20)
    create(broker, topology)
    wait_until(lambda: check_deletion(broker, topology).uses.obstacle is None)
    late = []

    def publish_late(_part: Any) -> None:
        if not late:
            late.append(1)
            with channel_to(rabbitmq_url) as channel:
                publish(channel, "custom:mine:20", 3600 * 24, "billing")

    with pytest.raises(TopologyInUseError, match="is restored"):
        delete(broker, topology, statistics_age=0, on_deleted=publish_late)
    assert verify(broker, topology).good
    assert sum(check_deletion(broker, topology).uses.messages.values()) == 1


def test_an_interrupted_delete_has_deleted_nothing(run: CommandLine, broker: BrokerClient) -> None:
    assert run("cascade", "create", "--cascade", "custom:mine:3").code == 0
    process = started(["cascade", "delete", "--yes", "--cascade", "custom:mine:3"], run.environment)
    assert process.stderr is not None
    assert "checking again in 6 s" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "stopped" in err
    assert "Traceback" not in err
    assert verify(broker, custom("mine", levels=3)).good


# bind


def test_each_destination_is_bound_on_its_own(run: CommandLine, channel: Any) -> None:
    names = ["a.b", "b", "with space", "größe"]
    for name in names:
        channel.queue_declare(name, durable=True)
    assert run("cascade", "create", "--cascade", "custom:mine:3").code == 0
    bound = run("cascade", "bind", "nobody", *names, "x.#", "--cascade", "custom:mine:3", "--json")
    assert bound.code == 1
    results = {one["destination"]: one for one in bound.document["results"]}
    assert {name for name, one in results.items() if one["bound"]} == set(names)
    assert "does not exist" in results["nobody"]["failure"]
    assert "wildcard" in results["x.#"]["failure"] or "takes for any" in results["x.#"]["failure"]
    assert all(one["collisions"] == [] for one in results.values())
    for name in names:
        publish(channel, "custom:mine:3", 0, name)
    for name in names:
        wait_until(lambda name=name: channel.queue_declare(name, passive=True).method.message_count == 1)
    assert run("cascade", "bind", *names, "--cascade", "custom:mine:3").code == 0
    assert run("cascade", "verify", "--cascade", "custom:mine:3").code == 0


def test_a_name_that_is_no_unicode_text_is_not_bound(run: CommandLine, channel: Any) -> None:
    channel.queue_declare("good", durable=True)
    assert run("cascade", "create", "--cascade", "custom:mine:3").code == 0
    bound = run("cascade", "bind", "\udcff", "good", "--cascade", "custom:mine:3")
    assert bound.code == 1
    assert "not UTF-8 text" in bound.out
    assert bound.err == ""
    publish(channel, "custom:mine:3", 0, "good")
    wait_until(lambda: channel.queue_declare("good", passive=True).method.message_count == 1)


def test_conventional_routing_binds_the_exchange(run: CommandLine, channel: Any) -> None:
    cascade = ["--cascade", "celery"]
    channel.queue_declare("tasks", durable=True)
    assert "'celery_delayed_delivery'" in run("cascade", "bind", "tasks", *cascade).out
    assert run("cascade", "create", *cascade).code == 0
    missing = run("cascade", "bind", "tasks", "--routing", "conventional", *cascade)
    assert missing.code == 1
    assert "exchange 'tasks' does not exist" in missing.out
    channel.exchange_declare("tasks", "topic", durable=True)
    planned = run("cascade", "bind", "tasks", "--routing", "conventional", "--dry-run", *cascade)
    assert (planned.code, "would be bound" in planned.out) == (0, True)
    bound = run("cascade", "bind", "tasks", "--routing", "conventional", "--json", *cascade).document
    assert [one["destination_kind"] for one in bound["results"][0]["bindings"]] == ["exchange", "queue"]
    publish(channel, "celery", 0, "tasks")
    wait_until(lambda: channel.queue_declare("tasks", passive=True).method.message_count == 1)


def test_an_exchange_that_cannot_pass_a_delays_key_on_is_refused(run: CommandLine, channel: Any) -> None:
    assert run("cascade", "create", "--cascade", "celery").code == 0
    channel.queue_declare("tasks", durable=True)
    channel.exchange_declare("tasks", "direct", durable=True)
    refused = run("cascade", "bind", "tasks", "--routing", "conventional", "--cascade", "celery")
    assert refused.code == 1
    assert "direct exchange" in refused.out
    assert run("cascade", "bind", "tasks", "--cascade", "celery").code == 0


def test_bindings_of_others_that_mix_messages_up_are_named(run: CommandLine, channel: Any) -> None:
    assert run("cascade", "create").code == 0
    for name in ("b", "a.b"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, NSERVICEBUS_V2.delivery, f"#.{name}")  # as NServiceBus does
    bound = run("cascade", "bind", "a.b")
    assert bound.code == 0
    assert "caution" in bound.err
    assert "queue 'b' also gets messages for 'a.b'" in bound.err
    found = run("cascade", "verify", "--json")
    assert [one["kind"] for one in found.document["findings"]] == ["collision"]
    assert found.code == 1


def test_an_endpoint_bound_by_queue_and_exchange_is_no_collision(run: CommandLine, channel: Any) -> None:
    assert run("cascade", "create").code == 0
    channel.queue_declare("billing", durable=True)
    channel.exchange_declare("billing", "fanout", durable=True)
    channel.queue_bind("billing", "billing")
    channel.exchange_bind("billing", NSERVICEBUS_V2.delivery, "#.billing")  # as NServiceBus does
    bound = run("cascade", "bind", "billing")
    assert (bound.code, bound.err) == (0, "")
    publish(channel, "nservicebus-v2", 0, "billing")
    wait_until(lambda: channel.queue_declare("billing", passive=True).method.message_count == 1)
    assert run("cascade", "verify").code == 0
    channel.queue_declare("copy", durable=True)
    channel.queue_bind("copy", "billing")
    found = run("cascade", "verify", "--json")
    assert (found.code, [one["subject"] for one in found.document["findings"]]) == (1, ["address 'billing'"])


# mistakes


def test_a_wrong_password_is_one_line(run: CommandLine, rabbitmq_url: str, management: str) -> None:
    wrong = as_user(rabbitmq_url, "delaystore", NEVER_SEEN)
    for command in (["create"], ["verify"], ["delete", "--yes"], ["bind", "q"]):
        line = run.refused("cascade", *command, "--broker", wrong)
        assert "login refused" in line
        assert NEVER_SEEN not in line
        host = urlsplit(management).netloc
        line = run.refused("cascade", *command, "--management", f"http://u:{quote(NEVER_SEEN)}@{host}")
        assert "refused the login" in line
        assert NEVER_SEEN not in line


def test_what_cannot_be_reached_is_one_line(run: CommandLine, rabbitmq_url: str) -> None:
    assert "cannot be reached" in run.refused("cascade", "verify", "--broker", "amqp://127.0.0.1:1")
    assert "cannot be reached" in run.refused("cascade", "create", "--management", "http://127.0.0.1:1")
    assert "cannot be reached" in run.refused("cascade", "verify", "--broker", rabbitmq_url + "-not-there")
    amqp_port = urlsplit(rabbitmq_url).port
    assert "management API" in run.refused("cascade", "verify", "--management", f"http://127.0.0.1:{amqp_port}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "--broker", ""], "no broker is given"),
        (["verify", "--broker", "http://host"], "amqp://"),
        (["verify", "--management", "host:15672"], "a management URL is"),
        (["create", "--cascade", "rabbit"], "no cascade is called 'rabbit'"),
        (["create", "--cascade", "custom:\udcff:3"], r"'\udcff.delay-level-02' is not UTF-8 text"),
        (["bind"], "missing argument DESTINATION"),
        (["bind", "q", "--routing", "odd"], "odd"),
    ],
)
def test_a_mistake_is_one_line(run: CommandLine, arguments: list[str], says: str) -> None:
    assert says in run.refused("cascade", *arguments)
