"""What SQL databases have in common, and what differs from one to the next."""

__all__: list[str] = []
