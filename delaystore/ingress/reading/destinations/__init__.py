"""The rules by which a message's destination is found, an object each."""

__all__: list[str] = []
