"""The documents' diagrams as SVG files, light and dark. `python -m website.pictures` writes docs/pictures again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from website.pictures.brokers import cascade, ingress, plugin_after, plugin_before
from website.pictures.drawing import Picture
from website.pictures.messages import crash, flow, states

PICTURES: Final[Mapping[str, Picture]] = {
    "flow": flow(),
    "states": states(),
    "crash": crash(),
    "ingress": ingress(),
    "leaving-the-plugin-before": plugin_before(),
    "leaving-the-plugin-after": plugin_after(),
    "cascade": cascade(),
}
"""By the name of the file, without its ending."""


def write_pictures(folder: Path) -> list[Path]:
    """Write all diagrams into `folder`.

    Returns:
        The files.

    """
    paths = []
    for name, picture in PICTURES.items():
        paths.append(folder / f"{name}.svg")
        paths[-1].write_text(picture.svg())
    return paths
