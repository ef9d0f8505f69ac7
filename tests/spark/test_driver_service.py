"""The service: holds snapshots and renews leases for processes that end sooner, and ends with its application."""

import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from delaystore.bulk.options import StoreOptions, write_options
from delaystore.bulk.spark import _driver_service, register
from delaystore.bulk.spark._driver_client import DriverClient, reader_name
from delaystore.bulk.spark._driver_service import DriverService, ExportedSnapshot, LeaseRenewal, Resource, driver_client
from delaystore.bulk.staging import LoadKey, list_loads, open_staging
from delaystore.errors import ConfigurationError, LoadLostError, StoreError, StoreUnavailableError
from delaystore.message import DelayedMessage
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened
from tests.spark.test_reading import HOLDERS, NOON, psycopg_url


class Application:
    """An application of which the test says what it does."""

    over = False
    jobs = False

    def is_over(self) -> bool:
        return self.over

    def has_jobs(self) -> bool:
        return self.jobs

    def parallelism(self) -> int:
        return 3

    def makes_table(self) -> bool:
        return False


@dataclass
class Lease:
    """Writes a line for each renewal, or fails."""

    path: Path
    error: Exception | None = None

    def renew(self) -> None:
        with self.path.open("a") as file:
            file.write("renewed\n")
        if self.error is not None:
            raise self.error

    def renewals(self) -> int:
        return len(self.path.read_text().splitlines()) if self.path.exists() else 0


@dataclass
class HangingLease(Lease):
    """Its renewal ends when the test makes the file `path`.end."""

    def renew(self) -> None:
        super().renew()
        wait_until(self.path.with_suffix(".end").exists)


class FailingResource(Resource):
    closed = False

    def tend(self, *, has_jobs: bool) -> bool:
        raise RuntimeError("nobody has thought of this")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def service(application: Application) -> Iterator[DriverService]:
    service = DriverService(application)
    yield service
    service.stop()


@pytest.fixture
def count_holders(postgresql_url: str) -> Iterator[Callable[[], int]]:
    with psycopg.connect(psycopg_url(postgresql_url), autocommit=True) as connection:

        def count() -> int:
            row = connection.execute(HOLDERS).fetchone()
            assert row is not None
            return int(row[0])

        yield count


def options(url: str) -> StoreOptions:
    return StoreOptions(store=url, endpoint="sales")


def renew(service: DriverService, name: str, lease: Lease, every: float) -> None:
    """What the service does once it is asked to."""
    service._add(f"lease {name}", LeaseRenewal(name, lease.renew, every))


@pytest.mark.long
def test_a_copy_of_the_client_reaches_the_service(service: DriverService) -> None:
    client: DriverClient = pickle.loads(pickle.dumps(service.client))
    assert client.parallelism() == 3
    assert str(client.authkey) not in repr(client)


def test_who_has_another_key_is_sent_away(service: DriverService) -> None:
    with pytest.raises(ConfigurationError, match=r"register\(spark\)"):
        replace(service.client, authkey=b"guessed").parallelism()
    assert service.client.parallelism() == 3


def test_who_says_nothing_keeps_nobody_waiting(service: DriverService) -> None:
    with socket.create_connection(("127.0.0.1", service.client.port)):
        assert service.client.parallelism() == 3


def test_it_ends_with_its_application(service: DriverService, application: Application, postgresql_url: str) -> None:
    service.client.take_snapshot(options(postgresql_url))
    application.over = True
    wait_until(lambda: not service.alive)
    with pytest.raises(ConfigurationError, match=r"register\(spark\)"):
        service.client.parallelism()


def test_who_comes_after_the_end_is_sent_away(service: DriverService) -> None:
    """Also before the listener is closed: what would be held for them is let go just now."""
    service._stopping.set()
    with pytest.raises(ConfigurationError, match=r"register\(spark\)"):
        service.client.parallelism()


