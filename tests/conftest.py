"""Servers to test against, a clean environment for each test, and a watch over leaked threads.

Nothing here imports delaystore but `run`. Servers start at their first use. One that is not installed makes its tests
skip, or fail where CI=true. DELAYSTORE_TEST_POSTGRESQL_URL, DELAYSTORE_TEST_MARIADB_URL and
DELAYSTORE_TEST_RABBITMQ_URL (with DELAYSTORE_TEST_RABBITMQ_MANAGEMENT_URL, by default port 15672 of the same host)
name servers to use in place of the shared private ones; the `private_...` servers, which tests kill and pause, are
always private. With `--mysql` just the tests that have MariaDB run, and have MySQL in its place
(DELAYSTORE_TEST_MYSQL_URL). Tests marked `long` run with `--long` alone, those marked `soak` with DELAYSTORE_SOAK=1.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar
from urllib.parse import urlsplit

import hypothesis
import pytest

from tests.long import MARKERS, mark_long
from tests.quick_disk import use_memory
from tests.scheduling import Scheduling, place_of
from tests.servers import (
    MariaDB,
    MariaDBDatabases,
    MySQL,
    PostgreSQL,
    PostgreSQLDatabases,
    PostgreSQLReplication,
    RabbitMQ,
    RabbitMQCluster,
    RabbitMQVhosts,
    ServerMissingError,
)
from tests.servers.server import Server

Restorable = Server | RabbitMQCluster | PostgreSQLReplication
AnyServer = TypeVar("AnyServer", bound=Restorable)

hypothesis.settings.register_profile("delaystore", deadline=None)  # the machine is noisy
hypothesis.settings.load_profile("delaystore")
os.environ.pop("PYTEST_ADDOPTS", None)  # it is for this pytest, and not for those that tests start
ENVIRONMENT = dict(os.environ)  # as it was before the first test hid parts of it
if ENVIRONMENT.get("DELAYSTORE_SOAK") != "1":  # millions of messages belong on a disk
    use_memory()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a script has it in the background; programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
POSTGRESQL_SETTINGS = {"fsync": "off", "full_page_writes": "off"}  # a killed process loses nothing it has written
MARIADB_SETTINGS = {"innodb_flush_log_at_trx_commit": "2"}  # written at each commit, flushed once a second

MARIADB_FIXTURES = ("mariadb", "mariadb_url", "private_mariadb")

private_servers: dict[str, Restorable] = {}
"""By the names of their fixtures."""


@pytest.hookimpl(tryfirst=True)  # before those that `-m long` selects by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, and campaigns, unless they are asked for. Let workers begin with the longest files."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.nodeid))
    mark_long(items)
    soak = ENVIRONMENT.get("DELAYSTORE_SOAK") == "1"
    if not soak:
        _leave_out(config, items, lambda item: item.get_closest_marker("soak") is not None)
    if not (soak or config.getoption("long")):
        _leave_out(config, items, lambda item: item.get_closest_marker("long") is not None)
    if config.getoption("mysql"):
        _leave_out(config, items, lambda item: not _has_mariadb(item))


def pytest_configure(config: pytest.Config) -> None:
    """Make the marks of tests/long.py known."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--mysql` and `--long`: see above."""
    parser.addoption("--long", action="store_true", help="run what takes long, too (`-m long`: nothing else)")
    parser.addoption("--mysql", action="store_true", help="run the tests that have MariaDB, with MySQL in its place")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have `Scheduling` give workers their tests."""
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each test has its HOME: in a folder of its own, as thousands in pytest's make each new one slower."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, homes: Path) -> None:
    """No setting of the developer's own reaches a test: no DELAYSTORE_ variable, an empty HOME."""
    for name in ENVIRONMENT:
        if name.startswith("DELAYSTORE_"):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", mkdtemp(dir=homes))


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread of delaystore's running.

    What a thread from before the test starts when it first needs it, such as `NAME-helper` of a dispatcher that a
    whole module shares, ends with that thread.
    """
    before = set(threading.enumerate())
    yield
    owners = tuple(f"{each.name}-" for each in before if each.name.startswith("delaystore-") and each.is_alive())
    deadline = time.monotonic() + 5  # a thread that is just ending is no leak
    while leaked := [
        each.name
        for each in set(threading.enumerate()) - before
        if each.name.startswith("delaystore-") and not each.name.startswith(owners)
    ]:
        if time.monotonic() > deadline:
            pytest.fail(f"threads left running: {leaked}")
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def private_servers_run_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restart what a test killed or paused, so that a failure does not spread to the tests after it.

    Only what the test has: to look at a cluster takes seconds.
    """
    yield
    for name in private_servers.keys() & set(request.fixturenames):
        private_servers[name].restore()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQLDatabases]:
    """The session's PostgreSQL: create_database(), create_role()."""
    if url := ENVIRONMENT.get("DELAYSTORE_TEST_POSTGRESQL_URL"):
        yield PostgreSQLDatabases(url)
    else:
        yield from _running(lambda: PostgreSQL(POSTGRESQL_SETTINGS))


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Iterator[MariaDBDatabases]:
    """The session's MariaDB, or MySQL: create_database(), create_role()."""
    variable = "DELAYSTORE_TEST_MYSQL_URL" if pytestconfig.getoption("mysql") else "DELAYSTORE_TEST_MARIADB_URL"
    if url := ENVIRONMENT.get(variable):
        yield MariaDBDatabases(url)
    else:
        yield from _running(lambda: _mariadb(pytestconfig))


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQVhosts]:
    """The session's RabbitMQ: create_vhost(); a private one (RabbitMQ) has ctl() and TLS as well."""
    if url := ENVIRONMENT.get("DELAYSTORE_TEST_RABBITMQ_URL"):
        management = ENVIRONMENT.get("DELAYSTORE_TEST_RABBITMQ_MANAGEMENT_URL")
        yield RabbitMQVhosts(url, management or f"http://{urlsplit(url).hostname}:15672")
    else:
        yield from _running(lambda: RabbitMQ(management=True, tls=True))


