"""A definitions file, as `rabbitmqctl import_definitions` takes it (https://www.rabbitmq.com/docs/definitions)."""

from collections.abc import Iterable
from typing import Any

from delaystore.cascades._snapshot import Policy
from delaystore.transports.rabbitmq.topology.layout import Layout


def definitions(layout: Layout, vhost: str = "/", policies: Iterable[Policy] = ()) -> dict[str, Any]:
    """The document, ready for JSON: what `layout` and `policies` hold, and nothing else.

    The virtual host must exist: an entry for it would create it without permissions for anybody, and could reset the
    description and default queue type of one that exists.
    """
    return {
        "exchanges": [
            {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.type,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": dict(exchange.arguments),
            }
            for exchange in layout.exchanges
        ],
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in layout.queues
        ],
        "bindings": [
            {
                "source": binding.source,
                "vhost": vhost,
                "destination": binding.destination,
                "destination_type": str(binding.kind),
                "routing_key": binding.routing_key,
                "arguments": {},
            }
            for binding in layout.bindings
        ],
        "policies": [
            {
                "name": policy.name,
                "vhost": vhost,
                "pattern": policy.pattern,
                "apply-to": policy.apply_to,
                "definition": dict(policy.definition),
                "priority": policy.priority,
            }
            for policy in policies
        ],
    }
