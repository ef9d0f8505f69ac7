"""Tables as NServiceBus' persistences create them, with messages of every kind, and what these are to become."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from xml.sax.saxutils import escape

from sqlalchemy import Connection, text

from delaystore.message import DelayedMessage
from tests.integration.sql_stores import connected

YEAR = timedelta(days=365)
NOW = datetime.now(UTC).replace(microsecond=0)
SAGA = "11111111-2222-3333-4444-555555555555"
HEADERS = {
    "NServiceBus.MessageId": "b9a0a9c0-0001-4000-8000-00000000000a",
    "NServiceBus.CorrelationId": "corr ü",
    "NServiceBus.EnclosedMessageTypes": "Sales.TimedOut, Sales, Version=1.0.0.0;Sales.IEvent, Sales",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.TimeSent": "2026-01-02 03:04:05:678901 Z",
    "own ü 😀": "'quoted' \"double\" %s :x \\ <&>",
}
PROPERTIES = {
    "correlation_id": "corr ü",
    "type": "Sales.TimedOut",
    "content_type": "application/json",
    "delivery_mode": 2,
}


@dataclass(frozen=True)
class Kind:
    """A kind of table on one database. `types`: of each column; `machine`: what follows a queue in an address."""

    name: str
    table: str
    endpoint: str
    types: dict[str, str]
    machine: str = ""

    @property
    def columns(self) -> list[str]:
        return list(self.types)


NSERVICEBUS = {
    "postgresql": Kind("nservicebus-sql", "My_Sales_TimeoutData", "My.Sales", {
        "Id": "uuid PRIMARY KEY", "Destination": "varchar(200)", "SagaId": "uuid", "State": "bytea",
        "Time": "timestamp", "Headers": "text", "PersistenceVersion": "varchar(23)",
    }),
    "mysql": Kind("nservicebus-sql", "My_Sales_TimeoutData", "My.Sales", {
        "Id": "varchar(38) PRIMARY KEY", "Destination": "nvarchar(200)", "SagaId": "varchar(38)", "State": "longblob",
        "Time": "datetime", "Headers": "longtext CHARACTER SET utf8mb4 NOT NULL",
        "PersistenceVersion": "varchar(23) NOT NULL",
    }),
}  # fmt: skip
MSMQ = {
    "postgresql": Kind("msmq-sql", "My.Sales.timeouts", "My.Sales", {
        "Id": "varchar(250) PRIMARY KEY", "Destination": "varchar(200)", "State": "bytea", "Time": "timestamp",
        "Headers": "bytea NOT NULL", "RetryCount": "int NOT NULL DEFAULT 0",
    }, machine="@SRV1"),
    "mysql": Kind("msmq-sql", "My.Sales.timeouts", "My.Sales", {
        "Id": "varchar(250) PRIMARY KEY", "Destination": "nvarchar(200)", "State": "longblob", "Time": "datetime",
        "Headers": "longblob NOT NULL", "RetryCount": "int NOT NULL DEFAULT 0",
    }, machine="@SRV1"),
}  # fmt: skip
NHIBERNATE = {
    "postgresql": Kind("nhibernate", "timeoutentity", "My.Sales", {
        "id": "uuid PRIMARY KEY", "destination": "varchar(1024)", "sagaid": "uuid", "state": "bytea",
        "endpoint": "varchar(440)", "time": "timestamp", "headers": "text",
    }),
    "mysql": Kind("nhibernate", "TimeoutEntity", "My.Sales", {
        "Id": "varchar(40) PRIMARY KEY", "Destination": "nvarchar(1024)", "SagaId": "varchar(40)", "State": "longblob",
        "Endpoint": "varchar(440)", "Time": "datetime", "Headers": "longtext CHARACTER SET utf8mb4",
    }),
}  # fmt: skip
OLD_GUIDS = Kind("nhibernate", "TimeoutEntity", "My.Sales", NHIBERNATE["mysql"].types | {
    "Id": "binary(16) PRIMARY KEY", "SagaId": "binary(16)",
})  # fmt: skip
"""On MySQL, by NHibernate's MySQL5Dialect and `Old Guids=true`."""
KINDS = {"nservicebus-sql": NSERVICEBUS, "msmq-sql": MSMQ, "nhibernate": NHIBERNATE}


