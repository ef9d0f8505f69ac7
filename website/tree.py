"""The pages of the site, written from the documents and from the program itself."""

import shutil
from pathlib import Path
from typing import Final

from website import commands, settings, variables
from website.house import HOUSE, is_shown, place
from website.links import mended, targets
from website.pictures import write_pictures
from website.plots import write_plots
from website.shown import shown
from website.tabs import tabbed

_BESIDES: Final = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/NOTES.md")


def write_pages(folder: Path) -> int:
    """Write all pages and pictures into `folder`; how many pages."""
    pages = {**_documents(), **_generated()}
    for path, text in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    shutil.copytree(HOUSE / "docs" / "pictures", folder / "pictures")
    write_pictures(folder / "pictures")
    write_plots(folder / "pictures")
    shutil.copytree(HOUSE / "website" / "assets", folder / "assets")
    return len(pages)


def documents() -> dict[str, str]:
    """The documents that people write: the repository's path of each, and its text."""
    paths = [*sorted((HOUSE / "docs").rglob("*.md")), *(HOUSE / name for name in _BESIDES)]
    return {path.relative_to(HOUSE).as_posix(): path.read_text() for path in paths}


def _documents() -> dict[str, str]:
    """Documents as pages, and the pages of files that they link to."""
    written = documents()
    linked = set().union(*(targets(text, path) for path, text in written.items()))
    pages = {place(path): tabbed(mended(text, path)) for path, text in written.items()}
    return pages | {place(path): shown(path) for path in sorted(linked) if is_shown(path)}


def _generated() -> dict[str, str]:
    reference = {f"reference/{page.name}": page.read_text() for page in (HOUSE / "website" / "reference").glob("*.md")}
    return {
        **reference,
        "reference/commands.md": commands.page(),
        "reference/settings.md": settings.page(),
        "reference/variables.md": variables.page(),
    }
