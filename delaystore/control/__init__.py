"""A control queue: what waits, cancelled, rescheduled and looked up by programs that speak AMQP."""

from delaystore.control.health import ControlHealth
from delaystore.control.queue import ControlQueue

__all__ = ["ControlHealth", "ControlQueue"]
