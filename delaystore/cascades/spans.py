"""Times to live, for people."""

from typing import Final

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
"""In milliseconds."""
_PARTS: Final = 2


def span_text(milliseconds: int) -> str:
    """`1,553 d 10 h`, `18 h 12 min`, `8 s`, `512 ms`: the two largest units; smaller ones are cut off."""
    parts: list[str] = []
    rest = milliseconds
    for name, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:,} {name}")
        if len(parts) == _PARTS or (parts and not count):
            break
    return " ".join(parts) or "0 ms"
