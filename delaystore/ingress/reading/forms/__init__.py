"""The forms in which a message says when it is due, an object each."""

__all__: list[str] = []
