"""Measurements against peers and limits, on private servers: `python -m benchmarks --help`."""
