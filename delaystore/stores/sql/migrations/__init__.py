"""How the schema came to be: Alembic's scripts, run by `setup`."""

__all__: list[str] = []
