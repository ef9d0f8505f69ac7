"""The configuration of `delaystore serve`: read from a file or from options, checked strictly, shown, compared."""

__all__: list[str] = []
