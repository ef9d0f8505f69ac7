"""What a store needs of somebody else's transaction."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from sqlalchemy import URL, Connection


class Target(ABC):
    """A transaction of somebody else's, who alone commits it or rolls it back. Belongs to its thread."""

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The connection of this moment; ask for it before each statement.

        Raises ConfigurationError where a statement would be committed at once.
        """

    @property
    @abstractmethod
    def address(self) -> URL | None:
        """Where it leads; None: only the database itself can tell."""

    def when_ended(self, action: Callable[[], None]) -> None:  # noqa: B027 - most transactions tell nobody
        """Call `action` once after the transaction's end, at least after a commit.

        This default never does, for a driver tells nobody of its commits: PostgreSQL notifies dispatchers, and
        elsewhere they poll.
        """
