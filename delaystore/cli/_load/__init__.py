"""`delaystore load`."""

__all__: list[str] = []
