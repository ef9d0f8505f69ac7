"""Delay layouts as infrastructure as code, and as a drawing. Pure: texts and documents from values."""

from delaystore.transports.rabbitmq.exports.definitions import definitions
from delaystore.transports.rabbitmq.exports.mermaid import mermaid
from delaystore.transports.rabbitmq.exports.terraform import terraform

__all__ = ["definitions", "mermaid", "terraform"]
