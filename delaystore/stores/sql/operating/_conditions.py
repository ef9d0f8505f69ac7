"""What a MessageFilter says, as conditions on rows."""

import json
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, or_

from delaystore.filters import MessageFilter
from delaystore.sql.dialects import StoreDialect
from delaystore.stores.sql._prefixes import begins_with
from delaystore.stores.sql._statements import is_parked

_LONGEST_PATTERN: Final = 1000
"""Characters of a text that is looked for by LIKE; databases limit patterns."""


def conditions(wanted: MessageFilter, table: Table, dialect: StoreDialect) -> list[ColumnElement[bool]]:
    """All that `wanted` says, but for the headers: of these only what a row must have to be worth decoding."""
    found = list(_of_columns(wanted, table, dialect))
    for name, value in wanted.headers.items():
        found += _of_header(name, value, table.c.headers)
    return found


def _of_columns(wanted: MessageFilter, table: Table, dialect: StoreDialect) -> Iterator[ColumnElement[bool]]:
    if wanted.destination is not None:
        yield table.c.destination == wanted.destination
    if wanted.since is not None:
        yield table.c.due_time >= wanted.since
    if wanted.until is not None:
        yield table.c.due_time < wanted.until
    if wanted.id_prefix is not None:
        yield from begins_with(table.c.message_id, wanted.id_prefix)
    if wanted.failing is not None:
        yield dialect.is_failing(table) if wanted.failing else table.c.failure_count <= 0
    if wanted.paused is not None:
        yield is_parked(table) if wanted.paused else ~is_parked(table)


def _of_header(name: str, value: str, headers: ColumnElement[Any]) -> Iterator[ColumnElement[bool]]:
    """What the text of the headers must contain so that a header may be `value`; see `codec` and `header_text`."""
    quoted = json.dumps(name)
    if len(quoted) <= _LONGEST_PATTERN:
        yield _contains(headers, quoted)
    inner = json.dumps(value)[1:-1]
    is_plain = value != "None" and not value.startswith(("[", "{")) and len(inner) <= _LONGEST_PATTERN
    if is_plain:  # what is kept otherwise than it is compared: None, lists, mappings, and bytes
        yield or_(_contains(headers, inner), _contains(headers, '"$bytes"'))


def _contains(headers: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    return headers.contains(part, autoescape=True)
