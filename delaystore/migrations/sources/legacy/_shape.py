"""What the tables of NServiceBus have in common."""

from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import override

from delaystore.message import DelayedMessage
from delaystore.migrations._checksum import Identity
from delaystore.migrations.sources._sql.shape import TableShape
from delaystore.records import nservicebus


class NServiceBusShape(TableShape):
    """A table with the columns Id, Destination, State, Time, Headers, in these letters or small ones; SagaId or none.

    `address`: what a destination means; a queue's name as it is, or `nservicebus.without_machine`.
    """

    id_column: ClassVar[str] = "Id"
    time_column: ClassVar[str] = "Time"
    destination_column: ClassVar[str] = "Destination"
    identity_columns = ("Id", "Destination", "Time", "Headers")
    leaves_rejected = True  # the timeout manager of an endpoint that still runs finds them

    def __init__(self, address: nservicebus.Address) -> None:
        self._address = address

    def headers(self, value: Any) -> dict[str, str | None]:
        """The headers that a value of the column Headers holds; raises InvalidMessageError."""
        return nservicebus.parse_json_headers(value)

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
