"""One file per version; none is changed once released."""

__all__: list[str] = []
