"""Moving waiting messages out of a store, live: into RabbitMQ's native delays, or into another store."""

__all__: list[str] = []
