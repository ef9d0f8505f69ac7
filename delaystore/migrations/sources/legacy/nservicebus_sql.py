"""NServiceBus SQL persistence: a table `<Endpoint>_TimeoutData` for each endpoint.

Its scripts create it on PostgreSQL (names in the same letters, quoted), MySQL (uuids and headers as text or JSON),
and SQL Server. Source: `TimeoutScriptBuilder` of Particular/NServiceBus.Persistence.Sql.
"""

from collections.abc import Mapping
from typing import ClassVar

from sqlalchemy import Inspector
from typing_extensions import override

from delaystore.migrations.sources.legacy._shape import NServiceBusShape
from delaystore.migrations.sources.legacy._table_names import TableNames
from delaystore.records.nservicebus import Address, as_it_is


class NServiceBusSqlShape(NServiceBusShape):
    """The table of NServiceBus SQL persistence.

    `table`: the template of its name; None: as NServiceBus names it, dots of the endpoint's name as underscores.
    `address`: see NServiceBusShape.
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

    def __init__(self, table: str | None = None, address: Address = as_it_is) -> None:
        super().__init__(address)
        self._clean = table is None
        self._names = TableNames(table or "{endpoint}_TimeoutData")

    @override
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """Found by their names; what was a dot in an endpoint's name shows as an underscore."""
        return self._names.endpoints(inspector.get_table_names(schema))

    @override
    def table_name(self, endpoint: str) -> str:
        return self._names.table(endpoint.replace(".", "_") if self._clean else endpoint)
