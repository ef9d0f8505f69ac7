"""From the rows that people have to messages, column by column in Arrow's memory."""

__all__: list[str] = []
