"""Rows of files and exports, as messages."""

__all__: list[str] = []