def test_stopped_twice_it_has_let_everything_go(
    service: DriverService, postgresql_url: str, count_holders: Callable[[], int]
) -> None:
    service.client.take_snapshot(options(postgresql_url))
    assert count_holders() == 1
    service.stop()
    service.stop()
    wait_until(lambda: count_holders() == 0)
    assert not [thread for thread in service._threads if thread.is_alive()]


def test_a_snapshot_shows_what_was_there(service: DriverService, postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        store.store(message(NOON))
        name = service.client.take_snapshot(options(postgresql_url))
        store.store(message(NOON))
    with psycopg.connect(psycopg_url(postgresql_url)) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
        assert connection.execute("SELECT count(*) FROM sales_delayed").fetchone() == (1,)


def test_a_store_that_cannot_be_reached_is_told_to_the_client(service: DriverService) -> None:
    with pytest.raises(StoreUnavailableError):
        service.client.take_snapshot(options("postgresql+psycopg://nobody@127.0.0.1:1/nothing"))


def test_a_server_that_ends_idle_transactions_leaves_the_snapshot(postgresql_url: str) -> None:
    with psycopg.connect(psycopg_url(postgresql_url), autocommit=True) as connection:
        database = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{database}" SET idle_in_transaction_session_timeout = 200')
        snapshot = ExportedSnapshot(options(postgresql_url))
        time.sleep(0.6)
        assert snapshot.tend(has_jobs=True)
        snapshot.close()


def test_an_idle_snapshot_is_released(
    service: DriverService,
    application: Application,
    postgresql_url: str,
    count_holders: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application.jobs = True
    monkeypatch.setattr(_driver_service, "IDLE", 1.0)
    name = service.client.take_snapshot(options(postgresql_url))
    time.sleep(2)
    assert count_holders() == 1
    application.jobs = False
    wait_until(lambda: count_holders() == 0)
    monkeypatch.undo()
    successors = {service.client.successor(name, options(postgresql_url)) for _ in range(3)}
    assert len(successors) == 1
    assert successors != {name}
    assert count_holders() == 1


def test_a_snapshot_in_use_is_held_without_a_job(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver_service, "IDLE", 0.2)
    snapshot = ExportedSnapshot(options(postgresql_url))
    with psycopg.connect(psycopg_url(postgresql_url), application_name=reader_name(snapshot.name)):
        time.sleep(0.5)
        assert snapshot.tend(has_jobs=False)
    wait_until(lambda: not snapshot.tend(has_jobs=False))
    assert snapshot.idle
    snapshot.close()
    snapshot.close()


def test_an_old_snapshot_is_released_in_any_case(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver_service, "OLDEST", 0.0)
    snapshot = ExportedSnapshot(options(postgresql_url))
    assert not snapshot.tend(has_jobs=True)
    assert not snapshot.idle  # some may have read from it: nothing may take its place
    snapshot.close()


def test_a_lost_snapshot_is_given_up(
    service: DriverService, application: Application, postgresql_url: str, count_holders: Callable[[], int]
) -> None:
    application.jobs = True
    name = service.client.take_snapshot(options(postgresql_url))
    with psycopg.connect(psycopg_url(postgresql_url), autocommit=True) as connection:
        connection.execute(HOLDERS.replace("count(*)", "pg_terminate_backend(pid)"))
    wait_until(lambda: service.client.successor(name, options(postgresql_url)) is None)
    assert count_holders() == 0


def test_only_so_many_snapshots_are_held(
    service: DriverService,
    application: Application,
    postgresql_url: str,
    count_holders: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application.jobs = True
    monkeypatch.setattr(_driver_service, "MOST", 2)
    names = [service.client.take_snapshot(options(postgresql_url)) for _ in range(4)]
    wait_until(lambda: count_holders() == 2)
    alive = [name for name in names if service.client.successor(name, options(postgresql_url)) == name]
    assert alive == names[2:]


def test_a_lease_is_renewed_until_it_is_let_go(service: DriverService, tmp_path: Path) -> None:
    lease = Lease(tmp_path / "renewals")
    renew(service, "load", lease, 0.1)
    wait_until(lambda: lease.renewals() >= 2)
    service.client.stop_renewing("load")
    service.client.stop_renewing("another")
    time.sleep(0.6)  # a renewal that had begun
    before = lease.renewals()
    time.sleep(1.2)
    assert lease.renewals() == before


def test_the_lease_of_a_load_is_renewed(service: DriverService, postgresql_url: str) -> None:
    given = write_options({"store": postgresql_url, "endpoint": "sales"})
    staging = open_staging(given, 600)
    staging.begin(LoadKey("load"))
    (begun,) = list_loads(given)
    service.client.renew_lease("load", staging, 0.1)
    wait_until(lambda: list_loads(given)[0].heartbeat > begun.heartbeat)
    service.client.stop_renewing("load")


def test_what_cannot_be_done_is_told_to_the_client(service: DriverService) -> None:
    with pytest.raises(StoreError, match="could not open the door: KeyError"):
        service.client._call("open_the_door")


def test_a_renewal_that_fails_is_tried_again(service: DriverService, tmp_path: Path) -> None:
    lease = Lease(tmp_path / "renewals", StoreUnavailableError("not now"))
    renew(service, "load", lease, 0.1)
    wait_until(lambda: lease.renewals() >= 3)


def test_a_renewal_that_fails_as_nobody_expected_is_tried_again(service: DriverService, tmp_path: Path) -> None:
    lease = Lease(tmp_path / "renewals", RuntimeError("nobody has thought of this"))
    renew(service, "load", lease, 0.1)
    wait_until(lambda: lease.renewals() >= 3)
    assert service.alive


def test_a_renewal_that_hangs_holds_up_no_other(service: DriverService, tmp_path: Path) -> None:
    hanging, lease = HangingLease(tmp_path / "hanging"), Lease(tmp_path / "renewals")
    try:
        renew(service, "hanging", hanging, 0.1)
        wait_until(lambda: hanging.renewals() == 1)
        renew(service, "load", lease, 0.1)
        wait_until(lambda: lease.renewals() >= 3)
        assert hanging.renewals() == 1
    finally:
        (tmp_path / "hanging.end").touch()


def test_what_fails_is_let_go_and_the_rest_is_looked_after(
    service: DriverService, application: Application, postgresql_url: str, count_holders: Callable[[], int]
) -> None:
    failing = FailingResource()
    service._add("failing", failing)
    wait_until(lambda: failing.closed)
    service.client.take_snapshot(options(postgresql_url))
    application.over = True
    wait_until(lambda: count_holders() == 0)


def test_threads_of_leases_end(service: DriverService, tmp_path: Path) -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("spark-lease-renewal")]

    for name in ("let go", "replaced", "replaced", "stopped"):
        renew(service, name, Lease(tmp_path / "renewals"), 60.0)
    assert len(threads()) >= 3
    service.client.stop_renewing("let go")
    wait_until(lambda: len(threads()) == 2)
    service.stop()
    wait_until(lambda: not threads())


def test_a_lost_lease_is_renewed_no_more(service: DriverService, tmp_path: Path) -> None:
    lease = Lease(tmp_path / "renewals", LoadLostError("another has it"))
    renew(service, "load", lease, 0.1)
    wait_until(lambda: lease.renewals() == 1)
    time.sleep(1.2)
    assert lease.renewals() == 1


def test_the_lease_of_a_load_that_was_given_up_ends(
    service: DriverService, application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_driver_service, "IDLE_LEASE", 0.0)
    lease = Lease(tmp_path / "renewals")
    renew(service, "load", lease, 1.0)
    time.sleep(2)
    assert lease.renewals() == 0


@pytest.mark.long
def test_one_service_serves_all_sessions(spark: SparkSession, postgresql_url: str) -> None:
    before = driver_client(spark)
    other = spark.newSession()
    register(other)
    register(spark)
    assert driver_client(other) == driver_client(spark) == before
    with opened(postgresql_url) as store:
        store.store(DelayedMessage(message_id="1", destination="q", due_time=NOON, body=b""))
    assert other.read.format("delaystore").options(store=postgresql_url, endpoint="sales").load().count() == 1
