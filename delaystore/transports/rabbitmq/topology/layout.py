"""Exchanges, queues and bindings, as data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
"""The argument of an exchange that names where unroutable messages go."""
ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"
"""None, one or more words."""
WILDCARDS: Final = frozenset({ONE_WORD, ANY_WORDS})


class DestinationKind(StrEnum):
    """The kind of a binding's destination."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange.

    Attributes:
        name: Its name.
        type: Topic, fanout, direct, headers, or one of a plugin's.
        arguments: Its arguments.

    """

    name: str
    type: str = "topic"
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"exchange {self.name!r}"


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue.

    Attributes:
        name: Its name.
        arguments: Its arguments.

    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"queue {self.name!r}"

    @property
    def ttl(self) -> int | None:
        """Milliseconds that a message stays; None: without end."""
        return self.arguments.get("x-message-ttl")

    @property
    def type(self) -> str:
        """Quorum or classic, which is the default."""
        return str(self.arguments.get("x-queue-type", "classic"))


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding from an exchange to a queue or another exchange.

    Attributes:
        source: The exchange.
        destination: Where messages go that fit.
        kind: The kind of the destination.
        routing_key: The routing key, or its pattern, that a message must fit.
        arguments: The headers that a message must fit, of a headers exchange.

    """

    source: str
    destination: str
    kind: DestinationKind
    routing_key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        what = f"{self.routing_key!r} with {dict(self.arguments)}" if self.arguments else repr(self.routing_key)
        return f"binding {what} from exchange {self.source!r} to {self.kind} {self.destination!r}"

    def takes(self, exchange_type: str, key: str) -> bool:
        """Whether a message passes.

        Args:
            exchange_type: The type of the source.
            key: The message's routing key.

        Returns:
            Whether it passes.

        """
        if exchange_type == "fanout":
            return True
        if exchange_type == "direct":
            return self.routing_key == key
        return matches(self.routing_key, key)


Part = Exchange | Queue | Binding


@dataclass(frozen=True, slots=True)
class Layout:
    """Exchanges, queues, and the bindings between them, in an order in which they can be declared.

    Attributes:
        exchanges: The exchanges.
        queues: The queues.
        bindings: The bindings.

    """

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()

    def __add__(self, other: "Layout") -> "Layout":
        return Layout(self.exchanges + other.exchanges, self.queues + other.queues, self.bindings + other.bindings)

    @property
    def nodes(self) -> list[Exchange | Queue]:
        """The exchanges and queues."""
        return [*self.exchanges, *self.queues]

    @property
    def parts(self) -> list[Part]:
        """Everything, in an order in which it can be declared."""
        return [*self.nodes, *self.bindings]

    def queues_for(self, exchange: str, key: str) -> tuple[str, ...]:
        """The queues that get a message.

        Args:
            exchange: The exchange that it is published to.
            key: Its routing key.

        Returns:
            The queues' names, each once.

        """
        return tuple(dict.fromkeys(self._deliver(exchange, key, frozenset())))

    def _deliver(self, name: str, key: str, passed: frozenset[str]) -> Iterator[str]:
        exchange = next((one for one in self.exchanges if one.name == name), None)
        if exchange is None or name in passed:
            return
        passed |= {name}
        taken = [one for one in self.bindings if one.source == name and one.takes(exchange.type, key)]
        for binding in taken:
            if binding.kind is DestinationKind.QUEUE:
                yield binding.destination
            else:
                yield from self._deliver(binding.destination, key, passed)
        if not taken and ALTERNATE_EXCHANGE in exchange.arguments:
            yield from self._deliver(exchange.arguments[ALTERNATE_EXCHANGE], key, passed)


def fanout_queue(name: str, arguments: Mapping[str, Any]) -> Layout:
    """A queue that gets everything from the fanout exchange of its own name."""
    return Layout(
        exchanges=(Exchange(name, "fanout"),),
        queues=(Queue(name, arguments),),
        bindings=(Binding(name, name, DestinationKind.QUEUE),),
    )


def matches(pattern: str, key: str) -> bool:
    """Whether a binding takes a message, as a topic exchange compares. Words are parted by dots.

    See https://www.rabbitmq.com/tutorials/tutorial-five-python

    Args:
        pattern: The binding's routing key.
        key: The message's routing key.

    Returns:
        Whether they match.

    """
    words = _words(key)
    reached = {0}  # how many words of the key the pattern so far can match
    for part in _words(pattern):
        if part == ANY_WORDS:
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in (ONE_WORD, words[at])}
        if not reached:
            return False
    return len(words) in reached


def _words(text: str) -> list[str]:
    return text.split(".") if text else []
