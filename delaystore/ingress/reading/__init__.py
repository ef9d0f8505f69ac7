"""From an incoming message to the message that the store keeps. No connection, no store: values and pure functions."""

__all__: list[str] = []
