"""Which files a load has, and what they hold. Nothing here needs Spark."""

__all__: list[str] = []
