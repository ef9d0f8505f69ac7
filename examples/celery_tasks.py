"""Celery's waiting tasks, as lines that `delaystore migrate --from file:///...` reads.

Standard input is what `celery inspect scheduled --json` prints, or what RabbitMQ's management API answers to
`POST /api/queues/VHOST/QUEUE/get`. Standard output gets a line for each task, due at its eta; a task without one,
which only the management API shows, is due now. `celery inspect` does not tell a task's callbacks and chain.
"""

import json
import sys
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

Record = dict[str, Any]


def main() -> None:
    """Convert standard input."""
    document = json.load(sys.stdin)
    if isinstance(document, list):
        if document and (left := document[-1]["message_count"]):
            sys.exit(f"the queue has {left} more messages than these; get all of them, with a larger count")
        tasks = [of_management(message) for message in document]
    else:
        tasks = [of_inspect(task) for scheduled in document.values() for task in scheduled]
    for task in tasks:
        print(json.dumps(task))
    print(f"{len(tasks)} tasks", file=sys.stderr)


def of_management(message: Record) -> Record:
    """A message as RabbitMQ's management API shows it: the task exactly as it was sent."""
    properties = dict(message["properties"])
    headers = with_nothing(properties.pop("headers"))
    payload = message["payload"]
    return {
        "message_id": headers["id"],
        "destination": address(message["exchange"], message["routing_key"]),
        "due_time": headers.get("eta") or datetime.now(UTC).isoformat(),
        "headers": headers,
        "properties": properties,
        "body_base64": payload if message["payload_encoding"] == "base64" else b64encode(payload.encode()).decode(),
    }


def with_nothing(value: Any) -> Any:
    """`value` with None for what RabbitMQ writes as "undefined": AMQP's empty value, such as that of no eta."""
    if isinstance(value, dict):
        return {name: with_nothing(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_nothing(part) for part in value]
    return None if value == "undefined" else value


def of_inspect(task: Record) -> Record:
    """A task as a worker shows it, made into the message of Celery's protocol 2 that it came from."""
    request, where = task["request"], task["request"]["delivery_info"]
    nothing_follows = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = json.dumps([request["args"], request["kwargs"], nothing_follows])
    identity = {"lang": "py", "task": request["name"], "id": request["id"], "root_id": request["id"]}
    properties = {
        "correlation_id": request["id"],
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "priority": where.get("priority"),
    }
    return {
        "message_id": request["id"],
        "destination": address(where.get("exchange"), where["routing_key"]),
        "due_time": task["eta"],
        "headers": {**identity, "eta": task["eta"], "retries": 0},
        "properties": {name: value for name, value in properties.items() if value is not None},
        "body_base64": b64encode(body.encode()).decode(),
    }


def address(exchange: str | None, routing_key: str) -> str:
    """The queue's name; or an exchange's address, which a store delivers to, and a cascade does not."""
    return f"/exchanges/{quote(exchange, safe='')}/{quote(routing_key, safe='')}" if exchange else routing_key


if __name__ == "__main__":
    main()
