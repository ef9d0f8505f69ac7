"""The command line: wiring only."""

__all__: list[str] = []
