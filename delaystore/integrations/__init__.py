"""Adapters for other frameworks, each a package of its own, which imports its framework when it is used."""

__all__: list[str] = []
