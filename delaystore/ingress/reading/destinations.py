"""Where an incoming message goes when it is due: an object for each way to find out."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final
from urllib.parse import quote, unquote_to_bytes

from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError, UnsupportedMessageError
from delaystore.ingress.reading.content import IncomingContent, shown, text_of
from delaystore.ingress.reading.incoming import IncomingMessage, RejectedMessageError
from delaystore.ingress.settings import QUEUE_ENDING, expired_of
from delaystore.message import check_destination
from delaystore.settings import DelayedDeliverySettings
from delaystore.text import DEFAULT_EXCHANGE, DESTINATION, MAX_SHORT_STRING_BYTES, Address, parse_address


class DestinationRule(ABC):
    """Where messages go that do not say it by their delay form."""

    named_by_publishers: ClassVar[bool] = False
    """Whether each message names its own destination."""
    routed_by_publishers: ClassVar[bool] = False
    """Whether messages keep the routing key and CC that they were published with."""

    @abstractmethod
    def destination(self, incoming: IncomingMessage, content: IncomingContent) -> str:
        """A queue's name or an address. Raises RejectedMessageError where there is none."""

    @abstractmethod
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        """Whether every forwarded message comes to the ingress queue `queue` again, to which `exchange` leads, if
        any.
        """


_DEFAULT_EXCHANGE_NAMES: Final = frozenset({DEFAULT_EXCHANGE, "amq.default"})
_OURS: Final = re.compile(rf".+({re.escape(QUEUE_ENDING)}|\.control|\.Timeouts)(\.(expired|rejected))?")
"""Names of queues and exchanges of ingresses and control queues, also those of other services."""
_ERROR_QUEUE: Final = DelayedDeliverySettings().error_queue
_QUEUES: Final = "/queues/"
_ALL: Final = "*"
_EXCHANGES: Final = "/exchanges/"
_WILDCARDS: Final = "*?"
_CHARACTER: Final = "(?:[^%/]|%[0-7][0-9A-F]|%[C-F][0-9A-F](?:%[89AB][0-9A-F])+)"
"""One character of a percent-encoded text."""
_MEANINGS: Final = {"*": ".*", "?": _CHARACTER, "/": "/"}
_PART: Final = re.compile("([*?/])")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedDestinations:
    """The destinations that a publisher may name by a header. delaystore's account sends there, not the publisher's.

    `queue`: the ingress queue. `exchange`: the one that leads to it; None: none is known. `patterns`: queue names or
    addresses, with the wildcards * and ?; * alone allows all; None: every destination that is not delaystore's own.
    `own`: names of queues and exchanges that are, or their addresses. Raises ConfigurationError for no patterns at all,
    and for one that can be no address.
    """

    queue: str
    exchange: str | None = None
    patterns: tuple[str, ...] | None = None
    own: frozenset[str] = frozenset()
    _in_full: frozenset[str] = field(init=False)
    """The addresses that are allowed without a wildcard."""
    _allowed: re.Pattern[str] | None = field(init=False)

    def __post_init__(self) -> None:
        if self.patterns is not None and not self.patterns:
            raise ConfigurationError('allow_destination is empty; name a destination, "*" for all, or leave it out')
        patterns = self.patterns or ()
        try:
            in_full = frozenset(_text(_allowed_address(each)) for each in patterns if not set(each) & set(_WILDCARDS))
            allowed = "|".join(map(_expression, patterns))
        except UnsupportedMessageError as error:
            raise ConfigurationError(f"allow_destination: {error}") from None
        object.__setattr__(self, "_in_full", in_full)
        object.__setattr__(self, "_allowed", re.compile(allowed, re.DOTALL) if patterns else None)
        object.__setattr__(self, "own", frozenset(map(_decoded, self.own)))

    def objection(self, destination: str) -> str | None:
        """Why a message may not go to `destination`; None: it may. Raises UnsupportedMessageError for no address."""
        address = _allowed_address(destination)
        if leads_back(destination, self.queue, self.exchange):
            return f"its destination {destination} leads back to the ingress: it would come back for ever"
        written = _text(address)
        if self._is_ours(address) and written not in self._in_full:
            return (
                f"its destination {destination} is a queue or an exchange of delaystore's own; if publishers may reach "
                "it, name it in full in allow_destination (--allow-destination)"
            )
        if self._allowed is not None and self._allowed.fullmatch(written) is None:
            return (
                f"its destination {destination} is none that publishers may name; add it to allow_destination "
                "(--allow-destination)"
            )
        return None

    def _is_ours(self, address: Address) -> bool:
        name = _name(address)
        return name in self.own or name == _ERROR_QUEUE or _OURS.fullmatch(name) is not None


def leads_back(destination: str, queue: str, exchange: str | None) -> bool:
    """Whether `destination` comes to the ingress queue `queue` again, to which `exchange` leads, if any.

    Raises UnsupportedMessageError for no address.
    """
    address = _allowed_address(destination)
    if address.exchange == DEFAULT_EXCHANGE:
        return address.routing_key in (queue, expired_of(queue))
    return address.exchange in (exchange, expired_of(queue))


