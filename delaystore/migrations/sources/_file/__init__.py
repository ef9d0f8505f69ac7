"""Messages in a file: JSON lines, or Parquet."""

__all__: list[str] = []
