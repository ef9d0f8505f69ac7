"""The screens, a module each."""

__all__: list[str] = []
