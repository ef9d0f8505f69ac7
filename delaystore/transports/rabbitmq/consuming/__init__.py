"""Taking messages from queues for as long as they come."""

__all__: list[str] = []
