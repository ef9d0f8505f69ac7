"""NServiceBus' headers, as JSON and as the XML of its MSMQ transport, and their meaning for a message."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID
from xml.parsers import expat

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.text import JsonError, parse_json

# NServiceBus' headers, and what they say of a message as AMQP properties.

MESSAGE_ID: Final = "NServiceBus.MessageId"
SAGA_ID: Final = "NServiceBus.SagaId"
_TYPES: Final = "NServiceBus.EnclosedMessageTypes"
"""`Namespace.Name, Assembly, Version=...;Namespace.Name, ...`."""
_PROPERTIES: Final = {
    "correlation_id": "NServiceBus.CorrelationId",
    "content_type": "NServiceBus.ContentType",
    "reply_to": "NServiceBus.ReplyToAddress",
}
_MAX_PROPERTY_BYTES: Final = 255
"""AMQP's short string. A longer value stays in its header alone."""
_PERSISTENT: Final = 2

AddressRule = Callable[[str], str]
"""From an address of the old transport to a queue's name."""


def as_it_is(address: str) -> str:
    """An address that is a queue's name."""
    return address


def without_machine(address: str) -> str:
    """The queue of an MSMQ address, `queue@machine`: the part before the @, which no MSMQ queue's name has."""
    return address.partition("@")[0]


ADDRESSES: Final[Mapping[str, AddressRule]] = {"queue": as_it_is, "msmq": without_machine}
"""The meaning of a destination, by the name of the parameter `addresses`."""


def destination(value: Any, address: AddressRule = as_it_is) -> str:
    """The destination that the text of a row means; empty where there is none.

    It is a queue's name, also where it begins with a slash, which our own address strings do.
    """
    queue = address(value) if isinstance(value, str) else ""
    return f"/queues/{quote(queue, safe='')}" if queue.startswith("/") else queue


def parse_json_headers(value: Any) -> dict[str, str | None]:
    """The headers of SQL or NHibernate persistence: `value` is JSON text, or a driver's object of it.

    None and empty text are no headers. Raises InvalidMessageError for a value that is no object of text.
    """
    if value is None or value == "":
        return {}
    headers = value if isinstance(value, Mapping) else _loaded(value)
    if not isinstance(headers, dict):
        raise InvalidMessageError(f"its headers are a JSON {_json_kind(headers)}, not an object")
    for name, text in headers.items():
        if not isinstance(text, str | None):
            raise InvalidMessageError(f"its header {name!r} is a JSON {_json_kind(text)}, not text")
    return headers


def message_id(headers: Mapping[str, str | None], row_id: Any) -> str:
    """The message's own id, or else the row's; raises InvalidMessageError where that is bytes."""
    if own := headers.get(MESSAGE_ID):
        return own
    if isinstance(row_id, bytes | bytearray | memoryview):
        raise InvalidMessageError("its id is bytes, not text")
    return "" if row_id is None else str(row_id)


def properties(headers: Mapping[str, str | None], address: AddressRule = as_it_is) -> dict[str, Any]:
    """The AMQP properties that headers tell, and persistent."""
    named = {name: headers.get(header) for name, header in _PROPERTIES.items()}
    named["type"] = (headers.get(_TYPES) or "").partition(";")[0].partition(",")[0].strip()
    if named["reply_to"]:
        named["reply_to"] = address(named["reply_to"])
    found = {name: text for name, text in named.items() if text and _fits(text)}
    return {**found, "delivery_mode": _PERSISTENT}


def with_saga(headers: dict[str, str | None], saga_id: Any) -> dict[str, str | None]:
    """`headers` and the saga that waits, unless they name one, or there is none (NULL, or a UUID of zeros).

    Raises InvalidMessageError for bytes: the order of a Guid's bytes is unknown here.
    """
    if isinstance(saga_id, bytes | bytearray | memoryview):
        raise InvalidMessageError("its saga's id is bytes, not text")
    saga = "" if saga_id is None else str(saga_id).strip()
    if not saga or SAGA_ID in headers or not saga.strip("{}0-"):
        return headers
    return {**headers, SAGA_ID: saga}


def body(value: Any) -> bytes:
    """Bytes as they are; NULL is empty."""
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidMessageError(f"its body is of the type {type(value).__name__}, not bytes")


def message(
    *,
    row_id: str | UUID | None,
    to: Any,
    due_time: datetime | None,
    state: Any,
    headers: dict[str, str | None],
    saga_id: Any = None,
    address: AddressRule = as_it_is,
) -> DelayedMessage:
    """The message of a row; raises InvalidMessageError with the fault."""
    if due_time is None:
        raise InvalidMessageError("it has no due time")
    queue = destination(to, address)
    if not queue:
        raise InvalidMessageError("it has no destination")
    return DelayedMessage(
        message_id=message_id(headers, row_id),
        destination=queue,
        due_time=due_time,
        body=body(state),
        headers=with_saga(headers, saga_id),
        properties=properties(headers, address),
    )