@dataclass(frozen=True)
class Row:
    """A row, and what it becomes: a message, or the reason that it cannot be one."""

    number: int
    due_time: datetime
    destination: str | None = "orders"
    headers: dict[str, str] | str | None = None
    body: bytes | None = b"\0body\xff"
    saga: str | None = SAGA
    reason: str | None = None

    @property
    def row_id(self) -> str:
        return f"0d4f7f5a-3e1e-4b7a-9f0e-{self.number:012d}"

    def message(self, kind: Kind) -> DelayedMessage:
        headers = self.headers if isinstance(self.headers, dict) else {}
        saga = {} if self.saga is None or kind.name == "msmq-sql" else {"NServiceBus.SagaId": self.saga}
        assert self.destination is not None
        return DelayedMessage(
            message_id=headers.get("NServiceBus.MessageId", self.row_id),
            destination=self.destination,
            due_time=self.due_time,
            body=self.body or b"",
            headers={**headers, **saga},
            properties=PROPERTIES if headers else {"delivery_mode": 2},
        )


ROWS = [
    Row(1, NOW + timedelta(hours=1), headers=HEADERS),
    Row(2, NOW - timedelta(days=1), headers={}),
    Row(3, NOW + 8 * YEAR, body=None, saga=None),
    Row(4, NOW + timedelta(hours=2), destination="Büro 'x' %s", body="ü😀".encode() * 9000),
    Row(5, NOW + timedelta(hours=3), headers="corrupted {", reason="(its headers are|the text of its headers is) no"),
    Row(6, NOW + timedelta(hours=4), destination=None, reason="it has no destination"),
    Row(7, NOW + 9 * YEAR, saga=None),
]


def make_table(url: str, kind: Kind, rows: list[Row]) -> None:
    with connected(url) as connection:
        charset = "" if connection.dialect.name == "postgresql" else " DEFAULT CHARSET=ascii"
        columns = ", ".join(f"{quoted(connection, name)} {type_}" for name, type_ in kind.types.items())
        connection.execute(text(f"CREATE TABLE {quoted(connection, kind.table)} ({columns}){charset}"))
        names = ", ".join(quoted(connection, name) for name in kind.columns)
        values = ", ".join(f":{name}" for name in kind.columns)
        insert = text(f"INSERT INTO {quoted(connection, kind.table)} ({names}) VALUES ({values})")
        if rows:
            connection.execute(insert, [_values(kind, row) for row in rows])


def quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)


def _values(kind: Kind, row: Row) -> dict[str, Any]:
    found = {
        "id": row.row_id,
        "destination": None if row.destination is None else row.destination + kind.machine,
        "sagaid": row.saga,
        "state": row.body,
        "time": row.due_time.replace(tzinfo=None),
        "headers": _headers(kind, row.headers),
        "persistenceversion": "6.0.0.0",
        "retrycount": 2,
        "endpoint": kind.endpoint,
    }
    binary = (name for name in ("Id", "SagaId") if kind.types.get(name, "").startswith("binary"))
    guids = {name.lower(): UUID(found[name.lower()]).bytes_le for name in binary if found[name.lower()] is not None}
    return {name: (found | guids)[name.lower()] for name in kind.columns}


def _headers(kind: Kind, headers: dict[str, str] | str | None) -> Any:
    if kind.name != "msmq-sql":
        return headers if isinstance(headers, str) else json.dumps(headers or {}, ensure_ascii=False)
    if isinstance(headers, str):
        return headers.encode()
    pairs = (
        f"<HeaderInfo><Key>{escape(k)}</Key><Value>{escape(v)}</Value></HeaderInfo>" for k, v in (headers or {}).items()
    )
    return f'<?xml version="1.0"?>\r\n<ArrayOfHeaderInfo>{"".join(pairs)}</ArrayOfHeaderInfo>'.encode()
