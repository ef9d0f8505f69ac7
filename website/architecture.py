"""ARCHITECTURE.md on the site: its words and its decisions are pages of their own."""

import re
from typing import Final

from website.house import HOUSE

SOURCE: Final = "ARCHITECTURE.md"
_WORDS: Final = "Words"
_DECISIONS: Final = "Decisions, and why"
_GLOSSARY: Final = """# Glossary

One word for one thing: in the code, in messages and in these pages. The last column has words that are
not used for it.
"""
_DESIGN: Final = """# Decisions, and why

Each decision has a reason. Whoever wants to change one should first find that its reason no longer holds.
"""


def pages() -> dict[str, str]:
    """The pages that ARCHITECTURE.md becomes: the site's path of each, and its text."""
    sections = _sections((HOUSE / SOURCE).read_text())
    words, decisions = sections.pop(_WORDS), sections.pop(_DECISIONS)
    rest = "".join(f"## {title}\n{text}" if title else text for title, text in sections.items())
    return {
        "design/architecture.md": rest,
        "glossary.md": _GLOSSARY + _with_headings(words),
        "design/decisions.md": _DESIGN + _with_headings(decisions),
    }


def _sections(text: str) -> dict[str, str]:
    """The text below each heading of the second level; what precedes the first has no title."""
    first, *others = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return {"": first, **dict(zip(others[::2], others[1::2], strict=True))}


def _with_headings(text: str) -> str:
    """Lines that are only bold are headings."""
    text = re.sub(r"^\*\*([^*]+)\*\*$", r"## \1", text, flags=re.MULTILINE)
    return text.replace("One word for one thing, in code, messages and documents.\n", "")
