"""A control queue: programs that speak AMQP cancel, reschedule and look up waiting messages."""

from delaystore.ingress.control._queue import ControlHealth, ControlQueue

__all__ = ["ControlHealth", "ControlQueue"]
