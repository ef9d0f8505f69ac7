"""Names that other languages would take for their own words are names: for SQL, URLs, patterns and shells."""

import json
import shlex
import subprocess
from contextlib import closing
from datetime import UTC, datetime, timedelta
from threading import Event

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.cascades import BrokerClient, create, verify
from delaystore.cascades.management import Management
from delaystore.cascades.policies import command_for
from delaystore.cascades.snapshot import Policy
from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.migrations.sources import open_source
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.topology import celery
from tests.servers import RabbitMQVhosts

IN_SQL = ['x"; DROP TABLE users; --', "it's", "back`tick", "50%s %(x)s :colon", "a.b", "[x]", "${x}", "\\"]
IN_A_PATH = ["../../users", "a/../b", "%2e%2e%2f", "a?b=c", "a#b", "a b&c", "a%00", "größe", "{}", "...", "a\\..\\b"]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@pytest.mark.long_runs("mariadb")
@pytest.mark.parametrize("name", IN_SQL)
def test_an_endpoint_with_a_migration(database_url: str, name: str) -> None:
    """Its table, indexes, the side tables of a run, and their return."""
    due = datetime.now(UTC) + timedelta(days=1)
    with closing(SqlDelayedMessageStore(database_url)) as store:
        store.initialize(name, TransactionMode.NONE)
        store.setup_infrastructure()
        store.store(DelayedMessage(message_id=name, destination=name, due_time=due, body=b""))
        page = store.list(destination=name)
        assert [message.message_id for message in page.messages] == [name]
        with closing(open_source(database_url)) as source:
            assert name in source.endpoints()
            waiting = source.waiting(name, None)
            assert waiting.destinations == {name: 1}


@pytest.mark.parametrize("name", ["%(ids)s", "%(", ":ids", "%", "%%", "100%s"])
def test_an_endpoint_called_like_a_parameter(database_url: str, name: str) -> None:
    """Where parameters are question marks, SQLAlchemy takes `%(ids)s` for one, in quotes, too."""
    with closing(SqlDelayedMessageStore(database_url)) as store:
        store.initialize(name, TransactionMode.NONE)
        store.setup_infrastructure()
        now = store.now()
        store.store_many([DelayedMessage(message_id=one, destination="q", due_time=now, body=b"") for one in "abc"])
        with store.transaction() as transaction:
            fetched = transaction.fetch_due(now + timedelta(days=1), 10)
            assert transaction.increment_failure_counts([(fetched[0], now)]) == 1
            assert transaction.remove_many(fetched[1:]) == 2
        assert store.reschedule("a", now) is store.cancel("a") is ManagementOutcome.DONE
        assert store.count() == 0


@pytest.mark.long_runs(after=4)
@pytest.mark.parametrize("name", IN_SQL)
def test_an_endpoint_whose_dispatchers_are_woken(postgresql_url: str, name: str) -> None:
    """LISTEN takes no parameter: its channel is a digest."""
    woken = Event()
    with closing(SqlDelayedMessageStore(postgresql_url)) as store:
        store.initialize(name, TransactionMode.NONE)
        store.setup_infrastructure()
        subscription = store.subscribe(lambda due: woken.set())
        assert subscription is not None
        with closing(subscription):
            assert woken.wait(30)
            assert subscription.alive


@pytest.mark.parametrize("name", IN_A_PATH)
def test_a_path_of_the_management_api(management: Management, name: str) -> None:
    ours = Policy(name=name, pattern="^a$", definition={"alternate-exchange": name})
    other = Policy(name="other", pattern="^b$", definition={"alternate-exchange": "x"})
    management.set_policy(other)
    management.set_policy(ours)
    assert {one.name for one in management.policies()} == {name, "other"}
    assert list(management.bindings(name)) == []
    assert management.delete_policy(name)
    assert list(management.policies()) == [other]


@pytest.mark.parametrize("name", [".", ".."])
def test_a_path_that_leads_elsewhere_is_refused(management: Management, name: str) -> None:
    management.set_policy(Policy(name="other", pattern="^b$", definition={"alternate-exchange": "x"}))
    with pytest.raises(ConfigurationError, match="cannot be asked for"):
        management.set_policy(Policy(name=name, pattern="", definition={}))
    with pytest.raises(ConfigurationError, match="cannot be asked for"):
        management.bindings(name)
    with pytest.raises(ConfigurationError, match="cannot be asked for"):
        Management("http://localhost:15672", broker_from_url(f"amqp://localhost/{name}"))


@pytest.mark.parametrize("name", IN_A_PATH)
def test_a_virtual_host(rabbitmq: RabbitMQVhosts, name: str) -> None:
    rabbitmq.add_vhost(name)
    url = rabbitmq.vhost_url(name)
    try:
        with BrokerClient(url, rabbitmq.management_url) as broker:
            assert broker.management is not None
            assert broker.management.virtual_host == name
            assert broker.management.queues() == {}
            assert broker.version()
    finally:
        rabbitmq.delete_vhost(url)


def test_a_policy_is_for_the_names_it_was_made_for(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> None:
    topology = celery(prefix="a.b")
    similar = topology.delivery.replace(".", "X")
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    for name in (similar, f"{topology.delivery}2", f"x{topology.delivery}"):
        connection.channel().exchange_declare(name, "topic", durable=True)
    connection.close()
    with BrokerClient(rabbitmq_url, rabbitmq.management_url) as broker:
        create(broker, topology)
        assert not verify(broker, topology).findings
        assert broker.management is not None
        applied = {name: one.policy for name, one in broker.management.exchanges().items() if one.policy}
    assert list(applied) == [topology.delivery]


@given(TEXT, TEXT, TEXT)
def test_the_words_of_a_shell(name: str, pattern: str, vhost: str) -> None:
    policy = Policy(name=name, pattern=pattern, definition={"alternate-exchange": name})
    words = shlex.split(command_for(policy, vhost))
    assert words[3] == vhost
    assert words[-3:-1] == [name, pattern]
    assert json.loads(words[-1]) == {"alternate-exchange": name}


def test_a_shell_runs_no_part_of_a_name() -> None:
    name = "$(echo ran >&2) `echo ran >&2`; echo ran >&2 '\" \\"
    command = command_for(Policy(name=name, pattern=name, definition={"alternate-exchange": name}), name)
    printed = subprocess.run(["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True)
    assert printed.stderr == ""
    assert printed.stdout.count(name) == 3
