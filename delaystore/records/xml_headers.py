"""Headers as the MSMQ transport writes them: .NET's XML for a list of HeaderInfo, each with a Key and a Value.

The standard library's expat reads it, and any document type declaration is refused: without one no entity can be
declared, so none can grow without end or name a file. That is what defusedxml does too, in one handler; no dependency
is needed for it. Nothing in a HeaderInfo may be nested, so depth has a limit, too.
"""

import re
from typing import Any, Final
from xml.parsers import expat

from delaystore.errors import InvalidMessageError

_END: Final = b"</ArrayOfHeaderInfo>"
_FIELDS: Final = ("ArrayOfHeaderInfo", "HeaderInfo")
_NIL: Final = ("true", "1")
_REFERENCE: Final = re.compile(rb"&#(?:x([0-9a-fA-F]{1,8})|([0-9]{1,10}));")
_HIDDEN: Final = 0xF0000
"""A private plane of Unicode, where control characters are hidden from expat."""


def parse_xml_headers(value: Any) -> dict[str, str | None]:
    """The headers that `value` holds: bytes, or text; None and empty ones are no headers.

    As in the MSMQ transport: what follows the end tag is ignored, and so is a HeaderInfo without a Key; an empty Value
    is empty text, and one that is missing or nil is None. .NET writes control characters as references that XML
    does not allow; they are read all the same. Raises InvalidMessageError for anything else.
    """
    if not value:
        return {}
    if isinstance(value, str):
        data, encoding = value.encode(errors="surrogatepass"), "utf-8"
    elif isinstance(value, bytes | bytearray | memoryview):
        data, encoding = bytes(value), None
    else:
        raise InvalidMessageError(f"its headers are of the type {type(value).__name__}, not bytes")
    end = data.rfind(_END)
    if end >= 0:
        data = data[: end + len(_END)]
    shown = _REFERENCE.sub(_hide, data)
    headers = _Reader(encoding).read(shown)
    return headers if shown == data else {_unhide(name): _unhide(text) for name, text in headers.items()}


class _Reader:
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
        raise InvalidMessageError("its headers declare a document type, which could hide anything; none is needed")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        depth = len(self._path)
        if depth > 2 or (depth < 2 and name != _FIELDS[depth]):
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
