"""The JSON API: what programs in other languages use. Its document is written next to the routes."""

__all__: list[str] = []
