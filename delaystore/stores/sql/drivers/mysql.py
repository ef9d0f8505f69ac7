"""The drivers of MariaDB and MySQL: PyMySQL, and two that were made of it for event loops."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final
from weakref import ref

from sqlalchemy.engine.interfaces import Dialect
from typing_extensions import override

from delaystore.stores.sql.drivers.base import Driver

_IN_TRANSACTION: Final = 1
"""The bit of a server's status, as the protocol has it."""
_TOO_LARGE: Final = 1153
"""The number of the server's error."""
_READ_TIMEOUT: Final = 10
"""Seconds to wait for the answer to a login, where nothing else is said."""


class PyMySql(Driver):
    """PyMySQL."""

    @override
    def connect(self, dialect: Dialect, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """After at most twice `connect_timeout`: PyMySQL has the handshake wait for `read_timeout`."""
        if "read_timeout" not in parameters:
            return dialect.connect(*arguments, **parameters)
        timeout = parameters.get(self.time_limit, _READ_TIMEOUT)
        connection: Any = dialect.connect(*arguments, **{**parameters, "read_timeout": timeout})
        connection._read_timeout = parameters["read_timeout"]  # there is no other way to change it
        return connection

    @override
    def limit_statements(self, connection: Any, most: int) -> None:
        """By the server's own error for it, which is lost when it closes the connection while more is being sent."""
        connection._execute_command = partial(_send_at_most, most, ref(connection))

    @override
    def socket_of(self, connection: Any) -> int | None:
        opened = getattr(connection, "_sock", None)
        return None if opened is None else opened.fileno()

    @override
    def commits_at_once(self, own: Any) -> bool:
        """In autocommit mode; else the first statement begins a transaction."""
        return bool(own.get_autocommit() and not own.server_status & _IN_TRANSACTION)


class _OnALoop(Driver):
    """Drivers for event loops that were made of PyMySQL."""

    is_async: ClassVar[bool] = True
    blocking: ClassVar[str | None] = "pymysql"
    connect_arguments: ClassVar[Mapping[str, Any] | None] = {"connect_timeout": 10, "charset": "utf8mb4"}

    @override
    def commits_at_once(self, own: Any) -> bool:
        """As of PyMySQL."""
        return bool(own.get_autocommit() and not own.get_transaction_status())


class Aiomysql(_OnALoop):
    """aiomysql on an event loop."""

    @override
    def repair(self, connection: Any) -> None:
        """To write bytes, aiomysql asks PyMySQL for a function that its release 1.2 has no more."""
        own = connection.driver_connection
        if "escape" not in vars(own):
            own.escape = partial(_escaped, own.escape)

    @override
    def socket_of(self, connection: Any) -> int | None:
        writer = getattr(connection.driver_connection, "_writer", None)
        opened = None if writer is None else writer.get_extra_info("socket")
        descriptor = -1 if opened is None else opened.fileno()
        return None if descriptor < 0 else descriptor


class Asyncmy(_OnALoop):
    """asyncmy on an event loop. Its socket is behind compiled code: cancelling the task ends a wait."""


def _send_at_most(most: int, connection: "ref[Any]", command: int, statement: str | bytes) -> None:
    """What PyMySQL sends a command by; a connection holds no reference to itself, so that it is closed when unused."""
    own: Any = connection()
    if len(statement) >= most:  # the command is a byte more
        raise own.OperationalError(_TOO_LARGE, f"Got a packet bigger than 'max_allowed_packet' bytes, {most:,}")
    type(own)._execute_command(own, command, statement)


def _escaped(escape: Callable[[Any], str], value: Any) -> str:
    """`value` as a literal, by `escape` unless it is bytes."""
    return f"_binary X'{value.hex()}'" if isinstance(value, bytes | bytearray) else escape(value)
