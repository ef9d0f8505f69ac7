"""What the URL of a file says: where it is, and which of its columns is what."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from delaystore.errors import ConfigurationError
from delaystore.message import PROPERTY_TYPES
from delaystore.migrations.sources.file.due_times import DueTimes, due_times
from delaystore.migrations.sources.legacy.nservicebus import ADDRESSES, Address, as_it_is

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message_id": "its id; without one, a line gets an id made of what it holds",
        "destination": "where it goes",
        "due_time": "when it is due",
        "sent_time": "when it was sent; with delay_ms, in place of due_time",
        "delay_ms": "milliseconds from sent_time to the due time",
        "body": "its body as text (Parquet: or bytes)",
        "body_base64": "its body in base64, in place of body",
        "body_json": "its body as a JSON value, in place of body",
        "headers": "its headers, an object or JSON text",
        "properties": "its AMQP properties, an object or JSON text",
        "endpoint": "the endpoint it belongs to",
        "saga_id": "the saga that waits; with headers_of=nservicebus",
        **{name: f"the AMQP property {name}" for name in PROPERTY_TYPES},
    }
)
"""What a column can be mapped to."""
_BODIES: Final = frozenset({"body", "body_base64", "body_json"})
_DEFAULTS: Final = ("message_id", "destination", "due_time", "body", "body_base64", "headers", "properties")
"""What is found in columns of the same names, if the URL does not say otherwise."""
_INSTEAD: Final[Mapping[str, frozenset[str]]] = {
    "due_time": frozenset({"sent_time", "delay_ms"}),
    "body": _BODIES,
    "body_base64": _BODIES,
    "properties": frozenset(PROPERTY_TYPES),
}
"""What turns a default off, if the URL names it."""
_OTHERS: Final = ("due_unit", "timezone", "headers_of", "addresses")
_HEADERS_OF: Final = ("nservicebus",)
_FORMATS: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_SUFFIX: Final = ".migration.sqlite"
CONSTANT: Final = "="
"""Before a value that is the same for every line, in place of a column's name."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The file, how it is written, and what is where in it.

    `columns`: the column of each field: its name, or names joined by dots where columns are nested; after `=` a value
    for all lines. `nservicebus`: the headers are NServiceBus', and say the id and the properties; `address`: what a
    destination means then.
    """

    path: Path
    format: str
    columns: Mapping[str, str]
    due_times: DueTimes
    nservicebus: bool = False
    address: Address = as_it_is

    @property
    def state(self) -> Path:
        """The SQLite file of the run, beside the input."""
        return self.path.with_name(self.path.name + _SUFFIX)


def file_options(url: str) -> FileOptions:
    """What `url`, file:///PATH?FIELD=COLUMN&..., says; ConfigurationError for what cannot work."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        raise ConfigurationError("a file is named by its absolute path, as in file:///srv/dump.jsonl (three slashes)")
    path = Path(unquote(parts.path))
    given = _given(parts.query)
    nservicebus = _chosen(given, "headers_of", _HEADERS_OF) is not None
    addresses = _chosen(given, "addresses", ADDRESSES)
    if addresses is not None and not nservicebus:
        raise ConfigurationError("addresses is for messages of NServiceBus; add headers_of=nservicebus")
    times = due_times(given.pop("due_unit", None), given.pop("timezone", None))
    defaults = {name: name for name in _DEFAULTS if not _INSTEAD.get(name, frozenset()) & given.keys()}
    address = ADDRESSES[addresses or "queue"]
    return FileOptions(path, _format(path), {**defaults, **given}, times, nservicebus, address)


def _chosen(given: dict[str, str], name: str, known: Collection[str]) -> str | None:
    value = given.pop(name, None)
    if value is not None and value not in known:
        raise ConfigurationError(f"{name}={value!r} is unknown; known is {', '.join(known)}")
    return value


def _given(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise ConfigurationError("what follows the ? must be FIELD=COLUMN pairs, joined by &") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in FIELDS and name not in _OTHERS:
            raise ConfigurationError(f"unknown parameter {name!r}; known are {', '.join((*FIELDS, *_OTHERS))}")
        if name in given:
            raise ConfigurationError(f"the parameter {name} is given twice")
        if not value:
            raise ConfigurationError(f"the parameter {name} is empty; name a column, or a value after {CONSTANT}")
        given[name] = value
    return given


def _format(path: Path) -> str:
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise ConfigurationError(
            f"{path.name!r} is of no known kind; its name must end with {', '.join(_FORMATS)} "
            "(jq -c '.[]' makes JSON lines of a JSON array)"
        )
    return found
