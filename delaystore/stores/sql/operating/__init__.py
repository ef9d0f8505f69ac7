"""What operators need of a SQL store: a module for each subject, and the tables beside those of the messages."""

__all__: list[str] = []
