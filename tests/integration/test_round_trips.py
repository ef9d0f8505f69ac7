"""How many statements a call to a store takes: each is a round trip."""

from datetime import timedelta

from sqlalchemy import event

from delaystore.stores import SqlDelayedMessageStore
from tests.integration.sql_stores import message, opened


def test_many_messages_take_as_few_as_one_copy_needs(postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        far = store.now() + timedelta(days=1)
        said = statements(store)
        assert store.store_many(message(far) for _ in range(100)) == 100
        assert ["set_config" in each or "shelves" in each for each in said] == [True, True], said
        with store.transaction() as transaction:
            said.clear()
            transaction.store_many([message(far)])
        assert any("SAVEPOINT" in each for each in said), "somebody else's transaction outlives a duplicate"


def statements(store: SqlDelayedMessageStore) -> list[str]:
    """What is executed from now on, as SQLAlchemy sees it: COPY, BEGIN and COMMIT come besides."""
    said: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *arguments: said.append(arguments[2]))
    return said
