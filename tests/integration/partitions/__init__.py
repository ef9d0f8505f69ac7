"""Partitions, made of few rows."""

ROWS = 10
"""As many at once are worth a partition here."""
