"""Rows of NServiceBus' tables become messages."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID
from xml.sax.saxutils import escape

import pytest
from sqlalchemy import Column, MetaData, Table, make_url
from sqlalchemy.dialects import mssql

from delaystore.errors import ConfigurationError, InvalidMessageError, UnknownSchemeError
from delaystore.message import DelayedMessage
from delaystore.migrations.records.nservicebus import parse_json_headers, parse_xml_headers, without_machine
from delaystore.migrations.sources import open_source
from delaystore.migrations.sources.legacy import MsmqSqlLayout, NHibernateLayout, NServiceBusSqlLayout, legacy_layout
from delaystore.migrations.sources.legacy.nservicebus import TableNames
from delaystore.text import parse_address
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, due_time, to_be_delayed
from delaystore.transports.rabbitmq.properties import check_message

DUE = datetime(2034, 5, 6, 7, 8, 9, 120000, UTC)
ROW = UUID("0d4f7f5a-3e1e-4b7a-9f0e-a1b2c3d4e5f6")
SAGA = UUID("11111111-2222-3333-4444-555555555555")
HEADERS = {
    "NServiceBus.MessageId": "b9a0a9c0-0001",
    "NServiceBus.CorrelationId": "corr-1",
    "NServiceBus.EnclosedMessageTypes": "Sales.OrderTimedOut, Sales, Version=1.0.0.0;Sales.IEvent, Sales",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.ReplyToAddress": "replies",
    "NServiceBus.TimeSent": "2026-01-02 03:04:05:678901 Z",
    "own ü 😀": "line\r\nbreak\t\"'<&>",
    "empty": "",
}


def nservicebus(headers: Any = HEADERS, layout: NServiceBusSqlLayout | None = None, **changed: Any) -> DelayedMessage:
    row = {"Id": ROW, "Destination": "orders", "SagaId": SAGA, "State": b"\0body\xff", "Time": DUE}
    row["Headers"] = headers if isinstance(headers, str | None) else json.dumps(headers)
    return (layout or NServiceBusSqlLayout()).to_message({**row, **changed, "PersistenceVersion": "5.0"}, "sales")


def xml(headers: dict[str, str]) -> str:
    pairs = (f"<HeaderInfo><Key>{escape(k)}</Key><Value>{escape(v)}</Value></HeaderInfo>" for k, v in headers.items())
    return f'<?xml version="1.0"?><ArrayOfHeaderInfo xmlns:xsi="urn:x">{"".join(pairs)}</ArrayOfHeaderInfo>'


def msmq(headers: Any, **changed: Any) -> DelayedMessage:
    row = {"Id": "m-1", "Destination": "orders@SRV1", "State": b"b", "Time": DUE, "Headers": headers, "RetryCount": 3}
    return MsmqSqlLayout().to_message({**row, **changed}, "sales")


def test_headers_become_amqp_properties() -> None:
    message = nservicebus()
    assert message == DelayedMessage(
        message_id="b9a0a9c0-0001",
        destination="orders",
        due_time=DUE,
        body=b"\0body\xff",
        headers={**HEADERS, "NServiceBus.SagaId": str(SAGA)},
        properties={
            "correlation_id": "corr-1",
            "type": "Sales.OrderTimedOut",
            "content_type": "application/json",
            "reply_to": "replies",
            "delivery_mode": 2,
        },
    )
    check_message(message)


@pytest.mark.parametrize("headers", ["{}", "", None, '{"NServiceBus.MessageId": ""}'])
def test_a_row_without_a_message_id_gives_its_own(headers: str | None) -> None:
    assert nservicebus(headers).message_id == str(ROW)


def test_a_null_body_is_empty() -> None:
    assert nservicebus(State=None).body == b""
    assert nservicebus(State=memoryview(b"view")).body == b"view"


@pytest.mark.parametrize("saga", [None, UUID(int=0), "", "00000000-0000-0000-0000-000000000000"])
def test_no_saga_leaves_no_header(saga: object) -> None:
    assert nservicebus(SagaId=saga).headers == HEADERS


def test_a_saga_that_headers_name_stays() -> None:
    assert nservicebus({"NServiceBus.SagaId": "theirs"}).headers == {"NServiceBus.SagaId": "theirs"}


def test_what_is_too_long_for_a_property_stays_a_header() -> None:
    name = "Generic`1[[" + "ü" * 200
    message = nservicebus({"NServiceBus.EnclosedMessageTypes": name})
    assert "type" not in message.properties
    assert message.headers["NServiceBus.EnclosedMessageTypes"] == name
    check_message(message)


def test_null_headers_stay_null() -> None:
    assert nservicebus({"a": None}, SagaId=None).headers == {"a": None}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ("{", "no JSON"),
        ("[]", "array"),
        ("null", "null, not an object"),
        ('{"a": 1}', "'a' is a JSON number"),
        ('{"a": {"b": "c"}}', "'a' is a JSON object"),
        ('{"a": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ("\0", "no JSON"),
    ],
)
def test_corrupted_json_headers_are_refused(headers: str, reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=reason):
        nservicebus(headers)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"Destination": None}, "no destination"),
        ({"Destination": ""}, "no destination"),
        ({"Destination": "q" * 256}, "256 bytes"),
        ({"Destination": "a\0b"}, "NUL"),
        ({"Time": None}, "no due time"),
        ({"Time": datetime(9999, 12, 31, tzinfo=UTC)}, "out of range"),
        ({"State": "text"}, "type str, not bytes"),
    ],
)
def test_impossible_rows_are_refused(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=reason):
        nservicebus(**changed)


def test_json_that_a_driver_has_read_already_is_taken() -> None:
    assert parse_json_headers({"a": "b"}) == {"a": "b"}


@pytest.mark.parametrize("queue", ["a b", "50%", "/slash", "/queues/x", "ü😀", "a.b@c", "'; drop --", "{x}"])
def test_a_hostile_queue_name_reaches_that_queue(queue: str) -> None:
    destination = nservicebus(Destination=queue).destination
    assert parse_address(destination) == ("", queue)
    assert NServiceBusSqlLayout().destination(queue) == destination


def test_a_rows_identity_is_its_messages() -> None:
    row = {"Id": ROW, "Destination": "/x", "Time": DUE, "Headers": json.dumps(HEADERS)}
    assert NServiceBusSqlLayout().identity(row, "e") == ("b9a0a9c0-0001", "/queues/%2Fx", DUE)
    assert NHibernateLayout().identity(row, "e") == ("b9a0a9c0-0001", "/queues/%2Fx", DUE)
    row |= {"Headers": xml({}).encode(), "Destination": "q@m"}
    assert MsmqSqlLayout().identity(row, "e") == (str(ROW), "q", DUE)


GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("stored", "parameters"),
    [
        (GUID, ""),
        (str(GUID), ""),
        (GUID.bytes_le, ""),
        (GUID.bytes, "?guids=big-endian"),
        (str(GUID).encode(), ""),
    ],
    ids=["uuid", "text", "as .NET", "as MySQL", "text as bytes"],
)
def test_guids_of_nhibernate_are_text_however_they_are_stored(stored: object, parameters: str) -> None:
    layout = legacy_layout("nhibernate", make_url(f"mysql://h/d{parameters}"))
    row = {"Id": stored, "SagaId": stored, "Destination": "q", "State": b"", "Endpoint": "e", "Time": DUE}
    message = layout.to_message({**row, "Headers": "{}"}, "e")
    assert (message.message_id, message.headers) == (str(GUID), {"NServiceBus.SagaId": str(GUID)})
    assert layout.row_id(row) == str(GUID)


def test_bytes_that_are_no_guid_are_refused() -> None:
    row = {"Id": b"123", "SagaId": None, "Destination": "q", "State": b"", "Endpoint": "e", "Time": DUE}
    with pytest.raises(InvalidMessageError, match="its Id is 3 bytes, which are no Guid"):
        NHibernateLayout().to_message({**row, "Headers": "{}"}, "e")
    assert NHibernateLayout().row_id(row) == "313233"
    for field in ("Id", "SagaId"):
        with pytest.raises(InvalidMessageError, match="id is bytes, not text"):
            nservicebus({}, **{field: GUID.bytes})


def test_the_machine_of_an_msmq_address_is_left_out() -> None:
    message = msmq(xml({"NServiceBus.ReplyToAddress": "replies@SRV2"}).encode())
    assert message.destination == "orders"
    assert message.properties["reply_to"] == "replies"
    assert message.headers == {"NServiceBus.ReplyToAddress": "replies@SRV2"}
    assert MsmqSqlLayout().destination("orders@SRV1") == "orders"
    assert nservicebus(layout=NServiceBusSqlLayout(address=without_machine), Destination="q@m").destination == "q"
    assert nservicebus(Destination="q@m").destination == "q@m"
    with pytest.raises(InvalidMessageError, match="no destination"):
        msmq(b"", Destination="@SRV1")


def test_msmq_headers_come_out_as_they_went_in() -> None:
    # a raw line break in XML is read as a line feed, by .NET as well
    headers = {**HEADERS, "own ü 😀": "line\nbreak\t\"'<&>"}
    assert parse_xml_headers(xml(headers).encode()) == headers
    assert parse_xml_headers(xml(headers).encode("utf-16")) == headers
    assert parse_xml_headers(xml(headers)) == headers
    assert msmq(xml(headers).encode()).message_id == HEADERS["NServiceBus.MessageId"]


def test_what_dotnet_writes_and_xml_forbids_is_read() -> None:
    assert parse_xml_headers(xml({"a": "X"}).replace("X", "&#x0;&#x1F;&#13;&#10;é&#xE9;").encode()) == {
        "a": "\0\x1f\r\néé"
    }
    assert parse_xml_headers(xml({"a": "b"}).encode() + b"\0\0rest") == {"a": "b"}
    assert parse_xml_headers(b"\xef\xbb\xbf" + xml({"a": "b"}).encode()) == {"a": "b"}


def test_missing_parts_of_a_header_are_read_as_dotnet_does() -> None:
    text = (
        '<ArrayOfHeaderInfo xmlns:xsi="urn:x"><HeaderInfo><Key>nil</Key><Value xsi:nil="true" /></HeaderInfo>'
        "<HeaderInfo><Key>empty</Key><Value /></HeaderInfo><HeaderInfo><Key>none</Key></HeaderInfo>"
        "<HeaderInfo><Value>no key</Value></HeaderInfo></ArrayOfHeaderInfo>"
    )
    assert parse_xml_headers(text.encode()) == {"nil": None, "empty": "", "none": None}
    assert parse_xml_headers(None) == parse_xml_headers(b"") == {}


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (b"nonsense", "no XML"),
        (xml({"a": "b"}).encode()[:-20], "no XML"),
        (xml({"a": "b"}).encode("utf-8").replace(b"b<", b"\xff<"), "no XML"),
        (b'<?xml version="1.0" encoding="no-such"?><ArrayOfHeaderInfo/>', "no encoding"),
        (b"<Other/>", "^its headers are no list of HeaderInfo: the element 'Other'"),
        (
            b"<ArrayOfHeaderInfo><Other/></ArrayOfHeaderInfo>",
            "^its headers are no list of HeaderInfo: the element 'Other'",
        ),
        (xml({"a": "X"}).replace("X", "<b/>").encode(), "element 'b'"),
        ((BOMB + "<ArrayOfHeaderInfo/>").encode(), "^its headers declare a document type"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><ArrayOfHeaderInfo/>', "^its headers declare a document type"),
        (17, "type int"),
    ],
)
def test_corrupted_or_dangerous_xml_headers_are_refused(headers: object, reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=reason):
        msmq(headers)


def test_a_header_that_is_there_twice_is_refused() -> None:
    pair = "<HeaderInfo><Key>a</Key><Value>1</Value></HeaderInfo>"
    with pytest.raises(InvalidMessageError, match="'a' twice"):
        msmq(f"<ArrayOfHeaderInfo>{pair}{pair}</ArrayOfHeaderInfo>".encode())


@pytest.mark.parametrize("now", [DUE - timedelta(days=8 * 365), DUE - timedelta(seconds=1), DUE + timedelta(days=1)])
def test_an_old_time_sent_and_the_delay_make_the_due_time(now: datetime) -> None:
    delayed = to_be_delayed(nservicebus(), now)
    assert delayed.headers[TIME_SENT] == HEADERS[TIME_SENT]
    due = due_time(delayed.headers)
    assert due is not None
    assert timedelta(0) <= due - DUE < timedelta(seconds=1)


def test_a_delay_of_an_earlier_transport_is_counted_anew() -> None:
    delayed = to_be_delayed(nservicebus({**HEADERS, DELAY_IN_SECONDS: "60"}), DUE - timedelta(hours=1))
    due = due_time(delayed.headers)
    assert due is not None
    assert timedelta(0) <= due - DUE < timedelta(seconds=1)


def test_an_unreadable_time_sent_is_now() -> None:
    now = DUE - timedelta(seconds=90)
    delayed = to_be_delayed(nservicebus({TIME_SENT: "yesterday"}), now)
    assert delayed.headers[DELAY_IN_SECONDS] == 90
    assert due_time(delayed.headers) == DUE


def test_tables_are_named_after_endpoints() -> None:
    assert NServiceBusSqlLayout().table_name("My.Sales") == "My_Sales_TimeoutData"
    assert NServiceBusSqlLayout("pre{endpoint}Timeouts").table_name("My.Sales") == "preMy.SalesTimeouts"
    assert MsmqSqlLayout().table_name("My.Sales") == "My.Sales.timeouts"
    assert MsmqSqlLayout("{endpoint}.delayed").table_name("a") == "a.delayed"
    assert NHibernateLayout().table_name("any") == "TimeoutEntity"


def test_endpoints_are_found_in_the_names_of_tables() -> None:
    names = TableNames("{endpoint}.delayed")
    assert names.endpoints(["b.delayed", "a.delayed", ".delayed", "a.timeouts"]) == {"a": "a.delayed", "b": "b.delayed"}
    assert TableNames("one").endpoints(["one", "two"]) == {"one": "one"}


@pytest.mark.parametrize("template", ["", " ", "{endpoint}{endpoint}"])
def test_a_template_that_names_no_table_is_refused(template: str) -> None:
    with pytest.raises(ConfigurationError, match="table="):
        TableNames(template)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nothing", "no URL"),
        ("nservicebus-sql://host/db", "needs a database's URL"),
        ("nhibernate+sqlite:////tmp/x.db?addresses=ibm", "addresses='ibm'"),
        ("nhibernate+sqlite:////tmp/x.db?guids=middle", "guids='middle' is unknown; known is little-endian"),
        ("nservicebus-sql+sqlite:////tmp/x.db?table=a&table=b", "twice"),
        ("sqlite:////tmp/x.db?table=a&table=b", "parameter table is given twice"),
        ("sqlite:////tmp/x.db?schema=a&schema=b", "parameter schema is given twice"),
        ("nservicebus-sql+nosuchbase://host/db", "is not supported"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        open_source(url)


def test_no_store_of_delaystore_is_on_sql_server() -> None:
    with pytest.raises(
        UnknownSchemeError, match=r"nothing can be migrated from 'mssql\+pyodbc'; known schemes: .*sql\+"
    ):
        open_source("mssql+pyodbc://host/name")


def test_an_unknown_source_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownSchemeError, match=r"postgresql.*nhibernate\+.*file"):
        open_source("ravendb://host")


def test_sources_are_opened_by_what_stands_before_the_plus(tmp_path: Path) -> None:
    for kind, name in (
        ("nservicebus-sql+", "NServiceBus SQL persistence"),
        ("msmq-sql+", "MSMQ"),
        ("nhibernate+", "NHibernate"),
        ("", "delaystore"),
    ):
        source = open_source(f"{kind}sqlite:///{tmp_path / 'x.db'}")
        assert name in source.label
        source.close()
    assert not list(tmp_path.iterdir())


def test_sql_server_is_asked_for_one_endpoints_rows() -> None:
    layout = NHibernateLayout()
    table = Table(layout.table_name("any"), MetaData(), *(Column(name) for name in layout.columns), quote=True)
    condition = layout.of_endpoint(table, "it's")
    assert condition is not None
    found = condition.compile(dialect=mssql.dialect())
    assert (str(found), found.params) == ("[TimeoutEntity].[Endpoint] = :Endpoint_1", {"Endpoint_1": "it's"})


def test_postgresql_folds_the_names_that_nhibernate_does_not_quote() -> None:
    url = make_url("postgresql://h/d")
    assert legacy_layout("nhibernate", url).id_column == "id"
    assert legacy_layout("nhibernate", url).table_name("any") == "timeoutentity"
    assert legacy_layout("nhibernate", url.set(drivername="mssql+pyodbc")).id_column == "Id"
