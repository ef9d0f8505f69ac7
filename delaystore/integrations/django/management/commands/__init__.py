"""Commands of manage.py."""

__all__: list[str] = []
