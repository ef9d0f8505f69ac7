"""RabbitMQ's native delays, from the command line."""

__all__: list[str] = []
