"""Terraform JSON, for the provider cyrilgdn/rabbitmq (https://developer.hashicorp.com/terraform/language/syntax/json)."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from delaystore.cascades._snapshot import Policy
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue

_SOURCE: Final = "cyrilgdn/rabbitmq"
_VERSION: Final = ">= 1.6"
_KEPT: Final = {"lifecycle": {"prevent_destroy": True}}
"""A plan that would delete or replace the resource fails: messages wait in queues, and need the exchanges."""
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that the name of a resource cannot have."""
_TEMPLATE: Final = re.compile(r"[$%](?=\{)")
"""Where a template begins for Terraform. Doubled, the sign is plain text."""


def terraform(layout: Layout, vhost: str = "/", policies: Iterable[Policy] = ()) -> dict[str, Any]:
    """The document, for a file `*.tf.json` in a module of its own. The provider's login is left to the module's user.

    Bindings and policies refer to the resources that they need, so that Terraform creates and deletes in an order
    that the broker accepts. Raises ConfigurationError for names that the provider cannot manage: it splits a
    resource's id at `@`, and a binding's id at `/`. Terraform refuses to delete the exchanges and queues.
    """
    policies = tuple(policies)
    _check(layout, vhost, policies)
    exchanges = _labels(exchange.name for exchange in layout.exchanges)
    queues = _labels(queue.name for queue in layout.queues)
    names = _labels(map(_binding_name, layout.bindings))
    own = {
        DestinationKind.EXCHANGE: {name: f"rabbitmq_exchange.{label}" for name, label in exchanges.items()},
        DestinationKind.QUEUE: {name: f"rabbitmq_queue.{label}" for name, label in queues.items()},
    }
    resources: dict[str, dict[str, Any]] = {
        "rabbitmq_exchange": {exchanges[one.name]: _exchange(one, vhost) for one in layout.exchanges},
        "rabbitmq_queue": {queues[one.name]: _queue(one, vhost) for one in layout.queues},
        "rabbitmq_binding": {names[_binding_name(one)]: _binding(one, vhost, own) for one in layout.bindings},
        "rabbitmq_policy": {
            label: _policy(policy, vhost, own[DestinationKind.EXCHANGE])
            for policy, label in zip(policies, _labels(one.name for one in policies).values(), strict=True)
        },
    }
    return {
        "//": "A delay cascade of RabbitMQ, written by `delaystore delays export`.",
        "terraform": {"required_providers": {"rabbitmq": {"source": _SOURCE, "version": _VERSION}}},
        "resource": {kind: entries for kind, entries in resources.items() if entries},
    }


def _exchange(exchange: Exchange, vhost: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"type": exchange.type, "durable": True, "auto_delete": False}
    if exchange.arguments:
        settings["arguments"] = _literals(exchange.arguments)  # a map of strings; alternate-exchange is one
    return {"name": _literal(exchange.name), "vhost": _literal(vhost), "settings": settings, **_KEPT}


def _queue(queue: Queue, vhost: str) -> dict[str, Any]:
    # RabbitMQ 4 adds the type where it is missing, and the next plan would replace a queue that differs
    arguments = {"x-queue-type": queue.type, **queue.arguments}
    # `arguments` would send numbers as strings, which are different arguments to the broker
    settings = {"durable": True, "auto_delete": False, "arguments_json": _literal(json.dumps(arguments))}
    return {"name": _literal(queue.name), "vhost": _literal(vhost), "settings": settings, **_KEPT}


def _binding(binding: Binding, vhost: str, own: Mapping[DestinationKind, Mapping[str, str]]) -> dict[str, Any]:
    return {
        "source": _reference(binding.source, own[DestinationKind.EXCHANGE]),
        "vhost": _literal(vhost),
        "destination": _reference(binding.destination, own[binding.kind]),
        "destination_type": str(binding.kind),
        "routing_key": _literal(binding.routing_key),
    }


def _policy(policy: Policy, vhost: str, exchanges: Mapping[str, str]) -> dict[str, Any]:
    settings = {
        "pattern": _literal(policy.pattern),
        "priority": policy.priority,
        "apply_to": policy.apply_to,
        "definition": _literals(policy.definition),
    }
    needed = [exchanges[name] for name in policy.definition.values() if name in exchanges]
    order = {"depends_on": needed} if needed else {}
    return {"name": _literal(policy.name), "vhost": _literal(vhost), "policy": settings, **order}


def _reference(name: str, own: Mapping[str, str]) -> str:
    """`name`; as a reference if it is a resource of this document, so that Terraform creates that first."""
    return f"${{{own[name]}.name}}" if name in own else _literal(name)


def _literal(text: str) -> str:
    return _TEMPLATE.sub(lambda found: found[0] * 2, text)


def _literals(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _literal(value) if isinstance(value, str) else value for key, value in arguments.items()}


def _binding_name(binding: Binding) -> str:
    """A name that no other binding has."""
    return f"{binding.source}_to_{binding.kind}_{binding.destination}_by_{binding.routing_key}"


def _labels(names: Iterable[str]) -> dict[str, str]:
    """A unique resource name for each of `names`, as similar to it as possible."""
    labels: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        label = stem = _label(name)
        number = 1
        while label in taken:
            number += 1
            label = f"{stem}_{number}"
        taken.add(label)
        labels[name] = label
    return labels


def _label(name: str) -> str:
    # the words of a key tell more than its wildcards
    label = _NO_LABEL.sub("_", name.replace("*.", "").replace("#", "any"))
    return label if label and not label[0].isdigit() and label[0] != "-" else f"_{label}"


def _check(layout: Layout, vhost: str, policies: Iterable[Policy]) -> None:
    own = [one.name for one in layout.exchanges] + [one.name for one in layout.queues]
    for name in (vhost, *own, *(policy.name for policy in policies)):
        if "@" in name:
            raise ConfigurationError(f"Terraform's RabbitMQ provider cannot manage {name!r}, for the @ in it")
    for binding in layout.bindings:
        for name in (binding.source, binding.destination):
            if "/" in name:
                raise ConfigurationError(
                    f"Terraform's RabbitMQ provider cannot manage the bindings of {name!r}, for the / in it"
                )
