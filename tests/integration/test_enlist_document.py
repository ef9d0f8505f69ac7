"""The examples of docs/how-to/transactions.md run as they stand, but for the addresses of databases."""

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from delaystore.delivery import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.sql_stores import connected

DOCUMENT = Path(__file__).parents[2] / "docs/how-to/transactions.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
ORDERS = text("CREATE TABLE orders (number VARCHAR(20), paid INTEGER)")


def test_the_examples_for_postgresql_run(postgresql_url: str) -> None:
    sqlalchemys, psycopgs, _, _ = BLOCKS
    engine = create_engine(postgresql_url)
    with engine.begin() as connection:
        connection.execute(ORDERS)
    names: dict[str, Any] = {}
    exec(sqlalchemys.replace("postgresql+psycopg://localhost/app", postgresql_url), names)
    assert names["delivery"].count() == 0
    exec(psycopgs.replace("postgresql://localhost/app", postgresql_url.replace("+psycopg", "")), names)
    assert [message.body for message in names["delivery"].list().messages] == [b"A-2"]
    names["engine"].dispose()
    engine.dispose()


def test_the_example_for_sqlite_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with connected("sqlite:///app.db") as connection:
        connection.execute(ORDERS)
    delivery = DelayedDelivery("sales", SqlDelayedMessageStore("sqlite:///app.db"))
    delivery.setup_infrastructure()
    exec("from datetime import timedelta\n" + BLOCKS[2], {"delivery": delivery})
    assert delivery.count() == 1
    delivery.close()
