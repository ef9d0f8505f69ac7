"""RabbitMQ's native delays, from the command line."""
