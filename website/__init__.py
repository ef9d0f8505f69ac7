"""Builds the documentation site: `python -m website` writes its pages into build/docs, and the site into build/site."""

__all__: list[str] = []
