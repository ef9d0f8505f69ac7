"""Which destinations publishers may name."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import quote

from delaystore.address import DEFAULT_EXCHANGE, Address, parse_address
from delaystore.errors import ConfigurationError, UnsupportedMessageError
from delaystore.settings import DelayedDeliverySettings

_DEFAULT_EXCHANGE_NAMES: Final = frozenset({DEFAULT_EXCHANGE, "amq.default"})
_OURS: Final = re.compile(r".+\.(ingress|control|Timeouts)(\.(expired|rejected))?")
"""What queues and exchanges of ingresses and control queues are called, also those of other services."""
_ERROR_QUEUE: Final = DelayedDeliverySettings().error_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedDestinations:
    """The destinations that a publisher may name by a header. delaystore's account sends there, not the publisher's.

    `queue`: the ingress queue. `exchange`: the one that leads to it; None: none is known. `patterns`: as of a shell,
    for a queue's name or an address; none: every destination that is not delaystore's own. `own`: names of queues and
    exchanges that are. Raises ConfigurationError for an address among the patterns that is none.
    """

    queue: str
    exchange: str | None = None
    patterns: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        try:
            patterns = tuple(_written(pattern) for pattern in self.patterns)
        except UnsupportedMessageError as error:
            raise ConfigurationError(f"allow_destination: {error}") from None
        object.__setattr__(self, "patterns", patterns)

    def objection(self, destination: str) -> str | None:
        """Why a message may not go to `destination`; None: it may. Raises UnsupportedMessageError for no address."""
        address = _address(destination)
        if self.leads_back(destination):
            return f"its destination {destination} leads back to the ingress: it would come back for ever"
        written = _text(address)
        if self._is_ours(address) and written not in self.patterns:
            return (
                f"its destination {destination} is a queue or an exchange of delaystore's own; if publishers may reach "
                "it, name it in full in allow_destination (--allow-destination)"
            )
        if self.patterns and not any(fnmatchcase(written, pattern) for pattern in self.patterns):
            return (
                f"its destination {destination} is none that publishers may name; add it to allow_destination "
                "(--allow-destination)"
            )
        return None

    def leads_back(self, destination: str) -> bool:
        """Whether `destination` comes to the ingress again. Raises UnsupportedMessageError for no address."""
        address = _address(destination)
        expired = f"{self.queue}.expired"
        if address.exchange == DEFAULT_EXCHANGE:
            return address.routing_key in (self.queue, expired)
        return address.exchange in (self.exchange, expired)

    def _is_ours(self, address: Address) -> bool:
        name = address.routing_key if address.exchange == DEFAULT_EXCHANGE else address.exchange
        return name in self.own or name == _ERROR_QUEUE or _OURS.fullmatch(name) is not None


def _address(destination: str) -> Address:
    address = parse_address(destination)
    is_default = address.exchange in _DEFAULT_EXCHANGE_NAMES
    return Address(DEFAULT_EXCHANGE, address.routing_key) if is_default else address


def _written(pattern: str) -> str:
    """A pattern, or an address without wildcards as `_text` writes it."""
    return pattern if set(pattern) & set("*?[") else _text(_address(pattern))


def _text(address: Address) -> str:
    """An address in the one way in which patterns see it."""
    exchange, key = (quote(part, safe="") for part in address)
    if address.exchange != DEFAULT_EXCHANGE:
        return f"/exchanges/{exchange}/{key}" if key else f"/exchanges/{exchange}"
    return f"/queues/{key}" if address.routing_key.startswith("/") else address.routing_key
