"""Guids that .NET has written into binary columns.

MySQL has no type for them. NHibernate's MySQL5Dialect makes such columns BINARY(16), with `Old Guids=true` in the
connection string; the driver then stores the bytes of Guid.ToByteArray(), whose first three groups are little-endian:
https://dev.mysql.com/doc/dev/connector-net/8.0/api/data_api/MySql.Data.MySqlClient.MySqlGuidFormat.html
(LittleEndianBinary16), https://amaelberteau.com/software-engineering/store-guid-as-binary-mysql-with-nhibernate.
Newer dialects make them CHAR(36), MySQLDialect VARCHAR(40); on PostgreSQL they are uuid, on SQL Server
UNIQUEIDENTIFIER, of which drivers make text or a UUID. With `GuidFormat=Binary16` a driver stores big-endian bytes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from delaystore.errors import InvalidMessageError

ByteOrder = Callable[[bytes], UUID]
"""From 16 bytes of a column to a Guid."""


def little_endian(value: bytes) -> UUID:
    """As Guid.ToByteArray() writes it."""
    return UUID(bytes_le=value)


def big_endian(value: bytes) -> UUID:
    """As MySQL's UUID_TO_BIN writes it: the digits in their order."""
    return UUID(bytes=value)


BYTE_ORDERS: Final[Mapping[str, ByteOrder]] = {"little-endian": little_endian, "big-endian": big_endian}
"""By the name of the parameter `guids`."""
_BYTES: Final = 16


def guid(value: Any, order: ByteOrder, what: str) -> Any:
    """The text of a Guid where `value` is bytes; all else as it is.

    Raises InvalidMessageError, which calls it `what`, for bytes that are no Guid.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        return value
    found = bytes(value)
    if len(found) == _BYTES:
        return str(order(found))
    try:
        return str(UUID(found.decode("ascii").strip()))  # text in a column without a character set
    except ValueError:
        raise InvalidMessageError(f"its {what} is {len(found)} bytes, which are no Guid") from None
