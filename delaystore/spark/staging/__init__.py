"""Staging, by kind of store."""
