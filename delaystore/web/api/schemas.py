"""JSON Schemas of what the API takes and answers."""

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}
NUMBER: Final[Schema] = {"type": "number"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
OBJECT: Final[Schema] = {"type": "object"}
DURATION: Final[Schema] = {
    "description": "Seconds, or text such as 90s, 2h30m, 3d.",
    "oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
}


def known(schema: Schema) -> Schema:
    """Or null: nothing is known, or there is none."""
    return {**schema, "type": [schema["type"], "null"]}


def some(schema: Schema) -> Schema:
    """A list of it."""
    return {"type": "array", "items": schema}


def ref(name: str) -> Schema:
    """One of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


def shape(properties: Mapping[str, Schema], *, optional: tuple[str, ...] = (), closed: bool = False) -> Schema:
    """An object whose properties are all there, but for the `optional` ones; `closed`: it has no others."""
    required = [name for name in properties if name not in optional]
    found: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        found["required"] = required
    return {**found, "additionalProperties": False} if closed else found


def filter_of(properties: Mapping[str, Schema]) -> Schema:
    """A filter: at least one of `properties`, or `all` alone."""
    every = {"const": True, "description": "Everything; stands alone."}
    return {**shape({**properties, "all": every}, optional=(*properties, "all"), closed=True), "minProperties": 1}


_SUMMARY: Final[Mapping[str, Schema]] = {
    "message_id": TEXT,
    "destination": TEXT,
    "due_time": TIME,
    "next_attempt": known(TIME),
    "failure_count": COUNT,
    "size": COUNT,
    "key": known(TEXT),
}
_FILTER: Final[Mapping[str, Schema]] = {
    "destination": TEXT,
    "since": TIME,
    "until": TIME,
    "id_prefix": TEXT,
    "headers": {"type": "object", "additionalProperties": TEXT},
    "failing": FLAG,
    "paused": FLAG,
}
_WHEN: Final[Mapping[str, Schema]] = {"delay": DURATION, "at": TIME}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Problem": shape({"title": TEXT, "status": COUNT, "detail": TEXT}),
    "Summary": shape(_SUMMARY),
    "Message": shape(
        {
            **_SUMMARY,
            "headers": OBJECT,
            "properties": OBJECT,
            "parked": FLAG,
            "failures": some(shape({"at": TIME, "kind": TEXT, "reason": TEXT})),
            "body": {**TEXT, "description": "As text; left out where it is none, and where bodies are hidden."},
            "body_base64": {**TEXT, "description": "Where it is no text."},
        },
        optional=("body", "body_base64"),
    ),
    "NewMessage": shape(
        {
            "destination": TEXT,
            "body": {**TEXT, "description": "As text, sent in UTF-8; or give body_base64."},
            "body_base64": TEXT,
            **_WHEN,
            "headers": OBJECT,
            "properties": OBJECT,
            "message_id": {
                **TEXT,
                "description": "Your own: where it waits already nothing is stored, and `stored` is false.",
            },
            "key": TEXT,
            "on_key": {"type": "string", "enum": ["reject", "keep", "replace", "debounce"]},
            "max_wait": DURATION,
        },
        optional=(
            "body",
            "body_base64",
            "delay",
            "at",
            "headers",
            "properties",
            "message_id",
            "key",
            "on_key",
            "max_wait",
        ),
        closed=True,
    ),
    "Filter": {
        **filter_of(_FILTER),
        "description": "Messages that meet all that is given; since <= due time < until.",
    },
    "When": shape(_WHEN, optional=("delay", "at"), closed=True),
    "Operation": shape(
        {
            "operation_id": TEXT,
            "kind": {"type": "string", "enum": ["cancel", "reschedule"]},
            "wanted": ref("Filter"),
            "by": TEXT,
            "began": TIME,
            "due_time": known(TIME),
            "ended": known(TIME),
            "state": {"type": "string", "enum": ["running", "done", "abandoned"]},
            "examined": COUNT,
            "changed": COUNT,
            "held": COUNT,
            "held_ids": some(TEXT),
        }
    ),
    "Destination": shape(
        {
            "name": TEXT,
            "waiting": known(COUNT),
            "rate": known(NUMBER),
            "paused": FLAG,
            "paused_until": known(TIME),
            "resuming": FLAG,
            "max_rate": known(NUMBER),
            "changed": known(TIME),
            "by": known(TEXT),
        }
    ),
    "Change": shape(
        {
            "at": TIME,
            "by": TEXT,
            "action": TEXT,
            "about": TEXT,
            "count": COUNT,
            "way": {**known(TEXT), "description": "By which way, such as cli, web, api or control."},
            "message_id": known(TEXT),
            "key": known(TEXT),
            "destination": known(TEXT),
            "wanted": {**known(OBJECT), "description": "The filter, where many messages were changed."},
            "operation_id": known(TEXT),
            "old_due_time": known(TIME),
            "new_due_time": known(TIME),
        }
    ),
    "Changed": shape({"count": COUNT, "complete": {**FLAG, "description": "False: it goes on in the background."}}),
    "Overview": shape(
        {
            "endpoint": TEXT,
            "now": known(TIME),
            "wrong": some(TEXT),
            "waiting": known(COUNT),
            "exact": {**known(FLAG), "description": "False: `waiting` is an estimate."},
            "first_due": known(TIME),
            "oldest_overdue": known(NUMBER),
            "failing": {**known(COUNT), "description": "Counted up to 10,000, as is `parked`."},
            "parked": known(COUNT),
            "paused": {"type": ["array", "null"]},
            "error_queue": TEXT,
            "error_queue_depth": known(COUNT),
            "error_queue_seen": {**known(TIME), "description": "When the broker said so."},
            "destinations": {"type": ["array", "null"]},
            "operations": {"type": ["array", "null"]},
            "dispatchers": {"type": ["array", "null"]},
            "ingresses": {"type": ["array", "null"]},
            "rate": known(NUMBER),
            "lateness": known(OBJECT),
            "activity": {"type": ["array", "null"]},
            "store": {**known(TEXT), "description": "Why it does not answer, or takes nothing; null: it does."},
            "operable": known(FLAG),
        }
    ),
    "Health": shape({"healthy": FLAG, "problems": some(TEXT), "warnings": some(TEXT)}),
}
