"""The error queue, from the command line."""

__all__: list[str] = []
