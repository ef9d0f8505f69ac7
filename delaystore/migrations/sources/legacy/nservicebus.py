"""NServiceBus' timeout tables: NHibernate persistence, SQL persistence, SQL transport, MSMQ in SQL Server."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Inspector, MetaData, Table, select
from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import Identity
from delaystore.migrations.records import nservicebus
from delaystore.migrations.records.nservicebus import (
    AddressRule,
    as_it_is,
    parse_json_headers,
    parse_xml_headers,
    without_machine,
)
from delaystore.migrations.sources._sql.tables import TableLayout

ByteOrder = Callable[[bytes], UUID]
"""From 16 bytes of a column to a Guid."""


BYTE_ORDERS: Final[Mapping[str, ByteOrder]] = {
    "little-endian": lambda value: UUID(bytes_le=value),  # as Guid.ToByteArray() writes it
    "big-endian": lambda value: UUID(bytes=value),  # as MySQL's UUID_TO_BIN: the digits in their order
}
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


class NServiceBusLayout(TableLayout):
    """A table with the columns Id, Destination, State, Time, Headers, in these letters or small ones; SagaId or none.

    `address`: the meaning of a destination; a queue's name as it is, or `nservicebus.without_machine`.
    """

    id_column: ClassVar[str] = "Id"
    time_column: ClassVar[str] = "Time"
    destination_column: ClassVar[str] = "Destination"
    identity_columns = ("Id", "Destination", "Time", "Headers")
    leaves_rejected = True  # the timeout manager of an endpoint that still runs finds them
    headers = staticmethod(parse_json_headers)
    """Reads the headers that a value of the column Headers holds; raises InvalidMessageError."""

    def __init__(self, address: nservicebus.AddressRule) -> None:
        self._address = address

    def identifier(self, value: Any, what: str) -> Any:  # noqa: ARG002 - for overriders
        """An id as text, or a UUID, or None; raises InvalidMessageError, which calls it `what`."""
        return value

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """By the NServiceBus headers."""
        named = {column.lower(): row[column] for column in self.columns}
        return nservicebus.message(
            row_id=self.identifier(named["id"], "Id"),
            to=named["destination"],
            due_time=named["time"],
            state=named["state"],
            headers=self.headers(named["headers"]),
            saga_id=self.identifier(named.get("sagaid"), "SagaId"),
            address=self._address,
        )

    @override
    def destination(self, value: Any) -> str:
        return nservicebus.destination(value, self._address)

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        identifier, to, time, headers = (row[name] for name in self.identity_columns)
        row_id = self.identifier(identifier, "Id")
        return nservicebus.message_id(self.headers(headers), row_id), self.destination(to), time


_COLUMNS: Final = {
    "Id": "the row's id",
    "Destination": "the destination",
    "SagaId": "the saga",
    "State": "the body",
    "Endpoint": "the endpoint",
    "Time": "the due time",
    "Headers": "the headers",
}


class NHibernateLayout(NServiceBusLayout):
    """The table of NServiceBus NHibernate persistence, its names as NHibernate maps them.

    `table`: its name; None: `TimeoutEntity`. `address`: the meaning of a destination, see NServiceBusLayout.
    `guids`: the order of the bytes where Guids are in binary columns.
    """

    kind: ClassVar[str] = "NServiceBus NHibernate persistence"
    columns: ClassVar[Mapping[str, str]] = _COLUMNS
    endpoint_column: ClassVar[str] = "Endpoint"
    table: ClassVar[str] = "TimeoutEntity"

    def __init__(
        self, table: str | None = None, address: AddressRule = as_it_is, guids: ByteOrder = BYTE_ORDERS["little-endian"]
    ) -> None:
        super().__init__(address)
        self._table = table or self.table
        self._guids = guids

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Found by the rows: an endpoint without a row is not found, and has nothing to move."""
        if not inspector.has_table(self._table, schema):
            return {}
        table = Table(self._table, MetaData(), schema=schema, autoload_with=inspector.bind, quote=True)
        endpoint = table.c[self.endpoint_column]
        query = select(endpoint).where(endpoint.is_not(None)).distinct().order_by(endpoint)
        assert isinstance(inspector.bind, Connection)
        return dict.fromkeys(inspector.bind.scalars(query), self._table)

    @override
    def table_name(self, endpoint: str) -> str:
        return self._table

    @override
    def of_endpoint(self, table: Table, endpoint: str) -> ColumnElement[bool] | None:
        return table.c[self.endpoint_column] == endpoint

    @override
    def row_id(self, row: Mapping[str, Any]) -> str:
        value = row[self.id_column]
        try:
            return str(guid(value, self._guids, "Id"))
        except InvalidMessageError:
            return str(bytes(value).hex())

    @override
    def identifier(self, value: Any, what: str) -> Any:
        return guid(value, self._guids, what)


