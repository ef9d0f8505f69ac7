"""Dramatiq's delayed messages and retries, kept in a store instead of in a worker's memory."""

from delaystore.integrations.dramatiq._broker import StoringRabbitmqBroker

__all__ = ["StoringRabbitmqBroker"]
