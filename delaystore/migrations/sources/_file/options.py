"""What the URL of a file says: where it is, and which of its columns is what."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlalchemy import URL

from delaystore.errors import ConfigurationError
from delaystore.message import PROPERTY_TYPES
from delaystore.records.delays import Delays, delays_of
from delaystore.records.due_times import due_times
from delaystore.records.mapping import CONSTANT, FIELDS, RecordMapping
from delaystore.records.nservicebus import ADDRESSES

_BODIES: Final = frozenset({"body", "body_base64", "body_json"})
_DEFAULTS: Final = ("message_id", "destination", "due_time", "body", "body_base64", "headers", "properties")
"""The fields that are read from columns of the same names, unless the URL says otherwise."""
_INSTEAD: Final[Mapping[str, frozenset[str]]] = {
    "due_time": frozenset({"sent_time", "delay_ms"}),
    "body": _BODIES,
    "body_base64": _BODIES,
    "properties": frozenset(PROPERTY_TYPES),
}
"""For a field with a default: the fields that turn the default off if the URL maps one of them."""
_OTHERS: Final = ("due_unit", "timezone", "headers_of", "addresses", "delay_of")
_HEADERS_OF: Final = ("nservicebus",)
_FORMATS: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_SUFFIX: Final = ".migration.sqlite"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The file, the format it is written in ("jsonl" or "parquet"), and which of its columns is which field."""

    path: Path
    format: str
    mapping: RecordMapping

    @property
    def state(self) -> Path:
        """The SQLite file of the file's migration, beside it."""
        return self.path.with_name(self.path.name + _SUFFIX)

    @property
    def state_url(self) -> URL:
        """The URL of that SQLite file."""
        return URL.create("sqlite", database=str(self.state))

    @property
    def delay_column(self) -> str:
        """Where delays are looked for; empty: nowhere."""
        return self.mapping.columns.get("delay_ms", "")

    @property
    def by_endpoint(self) -> bool:
        """Whether lines name their endpoints. False: all lines belong to whichever endpoint is asked for."""
        return "endpoint" in self.mapping.columns


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
    delays = _delays(given)
    if delays.name and nservicebus:
        raise ConfigurationError("delay_of is for what was sent to the plugin; leave headers_of=nservicebus out")
    defaults = {name: name for name in _DEFAULTS if not _INSTEAD.get(name, frozenset()) & given.keys()}
    address = ADDRESSES[addresses or "queue"]
    return FileOptions(path, _format(path), RecordMapping({**defaults, **given}, times, nservicebus, address, delays))


def _delays(given: dict[str, str]) -> Delays:
    delays = delays_of(given.pop("delay_of", None))
    if delays.name and not {"sent_time", "delay_ms"} <= given.keys():
        raise ConfigurationError("delay_of says how delays are read; add sent_time=COLUMN and delay_ms=COLUMN")
    return delays


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
