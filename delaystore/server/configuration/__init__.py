"""What `delaystore serve` is to run: read from a file or from options, checked strictly, shown, compared."""

__all__: list[str] = []
