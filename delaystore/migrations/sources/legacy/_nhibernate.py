"""NServiceBus NHibernate persistence: one table `TimeoutEntity` for all endpoints.

Columns: Id, Destination, SagaId, State, Endpoint, Time, Headers (JSON text). Source: `TimeoutEntityMap` of
Particular/NServiceBus.NHibernate and of its migration tool.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, Connection, Engine, Inspector, MetaData, Table, select
from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.migrations.sources._sql.shape import Identity, TableShape
from delaystore.records import nservicebus

_COLUMNS: Final = {
    "Id": "the row's id",
    "Destination": "the destination",
    "SagaId": "the saga",
    "State": "the body",
    "Endpoint": "the endpoint",
    "Time": "the due time",
    "Headers": "the headers",
}


class NHibernateShape(TableShape):
    """The table of NServiceBus NHibernate persistence, its names as NHibernate maps them.

    `table`: its name; None: `TimeoutEntity`. `address`: what a destination means, as in NServiceBusSqlShape.
    """

    kind: ClassVar[str] = "NServiceBus NHibernate persistence"
    columns: ClassVar[Mapping[str, str]] = _COLUMNS
    id_column: ClassVar[str] = "Id"
    time_column: ClassVar[str] = "Time"
    destination_column: ClassVar[str] = "Destination"
    identity_columns = ("Id", "Destination", "Time", "Headers")
    endpoint_column: ClassVar[str] = "Endpoint"
    table: ClassVar[str] = "TimeoutEntity"

    def __init__(self, table: str | None = None, address: nservicebus.Address = nservicebus.as_it_is) -> None:
        self._table = table or self.table
        self._address = address

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Found by the rows: an endpoint without a row is not found, and has nothing to move."""
        if not inspector.has_table(self._table, schema):
            return {}
        table = Table(self._table, MetaData(), schema=schema, autoload_with=inspector.bind, quote=True)
        endpoint = table.c[self.endpoint_column]
        query = select(endpoint).where(endpoint.is_not(None)).distinct().order_by(endpoint)
        return {name: self._table for (name,) in _rows(inspector, query)}

    @override
    def table_name(self, endpoint: str) -> str:
        return self._table

    @override
    def of_endpoint(self, table: Table, endpoint: str) -> ColumnElement[bool] | None:
        return table.c[self.endpoint_column] == endpoint

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        identifier, to, saga_id, state, _, time, headers = (row[name] for name in self.columns)
        return nservicebus.message(
            row_id=identifier,
            to=to,
            due_time=time,
            state=state,
            headers=nservicebus.parse_json_headers(headers),
            saga_id=saga_id,
            address=self._address,
        )

    @override
    def destination(self, value: Any) -> str:
        return nservicebus.destination(value, self._address)

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        identifier, to, time, headers = (row[name] for name in self.identity_columns)
        return nservicebus.message_id(nservicebus.parse_json_headers(headers), identifier), self.destination(to), time


class FoldedNHibernateShape(NHibernateShape):
    """The same table on PostgreSQL, which folds the names that NHibernate does not quote."""

    columns: ClassVar[Mapping[str, str]] = {name.lower(): role for name, role in _COLUMNS.items()}
    id_column: ClassVar[str] = "id"
    time_column: ClassVar[str] = "time"
    destination_column: ClassVar[str] = "destination"
    identity_columns = ("id", "destination", "time", "headers")
    endpoint_column: ClassVar[str] = "endpoint"
    table: ClassVar[str] = "timeoutentity"


def _rows(inspector: Inspector, query: Any) -> list[Any]:
    if isinstance(inspector.bind, Connection):
        return list(inspector.bind.execute(query))
    assert isinstance(inspector.bind, Engine)
    with inspector.bind.connect() as connection:
        return list(connection.execute(query))
