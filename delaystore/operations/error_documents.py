"""Failed messages and their groups as JSON documents. Their keys are stable."""

from typing import Any

from delaystore import documents
from delaystore.operations.error_groups import ErrorGroup
from delaystore.operations.error_queue import ErrorGroups, ErrorPage
from delaystore.operations.failed_message import FailedMessage
from delaystore.transports.abc import ReceivedMessage


def groups_document(found: ErrorGroups) -> dict[str, Any]:
    """What is in the error queue, by group."""
    groups = [group_document(group) for group in found.groups]
    return {"depth": found.depth, "examined": found.examined, "complete": found.complete, "groups": groups}


def group_document(group: ErrorGroup) -> dict[str, Any]:
    """One group; `filter`: what its messages meet."""
    return {**documents.record(group), "filter": group.wanted.as_dict()}


def page_document(found: ErrorPage) -> dict[str, Any]:
    """Failed messages without their bodies. `next`: how many to skip for the next page; null: this was the last."""
    messages = [summary_document(message) for message in found.messages]
    return {"depth": found.depth, "examined": found.examined, "messages": messages, "next": found.next_skip}


def summary_document(message: FailedMessage) -> dict[str, Any]:
    """Why a message is there. `size`: of the original's body, in bytes."""
    return {
        "message_id": message.message_id,
        "destination": message.destination,
        "kind": message.kind,
        "reason": message.reason,
        "failed_at": documents.instant(message.failed_at),
        "failures": message.failures,
        "due_time": documents.instant(message.due_time),
        "size": message.size,
        "obstacle": message.obstacle,
    }


def failed_document(message: FailedMessage) -> dict[str, Any]:
    """The same, with the original's headers, properties and body as they would be sent again."""
    original = ReceivedMessage(
        message_id=message.message_id,
        body=message.body or b"",
        headers=message.headers,
        properties=message.properties,
    )
    return {**summary_document(message), **documents.received(original)}
