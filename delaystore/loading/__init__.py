"""Rows of files and DataFrames into a store: what loads share, whether Spark runs them or not."""

__all__: list[str] = []
