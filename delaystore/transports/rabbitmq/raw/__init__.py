"""Messages as the bytes they came in: read, copied and published without decoding what nobody asks for."""

__all__: list[str] = []
