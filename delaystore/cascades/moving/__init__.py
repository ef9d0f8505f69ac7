"""Moving the waiting messages of a cascade into another, on the same broker or on another; see `mover`."""

__all__: list[str] = []
