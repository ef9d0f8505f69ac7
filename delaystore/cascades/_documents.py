"""What a virtual host holds, from the JSON of the management API, or of an export of definitions.

Each raises LookupError, TypeError, ValueError or AttributeError for what RabbitMQ would not write.
"""

from collections.abc import Mapping
from typing import Any

from delaystore.cascades._snapshot import ExchangeState, Policy, QueueState
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind


def exchange_of(document: Mapping[str, Any]) -> ExchangeState:
    """An exchange."""
    return ExchangeState(
        name=document["name"],
        type=document["type"],
        durable=document["durable"],
        auto_delete=document["auto_delete"],
        internal=bool(document.get("internal")),  # rabbitmqctl does not export it
        arguments=document["arguments"],
        policy=document.get("policy"),
        delayed=document.get("messages_delayed"),
    )


def queue_of(document: Mapping[str, Any]) -> QueueState:
    """A queue."""
    return QueueState(
        name=document["name"],
        type=document.get("type", document["arguments"].get("x-queue-type", "classic")),
        durable=document["durable"],
        auto_delete=document["auto_delete"],
        exclusive=bool(document.get("exclusive")),  # null or absent while there are no statistics
        arguments=document["arguments"],
        policy=document.get("policy"),
        messages=document.get("messages"),
        ready=document.get("messages_ready"),
        unacknowledged=document.get("messages_unacknowledged"),
        dead_lettering=document.get("messages_dlx"),
        published=document.get("message_stats", {}).get("publish", 0),
        consumers=document.get("consumers"),
        message_bytes=document.get("message_bytes"),
        ready_bytes=document.get("message_bytes_ready"),
        policy_definition=document.get("effective_policy_definition") or {},
        state=document.get("state"),
        delivery_limit=_limit(document.get("delivery_limit")),
        publish_rate=_rate(document, "publish"),
        deliver_rate=_rate(document, "deliver_get"),
        oldest=document.get("head_message_timestamp") or None,
    )


def _rate(document: Mapping[str, Any], kind: str) -> float | None:
    """Messages a second; None: there were none so far, or no statistics."""
    rate = document.get("message_stats", {}).get(f"{kind}_details", {}).get("rate")
    return None if rate is None else float(rate)


def _limit(given: Any) -> int | None:
    """A number, or else a word for none: unlimited."""
    return given if isinstance(given, int) and given >= 0 else None


def bindings_of(documents: Any) -> list[Binding]:
    """The bindings, but for those of the default exchange."""
    return [
        Binding(
            one["source"],
            one["destination"],
            DestinationKind(one["destination_type"]),
            one["routing_key"],
            one["arguments"],
        )
        for one in documents
        if one["source"]
    ]


def policy_of(document: Mapping[str, Any]) -> Policy:
    """A policy."""
    return Policy(
        name=document["name"],
        pattern=document["pattern"],
        definition=document["definition"],
        apply_to=document["apply-to"],
        priority=document["priority"],
    )
