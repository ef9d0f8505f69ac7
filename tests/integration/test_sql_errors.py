"""What callers are told of errors that MariaDB, MySQL and PostgreSQL really raise."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from delaystore.errors import StoreError, StoreUnavailableError
from delaystore.stores.sql.errors import translated_errors

SIGNAL = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'so it is'"
STATE_OF_THE_SERVER = {
    1020: "a record has changed",
    1021: "its disk is full",
    1040: "too many connections",
    1047: "a node of Galera's without its cluster",
    1053: "it is shutting down",
    1114: "a table is full",
    1205: "a lock was not free in time",
    1213: "a deadlock",
    1226: "the user has too many connections",
    1412: "a table has changed",
    1927: "the connection was killed",
}
"""By MariaDB's numbers."""
MATTER_OF_THE_ROWS = {1644: "a trigger refuses it", 3819: "a condition of MySQL's", 4025: "a condition of MariaDB's"}


@pytest.fixture
def mariadb_engine(mariadb_url: str) -> Iterator[Engine]:
    engine = create_engine(mariadb_url)
    yield engine
    engine.dispose()


@pytest.mark.long_runs(after=5)
@pytest.mark.parametrize("number", STATE_OF_THE_SERVER)
def test_callers_try_again_what_the_state_of_mariadb_forbids(mariadb_engine: Engine, number: int) -> None:
    with mariadb_engine.connect() as connection, pytest.raises(StoreUnavailableError), translated_errors():
        connection.exec_driver_sql(SIGNAL.format(number))


@pytest.mark.parametrize("number", MATTER_OF_THE_ROWS)
def test_what_mariadb_has_against_a_row_is_no_outage(mariadb_engine: Engine, number: int) -> None:
    with mariadb_engine.connect() as connection, pytest.raises(StoreError) as refused, translated_errors():
        connection.exec_driver_sql(SIGNAL.format(number))
    assert not isinstance(refused.value, StoreUnavailableError)
    assert str(refused.value) == "the database refused the statement: so it is"


def test_a_row_against_a_condition_of_the_table_is_no_outage_of_mariadb(mariadb_engine: Engine) -> None:
    with mariadb_engine.begin() as connection:
        connection.execute(text("CREATE TABLE numbers (number INT CHECK (number < 10))"))
    with mariadb_engine.begin() as connection, pytest.raises(StoreError) as refused, translated_errors():
        connection.execute(text("INSERT INTO numbers VALUES (11)"))
    assert not isinstance(refused.value, StoreUnavailableError)


def test_a_lock_that_is_not_free_and_a_deadlock_are_tried_again(mariadb_engine: Engine) -> None:
    with mariadb_engine.begin() as connection:
        connection.execute(text("CREATE TABLE numbers (number INT PRIMARY KEY)"))
        connection.execute(text("INSERT INTO numbers VALUES (1), (2)"))
    with mariadb_engine.connect() as one, mariadb_engine.connect() as other, ThreadPoolExecutor(1) as beside:
        lock(one, 1)
        lock(other, 2)
        other.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
        with pytest.raises(StoreUnavailableError, match="Lock wait timeout"):
            lock(other, 1)
        other.execute(text("SET SESSION innodb_lock_wait_timeout = 60"))
        waiting = beside.submit(lock, other, 1)
        with pytest.raises(StoreUnavailableError, match="Deadlock found"):
            lock(one, 2)
            waiting.result()


def lock(connection: Connection, number: int) -> None:
    with translated_errors():
        connection.execute(text("SELECT number FROM numbers WHERE number = :number FOR UPDATE"), {"number": number})


@pytest.mark.parametrize(
    ("sqlstate", "is_outage"), [("40P01", True), ("57P01", True), ("53100", True), ("54000", False), ("P0001", False)]
)
def test_postgresql_s_own_classes_tell_an_outage(postgresql_url: str, sqlstate: str, is_outage: bool) -> None:
    engine = create_engine(postgresql_url)
    with engine.connect() as connection, pytest.raises(StoreError) as refused, translated_errors():
        connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'so it is' USING ERRCODE = '{sqlstate}'; END $$")
    engine.dispose()
    assert isinstance(refused.value, StoreUnavailableError) is is_outage
