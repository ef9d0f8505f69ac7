"""The nodes of a broker: each address of each of its hosts, and in which order they are tried."""

import ipaddress
import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

import pika

from delaystore.transports.rabbitmq.parameters import Broker, BrokerHost

LOOK_UP: Final = 5.0
"""Seconds that a name server has for the names of a broker's hosts."""
NODE_TIMEOUT: Final = 5.0
"""Seconds that an address has to take a connection where there is another to try. Decides how long a frozen node
holds up: its kernel accepts TCP connections nevertheless."""
LAST_NODE_TIMEOUT: Final = 15.0
"""Seconds that the last one has: an overloaded broker takes long for a login."""


@dataclass(frozen=True, slots=True)
class Node:
    """One address of a host. `label`: with the virtual host, for people to read."""

    host: BrokerHost
    address: str
    label: str

    def parameters(self, *, last: bool, **more: Any) -> pika.ConnectionParameters:
        """Parameters of pika's for one connection. `last`: there is no other node to try. `more`: in their place."""
        seconds = self.host.timeout or (LAST_NODE_TIMEOUT if last else NODE_TIMEOUT)
        return self.host.parameters(
            **{"host": self.address, "socket_timeout": seconds, "stack_timeout": seconds, **more}
        )


@dataclass(frozen=True, slots=True)
class Nodes:
    """The present addresses of a broker's hosts. `unknown`: why a host has no address, or none of use, by its label."""

    found: Sequence[Node]
    unknown: Mapping[str, str]

    def in_turn(self, *, first: Node | None = None, last: Node | None = None) -> Sequence[Node]:
        """All of them, in the order of the URL, which begins again at its end.

        `first`: begin with this one; `last`: end with it. None, or one that is no longer there: begin with any host.
        """
        if not self.found:
            return []
        if first in self.found:
            start = self.found.index(first)
        elif last in self.found:
            start = self.found.index(last) + 1
        else:
            host = random.choice(list(dict.fromkeys(node.host.label for node in self.found)))  # noqa: S311 - no secret
            start = next(position for position, node in enumerate(self.found) if node.host.label == host)
        return [*self.found[start:], *self.found[:start]]


def nodes_of(broker: Broker) -> Nodes:
    """The nodes of `broker`, its names looked up within LOOK_UP seconds, in threads of their own."""
    addresses = {host: [host.name] for host in broker.hosts if is_address(host)}
    asked = [host for host in broker.hosts if host not in addresses]
    unknown = {host.label: f"its name could not be looked up within {LOOK_UP:g} s" for host in asked}
    for host, answer in _answers(asked):
        if isinstance(answer, str):
            unknown[host.label] = answer
        else:
            addresses[host] = answer
            del unknown[host.label]
    found = []
    for node in dict.fromkeys(node for host in broker.hosts for node in _nodes(broker, host, addresses.get(host, ()))):
        obstacle = _obstacle(node)
        if obstacle is None:
            found.append(node)
        else:
            unknown[node.label] = obstacle
    return Nodes(found, unknown)


def is_address(host: BrokerHost) -> bool:
    """Whether the host is given by its address, not by a name."""
    try:
        ipaddress.ip_address(host.name)
    except ValueError:
        return False
    return True


def failures_text(failures: Iterable[tuple[str, str]]) -> str:
    """Why none of the nodes was connected to: (label, reason) of each; the reason alone where all have the same.

    The same text for any order of attempts.
    """
    each = sorted(failures)
    reasons = {reason for _, reason in each}
    return reasons.pop() if len(reasons) == 1 else "; ".join(f"{label}: {reason}" for label, reason in each)


def _nodes(broker: Broker, host: BrokerHost, addresses: Sequence[str]) -> Iterator[Node]:
    for address in addresses:
        where = host.label if len(addresses) == 1 else f"{host.label} at {address}"
        yield Node(host, address, broker.named(where))


def _obstacle(node: Node) -> str | None:
    """Why this machine can have no socket for the address: no IPv6, or too many open files. None: it can."""
    try:
        socket.socket(socket.AF_INET6 if ":" in node.address else socket.AF_INET, socket.SOCK_STREAM).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _answers(hosts: Sequence[BrokerHost]) -> Iterator[tuple[BrokerHost, list[str] | str]]:
    """The addresses of each host, or else why there are none; less if a name server takes too long."""
    answered: SimpleQueue[tuple[BrokerHost, list[str] | str]] = SimpleQueue()
    deadline = time.monotonic() + LOOK_UP
    for host in hosts:
        threading.Thread(
            target=lambda host=host: answered.put((host, _addresses(host))),
            name=f"delaystore-look-up {host.name}",
            daemon=True,  # there is no way to end it
        ).start()
    for _ in hosts:
        try:
            yield answered.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return


def _addresses(host: BrokerHost) -> list[str] | str:
    try:
        answers = socket.getaddrinfo(host.name, host.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except OSError as error:
        return f"its name cannot be looked up: {error.strerror or error}"
    except UnicodeError:
        return "it is no name of a host"
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
