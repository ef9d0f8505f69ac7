"""The JSON API, for programs in other languages. Its document is written next to the routes."""

__all__: list[str] = []