def _fits(text: str) -> bool:
    return len(text.encode(errors="replace")) <= _MAX_PROPERTY_BYTES


def _loaded(value: Any) -> Any:
    if not isinstance(value, str | bytes):
        raise InvalidMessageError(f"its headers are of the type {type(value).__name__}, not text")
    try:
        return parse_json(value)
    except JsonError as error:
        raise InvalidMessageError(f"the text of its headers {error}") from None


def _json_kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean"}
    return kinds.get(type(value), "number")


# Headers as the MSMQ transport writes them: .NET's XML for a list of HeaderInfo, each with a Key and a Value.
#
# The standard library's expat reads it, and any document type declaration is refused: without one no entity can be
# declared, so none can grow without end or name a file. That is what defusedxml does too, in one handler; no
# dependency is needed for it. Nothing in a HeaderInfo may be nested, so depth has a limit, too.

_END_TAG: Final = b"</ArrayOfHeaderInfo>"
_ELEMENTS: Final = ("ArrayOfHeaderInfo", "HeaderInfo")
_NIL: Final = ("true", "1")
_REFERENCE: Final = re.compile(rb"&#(?:x([0-9a-fA-F]{1,8})|([0-9]{1,10}));")
_HIDDEN: Final = 0xF0000
"""A private plane of Unicode, where control characters are hidden from expat."""


def parse_xml_headers(value: Any) -> dict[str, str | None]:
    """The headers that `value` holds: bytes, or text; None and empty ones are no headers.

    As in the MSMQ transport: text behind the end tag is ignored, and so is a HeaderInfo without a Key; an empty Value
    is empty text, and one that is missing or nil is None. .NET writes control characters as references that XML
    does not allow; they are read anyway. Raises InvalidMessageError for anything else.
    """
    if not value:
        return {}
    if isinstance(value, str):
        data, encoding = value.encode(errors="surrogatepass"), "utf-8"
    elif isinstance(value, bytes | bytearray | memoryview):
        data, encoding = bytes(value), None
    else:
        raise InvalidMessageError(f"its headers are of the type {type(value).__name__}, not bytes")
    end = data.rfind(_END_TAG)
    if end >= 0:
        data = data[: end + len(_END_TAG)]
    shown = _REFERENCE.sub(_hide, data)
    headers = _DocumentReader(encoding).read(shown)
    return headers if shown == data else {_unhide(name): _unhide(text) for name, text in headers.items()}


class _DocumentReader:
    """One reading of one document."""

    def __init__(self, encoding: str | None) -> None:
        self._parser = expat.ParserCreate(encoding)
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._path: list[str] = []
        self._fields: dict[str, str | None] = {}
        self._headers: dict[str, str | None] = {}

    def read(self, data: bytes) -> dict[str, str | None]:
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            raise InvalidMessageError(f"its headers are no XML: {error}") from None
        except InvalidMessageError:
            raise
        except (ValueError, LookupError) as error:
            raise InvalidMessageError(f"its headers are in no encoding that can be read: {error}") from None
        return self._headers

    def _refuse(self, *_: Any) -> None:
        raise InvalidMessageError("its headers declare a document type, which is refused for safety; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        depth = len(self._path)
        if depth > 2 or (depth < 2 and name != _ELEMENTS[depth]):
            raise InvalidMessageError(f"its headers are no list of HeaderInfo: the element {name!r} is none of it")
        self._path.append(name)
        if depth == 2:
            nil = any(key.endswith(":nil") and text in _NIL for key, text in attributes.items())
            self._fields[name] = None if nil else ""

    def _text(self, text: str) -> None:
        if len(self._path) == 3:
            name = self._path[2]
            self._fields[name] = (self._fields[name] or "") + text

    def _end(self, name: str) -> None:
        self._path.pop()
        if name != "HeaderInfo":
            return
        key = self._fields.get("Key")
        if key is not None and key in self._headers:
            raise InvalidMessageError(f"its headers hold {key!r} twice")
        if key is not None:
            self._headers[key] = self._fields.get("Value")
        self._fields = {}


def _hide(reference: re.Match[bytes]) -> bytes:
    hexadecimal, decimal = reference.groups()
    code = int(hexadecimal, 16) if hexadecimal else int(decimal)
    allowed = code >= 0x20 or code in (0x9, 0xA, 0xD)
    return reference[0] if allowed else b"&#%d;" % (_HIDDEN + code)


def _unhide(text: Any) -> Any:
    if text is None or text.isascii():
        return text
    return "".join(chr(ord(char) - _HIDDEN) if 0 <= ord(char) - _HIDDEN < 0x20 else char for char in text)
