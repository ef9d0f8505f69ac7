"""Django's connections: its atomic blocks and savepoints, and what it calls after a commit."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, Connection
from typing_extensions import override

from delaystore.errors import ConfigurationError, StoreError
from delaystore.stores.sql.targets.abc import Target
from delaystore.stores.sql.targets.driver import Lender, LoanTarget


class DjangoTarget(Target):
    """The transaction of one of Django's connections, a BaseDatabaseWrapper.

    `lent` makes a target of the driver's connection behind it, which Django may replace by a new one.
    """

    def __init__(self, wrapper: Any, lender: Lender, lent: Callable[[Any, Lender], LoanTarget]) -> None:
        self._wrapper = wrapper
        self._lender = lender
        self._lent = lent
        self._raw: Any = None
        self._target: LoanTarget | None = None

    @property
    @override
    def connection(self) -> Connection:
        return self._current().connection

    @property
    @override
    def address(self) -> URL | None:
        return self._current().address

    @override
    def when_ended(self, action: Callable[[], None]) -> None:
        """After the commit of the outermost atomic block; Django forgets `action` with a savepoint rolled back."""
        if self._wrapper.in_atomic_block:
            self._wrapper.on_commit(action, robust=True)

    def _current(self) -> LoanTarget:
        wrapper = self._wrapper
        if not wrapper.in_atomic_block and wrapper.get_autocommit():
            raise ConfigurationError(
                f"Django's connection {wrapper.alias!r} is in no transaction, so that each statement would be "
                "committed at once; enlist it inside transaction.atomic()"
            )
        if wrapper.needs_rollback:
            raise StoreError("the atomic block is to be rolled back after an error; nothing can be done in it any more")
        wrapper.validate_thread_sharing()
        wrapper.ensure_connection()
        if self._target is None or self._raw is not wrapper.connection:
            self._raw = wrapper.connection
            self._target = self._lent(self._raw, self._lender)
        return self._target
