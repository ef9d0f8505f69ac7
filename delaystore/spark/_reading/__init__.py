"""Reading what waits in a store."""

__all__: list[str] = []
