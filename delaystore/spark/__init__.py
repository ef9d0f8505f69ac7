"""Bulk-load, stream and read delayed messages with PySpark."""