def _allowed_address(destination: str) -> Address:
    address = parse_address(destination)
    is_default = address.exchange in _DEFAULT_EXCHANGE_NAMES
    return Address(DEFAULT_EXCHANGE, address.routing_key) if is_default else address


def _name(address: Address) -> str:
    return address.routing_key if address.exchange == DEFAULT_EXCHANGE else address.exchange


def _decoded(own: str) -> str:
    """The name of a queue or an exchange, which may be given by its address."""
    try:
        return _name(_allowed_address(own))
    except UnsupportedMessageError:
        return own


def _text(address: Address) -> str:
    """An address in the one way in which patterns see it."""
    exchange, key = (quote(part, safe="") for part in address)
    if address.exchange == DEFAULT_EXCHANGE:
        return f"{_QUEUES}{key}"
    return f"{_EXCHANGES}{exchange}/{key}" if key else f"{_EXCHANGES}{exchange}"


def _expression(pattern: str) -> str:
    """A regular expression for `_text` of the addresses that `pattern` allows."""
    if pattern == _ALL:
        return ".*"
    if not set(pattern) & set(_WILDCARDS):
        return re.escape(_text(_allowed_address(pattern)))
    if not pattern.startswith("/"):
        pattern = _QUEUES + quote(pattern, safe=_WILDCARDS, errors="replace")
    elif not pattern.startswith((_QUEUES, _EXCHANGES)):
        _allowed_address(pattern)  # raises an error, which says what addresses are like
    return "".join(
        _MEANINGS.get(part) or re.escape(quote(unquote_to_bytes(part), safe="")) for part in _PART.split(pattern)
    )


@dataclass(frozen=True, slots=True)
class ExchangeDestination(DestinationRule):
    """Messages go to `exchange` with the routing key that they were published with, as from the plugin."""

    exchange: str
    routed_by_publishers: ClassVar[bool] = True

    @override
    def destination(self, incoming: IncomingMessage, content: IncomingContent) -> str:
        key = incoming.routing_key
        if isinstance(key, bytes):
            raise RejectedMessageError(f"its routing key is no UTF-8: {shown(key)}")
        return _address(self.exchange, key)

    @override
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        return self.exchange in (exchange, expired_of(queue))


@lru_cache(maxsize=4096)
def _address(exchange: str, key: str) -> str:
    address = f"/exchanges/{quote(exchange, safe='')}"
    return f"{address}/{quote(key, safe='')}" if key else address


@dataclass(frozen=True, slots=True)
class FixedDestination(DestinationRule):
    """All messages go to `to`: a queue's name, or an address."""

    to: str

    @override
    def destination(self, incoming: IncomingMessage, content: IncomingContent) -> str:
        return self.to

    @override
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        return leads_back(self.to, queue, exchange)


@dataclass(frozen=True, slots=True)
class HeaderDestination(DestinationRule):
    """A message goes where its header `name` says: a queue's name, or an address. The header stays."""

    name: str = DESTINATION
    named_by_publishers: ClassVar[bool] = True

    @override
    def destination(self, incoming: IncomingMessage, content: IncomingContent) -> str:
        to = text_of(content.headers, self.name)
        if to is None:
            raise RejectedMessageError(f"it has no destination: there is no header {self.name}")
        try:
            parse_address(to)
        except UnsupportedMessageError as error:
            raise RejectedMessageError(f"header {self.name}: {error}") from None
        return to

    @override
    def leads_back(self, exchange: str | None, queue: str) -> bool:
        return False  # some may; these are rejected one by one


_HEADER: Final = "header"
_EXCHANGE: Final = "/exchanges/"
_POSSIBLE: Final = (
    "write /exchanges/NAME (messages keep their routing keys), /exchanges/NAME/KEY, a queue, "
    f"header ({DESTINATION} says it), or header:NAME"
)


def parse_destination(text: str, option: str) -> DestinationRule:
    """The rule that `text` means; ConfigurationError naming `option` for what means none.

    `/exchanges/NAME`: to that exchange, with the routing key that each message has. `header`, `header:NAME`: where a
    header says. Any other address, or a queue's name: there. The queue `header` is `/queues/header`.
    """
    given = text.strip()
    kind, colon, name = given.partition(":")
    if kind == _HEADER:
        return _header(name if colon else DESTINATION, option)
    try:
        check_destination(given)
        address = parse_address(given)
    except InvalidMessageError as error:
        raise ConfigurationError(f"{option}: {error}; {_POSSIBLE}") from None
    if address.exchange == DEFAULT_EXCHANGE and not address.routing_key:
        raise ConfigurationError(f"{option} {text!r} names no destination; {_POSSIBLE}")
    if given.startswith(_EXCHANGE) and given.count("/") == _EXCHANGE.count("/"):
        return ExchangeDestination(address.exchange)
    return FixedDestination(given)


def _header(name: str, option: str) -> DestinationRule:
    if not name or len(name.encode(errors="replace")) > MAX_SHORT_STRING_BYTES:
        raise ConfigurationError(f"{option}: a header's name has 1 to {MAX_SHORT_STRING_BYTES} bytes; {_POSSIBLE}")
    return HeaderDestination(name)