@pytest.fixture
def postgresql_url(postgresql: PostgreSQLDatabases) -> Iterator[str]:
    """An empty PostgreSQL database, dropped after the test."""
    url = postgresql.create_database()
    yield url
    postgresql.drop_database(url)


@pytest.fixture
def mariadb_url(mariadb: MariaDBDatabases) -> Iterator[str]:
    """An empty MariaDB database, dropped after the test."""
    url = mariadb.create_database()
    yield url
    mariadb.drop_database(url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite database in a file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'delaystore.db'}"


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment variables of the command line `run`; modules override it."""
    return {}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Any:
    """The command line in this process, a `CommandLine`, with the variables of `environment`."""
    from tests.integration.cli import command_line

    return command_line(capsys, monkeypatch, environment)


@pytest.fixture
def rabbitmq_url(rabbitmq: RabbitMQVhosts) -> Iterator[str]:
    """An empty virtual host, deleted after the test."""
    url = rabbitmq.create_vhost()
    yield url
    rabbitmq.delete_vhost(url)


@pytest.fixture(scope="session")
def private_postgresql(request: pytest.FixtureRequest) -> Iterator[PostgreSQL]:
    """A PostgreSQL that tests may kill and pause."""
    yield from _private(request, lambda: PostgreSQL(POSTGRESQL_SETTINGS))


@pytest.fixture(scope="session")
def private_mariadb(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[MariaDB]:
    """A MariaDB, or MySQL, that tests may kill and pause."""
    yield from _private(request, lambda: _mariadb(pytestconfig))


@pytest.fixture(scope="session")
def _private_rabbitmq(request: pytest.FixtureRequest) -> Iterator[RabbitMQ]:
    yield from _private(request, lambda: RabbitMQ(management=True))


@pytest.fixture(scope="module")
def private_rabbitmq(_private_rabbitmq: RabbitMQ) -> Iterator[RabbitMQ]:
    """A RabbitMQ that tests may kill and pause; each module finds it empty."""
    yield _private_rabbitmq
    _private_rabbitmq.empty()


@pytest.fixture(scope="session")
def rabbitmq_cluster() -> Iterator[RabbitMQCluster]:
    """Three nodes that tests may kill, pause and part. Tests in tests/clusters have it, with `cluster_vhost`."""
    yield from _running(lambda: RabbitMQCluster(net_ticktime=8))


@pytest.fixture
def cluster_vhost(rabbitmq_cluster: RabbitMQCluster) -> Iterator[str]:
    """An empty virtual host of the cluster, as a URL at its first node; deleted after the test."""
    url = rabbitmq_cluster.create_vhost()
    yield url
    rabbitmq_cluster.restore()
    rabbitmq_cluster.delete_vhost(url)


@pytest.fixture(scope="session")
def postgresql_replication(request: pytest.FixtureRequest) -> Iterator[PostgreSQLReplication]:
    """A primary, a synchronous standby and an asynchronous one, which tests may kill, pause and promote."""
    yield from _private(request, lambda: PostgreSQLReplication(settings=POSTGRESQL_SETTINGS))


@pytest.fixture
def replicated_url(postgresql_replication: PostgreSQLReplication) -> Iterator[str]:
    """An empty database that all nodes have, as a URL at the present primary; dropped after the test."""
    url = postgresql_replication.primary.create_database()
    yield url
    postgresql_replication.restore()
    postgresql_replication.primary.drop_database(url)


@pytest.fixture
def start_server() -> Iterator[Callable[[Callable[[], AnyServer]], AnyServer]]:
    """Start a server of the test's own, such as start_server(lambda: RabbitMQ(tls=True)); it ends with the test."""
    with ExitStack() as stack:
        yield lambda make: stack.enter_context(contextmanager(_running)(make))


def _leave_out(config: pytest.Config, items: list[pytest.Item], unwanted: Callable[[pytest.Item], bool]) -> None:
    left_out = [item for item in items if unwanted(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _has_mariadb(item: pytest.Item) -> bool:
    """Whether a test takes the fixture, or a parameter that names it."""
    named = [str(value) for value in item.callspec.params.values()] if hasattr(item, "callspec") else []
    fixtures = getattr(item, "fixturenames", [])
    return any(name in ("mysql", *MARIADB_FIXTURES) for name in (*named, *fixtures))


def _mariadb(config: pytest.Config) -> MariaDB:
    return MySQL(MARIADB_SETTINGS) if config.getoption("mysql") else MariaDB(MARIADB_SETTINGS)


def _private(request: pytest.FixtureRequest, make: Callable[[], AnyServer]) -> Iterator[AnyServer]:
    for server in _running(make):
        private_servers[str(request.fixturename)] = server
        yield server
        del private_servers[str(request.fixturename)]


def _running(make: Callable[[], AnyServer]) -> Iterator[AnyServer]:
    try:
        server = make()
    except ServerMissingError as error:
        if ENVIRONMENT.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    with server:
        yield server
