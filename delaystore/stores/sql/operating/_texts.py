"""Texts for people, as columns keep them."""


def fitting(text: str, most_bytes: int) -> str:
    """`text` without what no database keeps, cut to `most_bytes` of UTF-8."""
    encoded = text.replace("\0", "").encode(errors="replace")
    return encoded[:most_bytes].decode(errors="ignore")
