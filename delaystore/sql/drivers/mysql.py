"""The drivers of MariaDB and MySQL: PyMySQL, and two that were made of it for event loops."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from sqlalchemy.engine.interfaces import Dialect
from typing_extensions import override

from delaystore.sql.drivers.base import Driver

_PATIENCE: Final = 10
"""Seconds to wait for the answer to a login, where nothing else is said."""


class PyMySql(Driver):
    """PyMySQL."""

    @override
    def connect(self, dialect: Dialect, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """After at most twice `connect_timeout`: PyMySQL has the handshake wait for `read_timeout`."""
        if "read_timeout" not in parameters:
            return dialect.connect(*arguments, **parameters)
        patience = parameters.get(self.time_limit, _PATIENCE)
        connection: Any = dialect.connect(*arguments, **{**parameters, "read_timeout": patience})
        connection._read_timeout = parameters["read_timeout"]  # there is no other way to change it
        return connection

    @override
    def socket_of(self, connection: Any) -> int | None:
        opened = getattr(connection, "_sock", None)
        return None if opened is None else opened.fileno()


class Aiomysql(Driver):
    """aiomysql on an event loop."""

    is_async: ClassVar[bool] = True
    blocking: ClassVar[str | None] = "pymysql"
    connect_arguments: ClassVar[Mapping[str, Any] | None] = {"connect_timeout": 10, "charset": "utf8mb4"}

    @override
    def mend(self, connection: Any) -> None:
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


class Asyncmy(Driver):
    """asyncmy on an event loop. Its socket is behind compiled code: cancelling the task ends a wait."""

    is_async: ClassVar[bool] = True
    blocking: ClassVar[str | None] = "pymysql"
    connect_arguments: ClassVar[Mapping[str, Any] | None] = Aiomysql.connect_arguments


def _escaped(escape: Callable[[Any], str], value: Any) -> str:
    """`value` as a literal, by `escape` unless it is bytes."""
    return f"_binary X'{value.hex()}'" if isinstance(value, bytes | bytearray) else escape(value)
