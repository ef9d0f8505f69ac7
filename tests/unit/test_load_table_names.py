"""Which tables belong to bulk loads, and which only look like it; and how these are made."""

import pytest
from sqlalchemy import create_mock_engine
from sqlalchemy.schema import CreateTable

from delaystore.bulk.staging._dialects import staging_table
from delaystore.stores.sql.dialects import DIALECTS, STORE_DIALECTS
from delaystore.stores.sql.schema import OperatingTables, delayed_table
from delaystore.stores.sql.urls import is_load_table, load_table_name, loads_table_name

TOKEN = "0123456789abcdef0123"


@pytest.mark.parametrize("database", DIALECTS)
@pytest.mark.parametrize("table", ["sales_delayed", "x" * 51, "ü" * 25, "a.b*[c]"])
def test_a_load_is_known_by_its_name(table: str, database: str) -> None:
    dialect = DIALECTS[database]
    name = load_table_name(table, TOKEN, dialect)
    assert len(name.encode()) <= dialect.max_identifier_bytes
    assert is_load_table(name, table, dialect)
    assert not is_load_table(name, table + "2", dialect)
    assert not is_load_table(loads_table_name(table, dialect), table, dialect)


@pytest.mark.parametrize(
    "name",
    [
        "sales_delayed",
        "sales_delayed_load_balancers_of_20",
        f"sales_delayed_load_{TOKEN}0",
        f"sales_delayed_load_{TOKEN}\n",
        f"my_sales_delayed_load_{TOKEN}",
        f"sales_delayed_load_{TOKEN.upper()}",
    ],
)
def test_a_name_that_is_like_it_is_somebody_elses(name: str) -> None:
    assert not is_load_table(name, "sales_delayed", DIALECTS["postgresql"])


@pytest.mark.parametrize("database", ["mysql", "mariadb"])
def test_tables_of_loads_know_transactions_whatever_the_servers_default(database: str) -> None:
    engine = create_mock_engine(f"{database}+pymysql://", lambda *_: None)
    dialect = STORE_DIALECTS[database]
    live = delayed_table("sales_delayed", None, dialect)
    for table in (OperatingTables(live, dialect).loads, staging_table(live, TOKEN, dialect)):
        assert "ENGINE=InnoDB" in str(CreateTable(table).compile(dialect=engine.dialect))
