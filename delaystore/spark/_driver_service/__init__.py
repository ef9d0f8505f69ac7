"""What must outlive Spark's planning workers: snapshots that are read from, and leases of loads that are running."""

__all__: list[str] = []
