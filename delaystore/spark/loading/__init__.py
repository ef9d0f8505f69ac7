"""Files of messages, loaded by Spark."""

__all__: list[str] = []
