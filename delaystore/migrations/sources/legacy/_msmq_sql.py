"""The MSMQ transport's SQL table: `<endpoint>.timeouts`, on SQL Server.

Source: the folder DelayedDelivery of Particular/NServiceBus.Transport.Msmq, 2.0. How often its dispatcher has failed
(RetryCount) is not taken over: that was another transport's failure.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Inspector
from typing_extensions import override

from delaystore.migrations.sources.legacy._shape import NServiceBusShape
from delaystore.migrations.sources.legacy._table_names import TableNames
from delaystore.records.nservicebus import parse_xml_headers, without_machine


class MsmqSqlShape(NServiceBusShape):
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

    def __init__(self, table: str | None = None) -> None:
        super().__init__(without_machine)
        self._names = TableNames(table or "{endpoint}.timeouts")

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        return self._names.endpoints(inspector.get_table_names(schema))

    @override
    def table_name(self, endpoint: str) -> str:
        return self._names.table(endpoint)

    @override
    def headers(self, value: Any) -> dict[str, str | None]:
        return parse_xml_headers(value)
