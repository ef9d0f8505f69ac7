"""Links of a document, as its page on the site needs them."""

import posixpath
import re
from collections.abc import Callable
from typing import Final

from website.house import place

_LINK: Final = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
_CODE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """`text` with what lies between its blocks of code changed."""
    kept, position = [], 0
    for block in _CODE.finditer(text):
        kept += [change(text[position : block.start()]), block[0]]
        position = block.end()
    return "".join([*kept, change(text[position:])])


def targets(text: str, path: str) -> set[str]:
    """The files and folders of the repository that the document at `path` links to."""
    found: set[str] = set()
    outside_code(text, lambda prose: found.update(_target(link[2], path) for link in _LINK.finditer(prose)) or prose)
    return found


def mended(text: str, path: str) -> str:
    """`text`, the document at `path`, with links between files of the repository as links between the site's pages."""
    folder = posixpath.dirname(place(path)) or "."

    def mend(link: re.Match[str]) -> str:
        return link[1] + posixpath.relpath(place(_target(link[2], path)), folder) + link[3]

    return outside_code(text, lambda prose: _LINK.sub(mend, prose))


def _target(link: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
