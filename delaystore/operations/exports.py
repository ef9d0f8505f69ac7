"""Messages as lines of files that `delaystore send --file` and `delaystore load` read back."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import StrEnum
from json import dumps
from types import MappingProxyType
from typing import Final

from delaystore.message import DelayedMessage
from delaystore.sql.codec import encode_mapping

COLUMNS: Final = ("message_id", "destination", "due_time", "body", "body_base64", "headers", "properties", "key")
"""What is written of a message. Not how often it has failed: whoever reads it sends a new message."""
_CHANGED_IN_CSV: Final = frozenset("\r\0")
"""Readers of CSV take these for something else."""


class ExportFormat(StrEnum):
    """How messages are written."""

    JSONL = "jsonl"
    """A JSON object a line. What a message has not is left out."""
    CSV = "csv"
    """RFC 4180, with a header. What a message has not is an empty field, and an empty body is one in quotes."""

    @property
    def head(self) -> bytes:
        """What a file begins with."""
        return b"" if self is ExportFormat.JSONL else f"{','.join(COLUMNS)}\n".encode()

    def line(self, message: DelayedMessage) -> bytes:
        """A message, with its line break. Headers and properties are JSON, with a tag for types that JSON lacks."""
        return _LINES[self](message).encode()


def _texts(message: DelayedMessage, refused: frozenset[str] = frozenset()) -> dict[str, str]:
    """What a message has, by COLUMNS. A body that is text without these characters is text, any other is base64."""
    texts = {
        "message_id": message.message_id,
        "destination": message.destination,
        "due_time": message.due_time.isoformat(),
    }
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        texts["body_base64"] = b64encode(message.body).decode()
    else:
        encoded = not refused.isdisjoint(text)
        texts |= {"body_base64": b64encode(message.body).decode()} if encoded else {"body": text}
    for name, mapping in (("headers", message.headers), ("properties", message.properties)):
        if (written := encode_mapping(mapping)) is not None:
            texts[name] = written
    return texts if message.key is None else {**texts, "key": message.key}


def _json_line(message: DelayedMessage) -> str:
    texts = _texts(message)
    objects = {name: texts.pop(name) for name in ("headers", "properties") if name in texts}
    fields = [f"{dumps(name)}: {dumps(text)}" for name, text in texts.items()]
    fields += [f"{dumps(name)}: {text}" for name, text in objects.items()]
    return "{" + ", ".join(fields) + "}\n"


def _csv_line(message: DelayedMessage) -> str:
    texts = _texts(message, _CHANGED_IN_CSV)
    return ",".join('"' + texts[name].replace('"', '""') + '"' if name in texts else "" for name in COLUMNS) + "\n"


_LINES: Final[Mapping[ExportFormat, Callable[[DelayedMessage], str]]] = MappingProxyType(
    {ExportFormat.JSONL: _json_line, ExportFormat.CSV: _csv_line}
)
