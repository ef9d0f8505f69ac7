"""NServiceBus NHibernate persistence: one table `TimeoutEntity` for all endpoints.

Columns: Id, Destination, SagaId, State, Endpoint, Time, Headers (JSON text). Source: `TimeoutEntityMap` of
Particular/NServiceBus.NHibernate and of its migration tool. Id and SagaId are Guids; see `_guids`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, Connection, Inspector, MetaData, Table, select
from typing_extensions import override

from delaystore.errors import InvalidMessageError
from delaystore.migrations.sources.legacy._guids import ByteOrder, guid, little_endian
from delaystore.migrations.sources.legacy._shape import NServiceBusShape
from delaystore.records.nservicebus import Address, as_it_is

_COLUMNS: Final = {
    "Id": "the row's id",
    "Destination": "the destination",
    "SagaId": "the saga",
    "State": "the body",
    "Endpoint": "the endpoint",
    "Time": "the due time",
    "Headers": "the headers",
}


class NHibernateShape(NServiceBusShape):
    """The table of NServiceBus NHibernate persistence, its names as NHibernate maps them.

    `table`: its name; None: `TimeoutEntity`. `address`: what a destination means, see NServiceBusShape. `guids`: the
    order of the bytes where Guids are in binary columns.
    """

    kind: ClassVar[str] = "NServiceBus NHibernate persistence"
    columns: ClassVar[Mapping[str, str]] = _COLUMNS
    endpoint_column: ClassVar[str] = "Endpoint"
    table: ClassVar[str] = "TimeoutEntity"

    def __init__(self, table: str | None = None, address: Address = as_it_is, guids: ByteOrder = little_endian) -> None:
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


class FoldedNHibernateShape(NHibernateShape):
    """The same table on PostgreSQL, which folds the names that NHibernate does not quote."""

    columns: ClassVar[Mapping[str, str]] = {name.lower(): role for name, role in _COLUMNS.items()}
    id_column: ClassVar[str] = "id"
    time_column: ClassVar[str] = "time"
    destination_column: ClassVar[str] = "destination"
    identity_columns = ("id", "destination", "time", "headers")
    endpoint_column: ClassVar[str] = "endpoint"
    table: ClassVar[str] = "timeoutentity"
