"""The MSMQ transport's SQL table: `<endpoint>.timeouts`, on SQL Server.

Source: the folder DelayedDelivery of Particular/NServiceBus.Transport.Msmq, 2.0. How often its dispatcher has failed
(RetryCount) is not taken over: that was another transport's failure.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Inspector
from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.migrations.sources._sql.shape import Identity, TableShape
from delaystore.migrations.sources.legacy._table_names import TableNames
from delaystore.records import nservicebus
from delaystore.records.xml_headers import parse_xml_headers


class MsmqSqlShape(TableShape):
    """The MSMQ transport's table of delayed messages.

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
    id_column: ClassVar[str] = "Id"
    time_column: ClassVar[str] = "Time"
    destination_column: ClassVar[str] = "Destination"
    identity_columns = ("Id", "Destination", "Time", "Headers")

    def __init__(self, table: str | None = None) -> None:
        self._names = TableNames(table or "{endpoint}.timeouts")

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        return self._names.endpoints(inspector.get_table_names(schema))

    @override
    def table_name(self, endpoint: str) -> str:
        return self._names.table(endpoint)

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """By the NServiceBus headers, machines left out of addresses."""
        return nservicebus.message(
            row_id=row["Id"],
            to=row["Destination"],
            due_time=row["Time"],
            state=row["State"],
            headers=parse_xml_headers(row["Headers"]),
            address=nservicebus.without_machine,
        )

    @override
    def destination(self, value: Any) -> str:
        """A queue, without its machine; empty: none."""
        return nservicebus.destination(value, nservicebus.without_machine)

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        message_id = nservicebus.message_id(parse_xml_headers(row["Headers"]), row["Id"])
        return message_id, self.destination(row["Destination"]), row["Time"]
