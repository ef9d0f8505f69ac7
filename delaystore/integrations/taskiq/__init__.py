"""taskiq's delayed tasks, kept in a store."""

from delaystore.registry import needed_for

with needed_for("delaystore.integrations.taskiq"):
    from delaystore.integrations.taskiq._broker import StoringAioPikaBroker

__all__ = ["StoringAioPikaBroker"]
