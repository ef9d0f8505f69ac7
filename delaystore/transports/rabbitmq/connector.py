"""Connecting to one of a broker's nodes, in the loop of the thread that will own the connection."""

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random

from delaystore.transports.rabbitmq.nodes import Node, Nodes, failures_text, is_address, nodes_of
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import reason_of
from delaystore.transports.rabbitmq.pika_internals import RawConnection

_PAUSE: Final = wait_exponential(multiplier=0.1, max=5) + wait_random(0, 0.1)
"""Seconds between two rounds."""

log = logging.getLogger(__name__)


class Connector:
    """Tries a broker's nodes in rounds, one after the other, until one takes the connection.

    Each round looks the names up afresh. It ends with the node that was connected to last; the pause between rounds
    grows. Everything happens in the thread of `loop`, except looking names up.
    `on_open(connection)`: connected, to `node`. `on_failed(reason)`: a
    round was in vain, and another one follows. `on_close(connection, error)`: a connection that was open is lost.
    """

    def __init__(
        self,
        broker: Broker,
        loop: Any,
        *,
        on_open: Callable[[Any], None],
        on_failed: Callable[[str], None],
        on_close: Callable[[Any, BaseException], None],
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._on_open = on_open
        self._on_failed = on_failed
        self._on_close = on_close
        self._rounds = RetryCallState(Retrying(), None, (), {})
        self._left: Iterator[tuple[Node, bool]] = iter(())
        self._failures: list[tuple[str, str]] = []
        self._stopped = False
        self.connection: Any = None
        """The open connection, or the one that is being opened; None: there is none."""
        self.node: Node | None = None
        """The node that was connected to last."""

    def connect(self, *, at_once: bool = True) -> None:
        """Begin a round; unless `at_once`, after a pause."""
        self._loop.call_later(0.0 if at_once else _PAUSE(self._rounds), self._look_up)

    def stop(self) -> None:
        """Try no further node; may be called twice. The connection stays as it is.

        `on_failed` is called once more, if one is being opened and ends.
        """
        self._stopped = True

    def _look_up(self) -> None:
        if self._stopped:
            return
        if all(is_address(host) for host in self._broker.hosts):
            self._begin(nodes_of(self._broker))
            return
        threading.Thread(target=self._look_up_in_background, name="delaystore-look-up", daemon=True).start()

    def _look_up_in_background(self) -> None:
        try:
            nodes = nodes_of(self._broker)
        except Exception as error:  # as where no thread can be started
            nodes = Nodes([], {self._broker.label: f"its name cannot be looked up: {error}"})
        self._loop.add_callback_threadsafe(partial(self._begin, nodes))

    def _begin(self, nodes: Nodes) -> None:
        if self._stopped:
            return
        turn = nodes.in_turn(last=self.node)
        self._left = iter([(node, node is turn[-1]) for node in turn])
        self._failures = list(nodes.unknown.items())
        for label, reason in self._failures:
            self._note(label, reason)
        self._try_next()

    def _try_next(self) -> None:
        node, last = next(self._left, (None, True))
        if node is None:
            self._fail()
            return
        parameters = node.parameters(last=last)
        self.connection = RawConnection(
            parameters,
            on_open_callback=partial(self._opened, node),
            on_open_error_callback=partial(self._refused, node, parameters.stack_timeout),
            on_close_callback=self._closed,
            custom_ioloop=self._loop,
        )

    def _opened(self, node: Node, connection: Any) -> None:
        self.node = node
        self._rounds.attempt_number = 1
        self._on_open(connection)

    def _refused(self, node: Node, timeout: float, _connection: Any, error: BaseException) -> None:
        self.connection = None
        reason = reason_of(error, timeout)
        self._failures.append((node.label, reason))
        if self._stopped:
            self._fail()
        else:
            self._note(node.label, reason)
            self._try_next()

    def _closed(self, connection: Any, error: BaseException) -> None:
        self.connection = None
        self._on_close(connection, error)

    def _fail(self) -> None:
        reason = f"RabbitMQ at {self._broker.label} cannot be reached: {failures_text(self._failures)}"
        self._on_failed(reason)
        self.connect(at_once=False)
        self._rounds.attempt_number += 1

    def _note(self, label: str, reason: str) -> None:
        """Log which node took no connection: a warning in the first round, if another host may be well."""
        several = len(self._broker.hosts) > 1
        level = logging.WARNING if several and self._rounds.attempt_number == 1 else logging.DEBUG
        log.log(level, "RabbitMQ at %s cannot be reached: %s", label, reason)