class FoldedNHibernateLayout(NHibernateLayout):
    """The same table on PostgreSQL, which folds the names that NHibernate does not quote."""

    columns: ClassVar[Mapping[str, str]] = {name.lower(): role for name, role in _COLUMNS.items()}
    id_column: ClassVar[str] = "id"
    time_column: ClassVar[str] = "time"
    destination_column: ClassVar[str] = "destination"
    identity_columns = ("id", "destination", "time", "headers")
    endpoint_column: ClassVar[str] = "endpoint"
    table: ClassVar[str] = "timeoutentity"


ENDPOINT: Final = "{endpoint}"


class TableNames:
    """Tables named by a `template`: `{endpoint}` in it stands for the endpoint's name, everything else for itself.

    A template without `{endpoint}` names one table for all endpoints. Raises ConfigurationError for a template
    that is empty, or has two endpoints.
    """

    def __init__(self, template: str) -> None:
        if not template.strip() or template.count(ENDPOINT) > 1:
            raise ConfigurationError(f"table={template!r} is no table's name; write one, with {ENDPOINT} at most once")
        self._template = template
        self._prefix, self._mark, self._suffix = template.partition(ENDPOINT)

    def table(self, endpoint: str) -> str:
        """The table of `endpoint`."""
        return self._template.replace(ENDPOINT, endpoint)

    def endpoints(self, tables: Iterable[str]) -> Mapping[str, str]:
        """The endpoints that `tables` are named after, and the table of each."""
        found = ((self._endpoint(table), table) for table in tables)
        return {endpoint: table for endpoint, table in sorted(found) if endpoint}

    def _endpoint(self, table: str) -> str:
        """The endpoint that `table` is named after. Empty: none."""
        if not self._mark:
            return table if table == self._template else ""
        if not (table.startswith(self._prefix) and table.endswith(self._suffix)):
            return ""
        return table[len(self._prefix) : len(table) - len(self._suffix)]


class NamedTablesLayout(TableLayout):
    """Tables that are found by their names.

    Args:
        template: The template of their names; see `TableNames`.

    """

    def __init__(self, template: str) -> None:
        self._names = TableNames(template)

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Found by their names. A template without `{endpoint}` is listed as the endpoint of the table's name."""
        return self._names.endpoints(inspector.get_table_names(schema))

    @override
    def table_name(self, endpoint: str) -> str:
        return self._names.table(endpoint)


class MsmqSqlLayout(NamedTablesLayout, NServiceBusLayout):
    """The MSMQ transport's table of delayed messages, machines left out of destinations.

    `table`: the template of its name; None: `{endpoint}.timeouts`, as the transport's code has it. Its documentation
    says `.delayed`, so both occur.
    """

    kind: ClassVar[str] = "the MSMQ transport's SQL table"
    columns: ClassVar[Mapping[str, str]] = {
        "Id": "the message's id",
        "Destination": "the destination",
        "State": "the body",
        "Time": "the due time",
        "Headers": "the headers",
    }
    headers = staticmethod(parse_xml_headers)

    def __init__(self, table: str | None = None) -> None:
        NamedTablesLayout.__init__(self, table or "{endpoint}.timeouts")
        NServiceBusLayout.__init__(self, without_machine)


class NServiceBusSqlLayout(NamedTablesLayout, NServiceBusLayout):
    """The table of NServiceBus SQL persistence.

    `table`: the template of its name; None: as NServiceBus names it, dots of the endpoint's name as underscores.
    `address`: see NServiceBusLayout.
    """

    kind: ClassVar[str] = "NServiceBus SQL persistence"
    columns: ClassVar[Mapping[str, str]] = {
        "Id": "the row's id",
        "Destination": "the destination",
        "SagaId": "the saga",
        "State": "the body",
        "Time": "the due time",
        "Headers": "the headers",
    }

    def __init__(self, table: str | None = None, address: AddressRule = as_it_is) -> None:
        NamedTablesLayout.__init__(self, table or "{endpoint}_TimeoutData")
        NServiceBusLayout.__init__(self, address)
        self._clean = table is None

    @override
    def table_name(self, endpoint: str) -> str:
        """A dot in an endpoint's name is an underscore in the table's, which `tables` shows."""
        return self._names.table(endpoint.replace(".", "_") if self._clean else endpoint)
