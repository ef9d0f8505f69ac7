"""NServiceBus SQL persistence: a table `<Endpoint>_TimeoutData` for each endpoint.

Its scripts create it on PostgreSQL (names in the same letters, quoted), MySQL (uuids and headers as text or JSON),
and SQL Server. Source: `TimeoutScriptBuilder` of Particular/NServiceBus.Persistence.Sql.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Inspector
from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.migrations.sources._sql.shape import Identity, TableShape
from delaystore.migrations.sources.legacy._table_names import TableNames
from delaystore.records import nservicebus


class NServiceBusSqlShape(TableShape):
    """The table of NServiceBus SQL persistence.

    `table`: the template of its name; None: as NServiceBus names it, dots of the endpoint's name as underscores.
    `address`: what a destination means; a queue's name as it is, or `nservicebus.without_machine`.
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
    id_column: ClassVar[str] = "Id"
    time_column: ClassVar[str] = "Time"
    destination_column: ClassVar[str] = "Destination"
    identity_columns = ("Id", "Destination", "Time", "Headers")

    def __init__(self, table: str | None = None, address: nservicebus.Address = nservicebus.as_it_is) -> None:
        self._clean = table is None
        self._names = TableNames(table or "{endpoint}_TimeoutData")
        self._address = address

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Found by their names; what was a dot in an endpoint's name shows as an underscore."""
        return self._names.endpoints(inspector.get_table_names(schema))

    @override
    def table_name(self, endpoint: str) -> str:
        return self._names.table(endpoint.replace(".", "_") if self._clean else endpoint)

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        return nservicebus.message(
            row_id=row["Id"],
            to=row["Destination"],
            due_time=row["Time"],
            state=row["State"],
            headers=nservicebus.parse_json_headers(row["Headers"]),
            saga_id=row["SagaId"],
            address=self._address,
        )

    @override
    def destination(self, value: Any) -> str:
        return nservicebus.destination(value, self._address)

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        message_id = nservicebus.message_id(nservicebus.parse_json_headers(row["Headers"]), row["Id"])
        return message_id, self.destination(row["Destination"]), row["Time"]
