"""Django's migrations: one for each version of the store's tables."""

__all__: list[str] = []
