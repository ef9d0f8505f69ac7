"""Bytes of an entry of the history on each database: `python -m benchmarks.history_sizes [ENTRIES]`.

The entries are of delivered messages without keys, with ids of delaystore and a destination of 12 characters; one store
removes them in the order of their ids, another in no order.
"""

import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import create_engine, make_url, text

from benchmarks.bench import message_due
from benchmarks.history import DESTINATION
from delaystore.settings import TransactionMode
from delaystore.stores.sql import SqlDelayedMessageStore
from tests.servers import MariaDB, PostgreSQL

ENTRIES: Final = 100_000
BATCH: Final = 1_000
SIZES: Final = {
    "postgresql": (
        "VACUUM ANALYZE sizes_delayed_history",
        "SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)) FROM pg_inherits "
        "WHERE inhparent = 'sizes_delayed_history'::regclass",
    ),
    "mariadb": (
        "ANALYZE TABLE sizes_delayed_history",
        "SELECT data_length, index_length FROM information_schema.tables "
        "WHERE table_schema = database() AND table_name = 'sizes_delayed_history'",
    ),
    "sqlite": (
        "ANALYZE",
        "SELECT sum(pgsize) FILTER (WHERE name = 'sizes_delayed_history'), "
        "sum(pgsize) FILTER (WHERE name LIKE 'sizes\\_delayed\\_history\\_%' ESCAPE '\\') FROM dbstat",
    ),
}
"""By the scheme of a URL: bring the statistics up to date, and read the bytes of the rows and of the indexes."""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES
    with tempfile.TemporaryDirectory() as folder:
        for name, urls in _databases(Path(folder)):
            for order, url in urls.items():
                rows, indexes = _sizes(url, count, in_order=order == "in order")
                print(f"{name}, {order}: {rows:.0f} bytes in the table, {indexes:.0f} in the indexes", flush=True)


def _databases(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    orders = "in order", "in no order"
    yield "SQLite", {order: f"sqlite:///{folder}/{order}.db" for order in orders}
    for name, make in {"PostgreSQL": PostgreSQL, "MariaDB": MariaDB}.items():
        with make() as server:
            yield name, {order: server.create_database() for order in orders}


def _sizes(url: str, count: int, *, in_order: bool) -> tuple[float, float]:
    """Bytes of the row of an entry, and of its entries in the indexes, with the free space in their pages."""
    _remove(url, count, in_order=in_order)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    refresh, query = SIZES[make_url(url).get_backend_name()]
    with engine.connect() as connection:
        connection.execute(text(refresh))
        rows, indexes = connection.execute(text(query)).one()
    engine.dispose()
    return float(rows) / count, float(indexes) / count


def _remove(url: str, count: int, *, in_order: bool) -> None:
    """Make a store with a history, store `count` messages, and remove them as delivered."""
    store = SqlDelayedMessageStore(url)
    store.initialize("sizes", TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    store.keep_history(timedelta(days=30))
    begin = store.now() - timedelta(hours=1)
    seconds = [3600 * number / count for number in range(count)]
    if not in_order:
        random.shuffle(seconds)
    store.store_many(message_due(begin + timedelta(seconds=each), DESTINATION) for each in seconds)
    removed = 0
    while removed < count:
        with store.transaction() as transaction:
            removed += transaction.remove_many(transaction.fetch_due(store.now(), BATCH))
    store.close()


if __name__ == "__main__":
    main()
