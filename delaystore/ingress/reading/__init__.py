"""From a message as it came to what the store keeps. No connection, no store: values and pure functions."""

__all__: list[str] = []
