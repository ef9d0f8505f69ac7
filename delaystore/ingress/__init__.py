"""Delayed messages from any program: taken from RabbitMQ queues, and kept in a store until they are due."""

__all__: list[str] = []
