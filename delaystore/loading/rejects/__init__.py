"""Rows that cannot be messages: counted by reason, and set aside in files."""

__all__: list[str] = []
