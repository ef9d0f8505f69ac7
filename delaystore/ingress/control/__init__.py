"""A control queue: what waits, cancelled, rescheduled and looked up by programs that speak AMQP."""

from delaystore.ingress.control._queue import ControlHealth, ControlQueue

__all__ = ["ControlHealth", "ControlQueue"]
