"""taskiq's delayed tasks, kept in a store."""

from delaystore.integrations.taskiq._broker import StoringAioPikaBroker

__all__ = ["StoringAioPikaBroker"]
