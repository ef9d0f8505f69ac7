"""Waiting messages as files."""

import fcntl
import json
import os
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from json import dumps
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, Self

from delaystore.errors import ConfigurationError
from delaystore.filters import ALL, MessageFilter
from delaystore.message import DelayedMessage, Position, UnreadableMessage, unmarked
from delaystore.stores.sql.codec import encode_mapping
from delaystore.text import parse_json

COLUMNS: Final = (
    *("message_id", "destination", "due_time", "body", "body_base64", "headers", "properties", "key"),
    "not_after",
)
"""The written form of a message. Not how often it has failed: `send --file` makes a new message of it."""
_CHANGED_IN_CSV: Final = frozenset("\r\0")
"""Readers of CSV take these for something else."""


class ExportFormat(StrEnum):
    """How messages are written."""

    JSONL = "jsonl"
    """A JSON object a line. Missing values are left out."""
    CSV = "csv"
    """RFC 4180, with a header. A missing value is an empty field, and an empty body is one in quotes."""

    @property
    def head(self) -> bytes:
        """The beginning of a file."""
        return b"" if self is ExportFormat.JSONL else f"{','.join(COLUMNS)}\n".encode()

    def line(self, message: DelayedMessage) -> bytes:
        """A message, with its line break. Headers and properties are JSON, with a tag for types that JSON lacks."""
        return _LINES[self](message).encode()


