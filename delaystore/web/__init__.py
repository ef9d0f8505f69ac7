"""The web page: see what waits, and operate it."""

__all__: list[str] = []
