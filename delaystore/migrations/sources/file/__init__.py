"""Messages in a file: JSON lines, or Parquet."""
