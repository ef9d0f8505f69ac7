"""Where the repository is, and what its files are called on the site."""

from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).parents[1]

_PAGES: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "design/architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/NOTES.md": "design/benchmark-notes.md",
}


def place(path: str) -> str:
    """Where the site has the repository's file or folder `path`; what is no document gets a page that shows it."""
    if path in _PAGES:
        return _PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}.md"


def is_shown(path: str) -> bool:
    """Whether `path` is no document: the site has a page with its text."""
    return place(path).startswith("files/")
