"""Dramatiq's delayed messages and retries, kept in a store instead of in a worker's memory."""

from delaystore.registry import needed_for

with needed_for("delaystore.integrations.dramatiq"):
    from delaystore.integrations.dramatiq._broker import StoringRabbitmqBroker

__all__ = ["StoringRabbitmqBroker"]
