"""The base of all drivers, and the common parts of most drivers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Table
from sqlalchemy.engine.interfaces import Dialect

from delaystore.stores.sql.faults import DatabaseHost

Options = tuple[URL, Mapping[str, Any]]
"""A URL, and arguments for the driver that its query does not hold any more."""


class Driver:
    """One library that speaks to databases: how it connects, the kind of its connections, how a wait for one ends.

    A `connection` is the driver's own, or SQLAlchemy's wrapper of one of an event loop.
    """

    is_async: ClassVar[bool] = False
    """Whether its connections belong to an event loop, so that statements must be executed in a greenlet."""
    blocking: ClassVar[str | None] = None
    """Of one for event loops: the driver that a dispatcher's thread takes, by SQLAlchemy's name."""
    connect_arguments: ClassVar[Mapping[str, Any] | None] = None
    """Arguments, such as time limits, where the URL's query has no others; None: those of the database's own driver."""
    time_limit: ClassVar[str] = "connect_timeout"
    """The argument that says for how many seconds connecting may take."""
    options_of_preparing: ClassVar[frozenset[str]] = frozenset()
    """The options by which a URL says itself which statements are prepared."""

    def default_isolation(self, single: str | None, several: str | None) -> str | None:
        """The isolation level of our engines' new connections: for a `single` statement, or for `several`.

        On an event loop each change of it is awaited, and a send would cost five waits more.
        """
        return (single or several) if self.is_async else several

    def pool_sizes(self, kept: int, more: int) -> Mapping[str, int]:
        """The arguments of a pool: the number of connections that it keeps, and of more that it makes when all are
        used.

        Tasks send in bursts, and each burst would close the latter and make them again: on an event loop all are kept.
        """
        return (
            {"pool_size": kept + more, "max_overflow": 0}
            if self.is_async
            else {"pool_size": kept, "max_overflow": more}
        )

    def options(self, url: URL) -> Options:
        """The URL without those options whose values are no text for this driver, and these."""
        return url, {}

    def blocking_query(self, url: URL) -> Mapping[str, Any]:
        """The query of `url` as the driver `blocking` understands it."""
        return url.query

    def connect(self, dialect: Dialect, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """A new connection. Raises the errors that SQLAlchemy expects of it, also where no server answers."""
        return dialect.connect(*arguments, **parameters)

    def repair(self, connection: Any) -> None:
        """Make a connection, perhaps a caller's, do what statements need, where the library itself cannot."""

    def limit_statements(self, connection: Any, most: int) -> None:
        """Have a statement of more than `most` bytes fail before it is sent, where the server would only hang up."""

    def commits_at_once(self, own: Any) -> bool:  # noqa: ARG002 - for overriders
        """Whether an insert on the driver's `own` connection is committed on its own.

        It is where no transaction is open, and the driver begins none.
        """
        return False

    def read_binary(self, cursor: Any) -> None:
        """Have the next statement of a cursor return binary values, where the driver can return texts, too."""

    def leave(self, cursor: Any) -> None:
        """Close a cursor whose statement was cut off, where closing its connection would not free the locks."""

    def settings_for(self, connection: Any) -> Mapping[str, str]:  # noqa: ARG002 - for overriders
        """The session's settings that the driver needs to be otherwise."""
        return {}

    def server_process(self, connection: Any) -> int | None:  # noqa: ARG002 - for overriders
        """The number of the process that serves a connection, as the server gave it at connecting; None: it did not."""
        return None

    def text_by(self, connection: Any, decode: Callable[[bytes], str]) -> None:
        """Have a connection to SQLite read texts by `decode`."""
        connection.text_factory = decode

    def socket_of(self, connection: Any) -> int | None:  # noqa: ARG002 - for overriders
        """The descriptor of a connection's socket; None: there is none, it is not known, or closed."""
        return None

    def cancellation(self, connection: Any) -> Callable[[float], object] | None:  # noqa: ARG002 - for overriders
        """Asks the server to end its work for a connection, within a number of seconds.

        Another thread may call it. None: the server can only be left; on an event loop, the code that cancels the task
        asks.
        """
        return None

    def source_of(self, error: BaseException | None) -> str | None:  # noqa: ARG002 - for overriders
        """The function of PostgreSQL that refused; None: not known."""
        return None

    def detail_of(self, error: BaseException | None) -> str:  # noqa: ARG002 - for overriders
        """The second line of PostgreSQL's error; empty where it has none."""
        return ""

    def context_of(self, error: BaseException | None) -> str:  # noqa: ARG002 - for overriders
        """At what PostgreSQL was when it failed; empty where it does not say."""
        return ""


class PostgreSqlDriver(Driver, ABC):
    """A driver of PostgreSQL, with the methods that its dialect needs."""

    @abstractmethod
    def hosts_as_arguments(self, hosts: Sequence[DatabaseHost]) -> Mapping[str, Any]:
        """The arguments that name several hosts, where the driver itself tries them in turn."""

    @abstractmethod
    def host_of(self, connection: Any) -> DatabaseHost:
        """The host that has answered, of several."""

    @abstractmethod
    def execute_alone(self, connection: Any, statements: str) -> str:
        """Execute statements on a new connection outside of transactions; returns the server's word of the last one."""

    @abstractmethod
    def prepare_nothing(self, connection: Any) -> None:
        """Have a new connection prepare no statements, which another session may not know."""

    @abstractmethod
    def copy(
        self, connection: Connection, table: Table, types: Mapping[str, str], rows: Iterable[Sequence[Any]]
    ) -> None:
        """COPY `rows` into `table` by one statement. `types`: the PostgreSQL types of the columns in a row, by name."""

    @abstractmethod
    def on_notice(self, connection: Any, note: Callable[[str | None, str], None]) -> None:
        """Call `note` with the function of PostgreSQL that warns, and its text, for each warning from now on."""