def _texts(message: DelayedMessage, refused: frozenset[str] = frozenset()) -> dict[str, str]:
    """A message's values, by COLUMNS. A body that is text without these characters is text, any other is base64."""
    texts = {
        "message_id": message.message_id,
        "destination": message.destination,
        "due_time": unmarked(message).isoformat(),
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
    if message.key is not None:
        texts["key"] = message.key
    if message.not_after is not None:
        texts["not_after"] = message.not_after.isoformat()
    return texts


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The written part so far. `keyed`: of these, messages with a key. `unreadable`: rows that hold no message."""

    messages: int = 0
    keyed: int = 0
    unreadable: int = 0

    def with_chunk(self, chunk: Sequence[DelayedMessage]) -> "Exported":
        """And a chunk more."""
        readable = readable_of(chunk)
        return Exported(
            messages=self.messages + len(readable),
            keyed=self.keyed + sum(message.key is not None for message in readable),
            unreadable=self.unreadable + len(chunk) - len(readable),
        )


def readable_of(chunk: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
    """Those of a chunk that can be written."""
    return [message for message in chunk if not isinstance(message, UnreadableMessage)]


class ExportFile:
    """Writes to `PATH.part`, and notes in `PATH.part.json`, after each chunk, how far it is; renames at the end.

    `resume`: go on with an interrupted export. Killed at any point, nothing is under PATH, and noted messages are
    written. Raises ConfigurationError where `path` is there already, where an interrupted export is left and
    `resume` is not given, where there is none to resume, or one of something else, and where another export is at
    it; OSError.
    """

    def __init__(self, path: Path, form: ExportFormat, endpoint: str, wanted: MessageFilter, *, resume: bool) -> None:
        if path.is_dir():
            raise ConfigurationError(f"{str(path)!r} is a folder; name a file")
        if not path.parent.is_dir():
            raise ConfigurationError(f"the folder {str(path.parent)!r} does not exist; create it first")
        self.path = path
        self.part = path.with_name(f"{path.name}.part")
        self._notes = path.with_name(f"{path.name}.part.json")
        self._form = form
        self._of: dict[str, Any] = {"endpoint": endpoint, "format": form.value, "filter": wanted.as_dict()}
        self.exported = Exported()
        self.after: Position | None = None
        """Behind which to go on; None: at the beginning, unless it `is_complete`."""
        self.is_complete = False
        """Whether all is written, and `finish` remains."""
        if path.exists():
            raise ConfigurationError(f"{str(path)!r} is there already; remove it, or name another file")
        self._stream = self._opened(resume=resume)

    def write(self, chunk: Sequence[DelayedMessage], after: Position | None) -> None:
        """Append messages, and note `after`, behind which the next ones are; None: there are no more."""
        self._stream.writelines(map(self._form.line, readable_of(chunk)))
        self.exported = self.exported.with_chunk(chunk)
        self.after, self.is_complete = after, after is None
        self._note(self._stream)

    @property
    def resumption(self) -> str:
        """How to go on with it, for people."""
        if self._is_empty:
            return "begin again"
        return f"{str(self.part)!r} has them; the same command goes on with --continue"

    def finish(self) -> None:
        """All is written: from now on the file has its name."""
        self.part.rename(self.path)
        self._notes.unlink(missing_ok=True)
        self._stream.close()  # and no longer locked

    def close(self) -> None:
        """Leave the written part for a resumption, if there is one; may be called twice, and after `finish`."""
        if self._is_empty and not self._stream.closed:
            self.part.unlink(missing_ok=True)
            self._notes.unlink(missing_ok=True)
        with suppress(OSError):
            self._stream.close()

    @property
    def _is_empty(self) -> bool:
        """Whether no chunk is noted."""
        return self.after is None and not self.is_complete

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, *, resume: bool) -> BinaryIO:
        """Locked, and where the next messages are written."""
        with ExitStack() as unless_opened:
            stream = unless_opened.enter_context(self._left() if resume else self._new())
            self._lock(stream)
            if resume:
                self._go_on(stream)
            else:
                stream.write(self._form.head)
                self._note(stream)
            unless_opened.pop_all()
        return stream

    def _new(self) -> BinaryIO:
        if self.part.exists():
            raise ConfigurationError(
                f"{str(self.part)!r} is left from an interrupted export; resume it, or remove the file"
            )
        self._notes.unlink(missing_ok=True)  # of an export that was killed when its file had its name
        return self.part.open("xb")

    def _left(self) -> BinaryIO:
        try:
            return self.part.open("r+b")
        except FileNotFoundError:
            raise self._nothing_to_resume() from None

    def _nothing_to_resume(self) -> ConfigurationError:
        return ConfigurationError(f"there is no interrupted export to {str(self.path)!r}; begin one without resuming")

    def _lock(self, stream: BinaryIO) -> None:
        """Two that write the file would spoil it."""
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"another export writes {str(self.part)!r}; wait until it ends") from None
        except OSError:  # a file system without locks
            return

    def _go_on(self, stream: BinaryIO) -> None:
        """Be where the notes say."""
        try:
            notes = parse_json(self._notes.read_bytes())
            wanted = MessageFilter.from_dict(notes["filter"] or {ALL: True})  # {}: of an older release
            of = {"endpoint": notes["endpoint"], "format": notes["format"], "filter": wanted.as_dict()}
        except FileNotFoundError:
            raise self._nothing_to_resume() from None
        except (ValueError, LookupError, TypeError):
            raise ConfigurationError(f"{str(self._notes)!r} cannot be read; remove it and {str(self.part)!r}") from None
        if of != self._of:
            was = f"{wanted} of {notes['endpoint']!r} as {notes['format']}"
            raise ConfigurationError(
                f"the export to {str(self.path)!r} that was interrupted has another filter or format: {was}; give "
                f"the same ones, or remove {str(self.part)!r}"
            )
        stream.truncate(notes["bytes"])  # what is behind was not noted
        stream.seek(notes["bytes"])
        self.exported = Exported(**notes["exported"])
        self.is_complete = notes["complete"]
        self.after = None if notes["after"] is None else Position.parse(notes["after"])

    def _note(self, stream: BinaryIO) -> None:
        stream.flush()
        os.fsync(stream.fileno())
        after = None if self.after is None else str(self.after)
        far = {"after": after, "complete": self.is_complete, "bytes": stream.tell(), "exported": asdict(self.exported)}
        fresh = self._notes.with_name(f"{self._notes.name}.new")
        fresh.write_text(json.dumps({**self._of, **far}), encoding="utf-8")
        fresh.replace(self._notes)
