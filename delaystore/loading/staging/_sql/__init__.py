"""Staging in a table beside the one in which messages wait."""

__all__: list[str] = []
