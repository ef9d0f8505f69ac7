"""Diagrams, shown as their text: what would draw them is a script that a reader's browser fetches from elsewhere."""

import re


def written_out(text: str) -> str:
    """`text` with each diagram as a block of text."""
    return re.sub(r"^( *)```mermaid$", r'\1```text title="a diagram, as Mermaid writes it"', text, flags=re.MULTILINE)
