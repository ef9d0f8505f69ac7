"""Cascades as infrastructure as code, and as a drawing. Pure: documents and texts made of values."""

from delaystore.cascades.exports.definitions import definitions
from delaystore.cascades.exports.mermaid import mermaid
from delaystore.cascades.exports.terraform import terraform

__all__ = ["definitions", "mermaid", "terraform"]
