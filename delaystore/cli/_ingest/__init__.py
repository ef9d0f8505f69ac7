"""The ingress, from the command line."""

__all__: list[str] = []
