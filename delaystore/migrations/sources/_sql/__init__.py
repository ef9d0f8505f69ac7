"""Messages in the tables of a SQL database."""

__all__: list[str] = []
