"""A transaction for tests of code that enlists, with a store in memory."""

from collections.abc import Callable
from types import TracebackType
from typing import Self


class FakeTransaction:
    """Stands in for the Session or connection that code under test gives to `enlist`, where the store is in memory.

    `commit` and `rollback` end the transaction that is open, and begin the next. A `with` block commits at its end, and
    rolls back on an error. It has no savepoints. Derive from it to give it whatever else your code asks of a Session.
    """

    def __init__(self) -> None:
        self._on_commit: list[Callable[[], object]] = []
        self._on_rollback: list[Callable[[], object]] = []

    def on_commit(self, action: Callable[[], object]) -> None:
        """Call `action` after the commit of the transaction that is open; forget it at a rollback."""
        self._on_commit.append(action)

    def on_rollback(self, action: Callable[[], object]) -> None:
        """Call `action` after the rollback of the transaction that is open; forget it at a commit."""
        self._on_rollback.append(action)

    def commit(self) -> None:
        """Let what was enlisted take effect, and call the actions in their order; raises what one of them raises."""
        self._end(self._on_commit)

    def rollback(self) -> None:
        """Undo what was enlisted, and call the actions in their order; raises what one of them raises."""
        self._end(self._on_rollback)

    def close(self) -> None:
        """Roll back what is open."""
        self.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.rollback()

    def _end(self, actions: list[Callable[[], object]]) -> None:
        self._on_commit, self._on_rollback = [], []
        for action in actions:
            action()


class AsyncFakeTransaction:
    """A FakeTransaction whose `commit`, `rollback` and `close` are awaited, for an AsyncSession or AsyncConnection."""

    def __init__(self) -> None:
        self.sync_session = FakeTransaction()
        """What is enlisted in, as in an AsyncSession."""

    def on_commit(self, action: Callable[[], object]) -> None:
        """As `FakeTransaction.on_commit`."""
        self.sync_session.on_commit(action)

    def on_rollback(self, action: Callable[[], object]) -> None:
        """As `FakeTransaction.on_rollback`."""
        self.sync_session.on_rollback(action)

    async def commit(self) -> None:
        """As `FakeTransaction.commit`."""
        self.sync_session.commit()

    async def rollback(self) -> None:
        """As `FakeTransaction.rollback`."""
        self.sync_session.rollback()

    async def close(self) -> None:
        """As `FakeTransaction.close`."""
        self.sync_session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.sync_session.__exit__(kind, error, traceback)
