"""Exports of definitions (`rabbitmqctl export_definitions FILE`, or GET /api/definitions), as snapshots."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from delaystore.cascades._documents import bindings_of, exchange_of, policy_of, queue_of
from delaystore.cascades._snapshot import ExchangeState, Policy, Snapshot
from delaystore.cascades.policies import applying
from delaystore.errors import ConfigurationError
from delaystore.strict_json import parse_json

_UNREADABLE: Final = "is no export of definitions; make one with rabbitmqctl export_definitions FILE"


class Definitions:
    """The export in a file.

    Raises ConfigurationError where there is none, OSError where the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._document = parse_json(path.read_text(encoding="utf-8-sig"))
            self._exchanges = self._document["exchanges"]
        except (ValueError, LookupError, TypeError):
            raise ConfigurationError(f"{path} {_UNREADABLE}") from None

    def virtual_host_with(self, exchange: str) -> str | None:
        """The one virtual host that has an exchange of that name. None: the export does not name virtual hosts.

        Raises ConfigurationError where none has it, or several have.
        """
        found: list[str | None] = [one.get("vhost") for one in self._exchanges if one.get("name") == exchange]
        if not found:
            raise ConfigurationError(f"{self._path} has no exchange {exchange!r}; check its name, or export anew")
        if len(found) > 1:
            raise ConfigurationError(
                f"{self._path} has an exchange {exchange!r} in several virtual hosts; pass --broker URL, whose path "
                "names one"
            )
        return found[0]

    def snapshot(self, virtual_host: str | None) -> Snapshot:
        """What the virtual host held. None, and an export of one virtual host alone: all of it. Counts are unknown."""
        try:
            policies = tuple(policy_of(one) for one in self._of("policies", virtual_host))
            exchanges = [exchange_of(one) for one in self._of("exchanges", virtual_host)]
            queues = [queue_of(one) for one in self._of("queues", virtual_host)]
            bindings = frozenset(bindings_of(self._of("bindings", virtual_host)))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ConfigurationError(f"{self._path} {_UNREADABLE}") from None
        return Snapshot(
            exchanges={one.name: _with_policy(one, policies) for one in exchanges},
            queues={one.name: one for one in queues},
            bindings=bindings,
            policies=policies,
        )

    def _of(self, kind: str, virtual_host: str | None) -> Sequence[Mapping[str, Any]]:
        """Those of the virtual host. An export of a single one does not say which it is."""
        documents = self._document.get(kind, ())
        return [one for one in documents if virtual_host is None or one.get("vhost") in (virtual_host, None)]


def _with_policy(exchange: ExchangeState, policies: Sequence[Policy]) -> ExchangeState:
    policy = applying(policies, exchange.name)
    return exchange if policy is None else replace(exchange, policy=policy.name)
