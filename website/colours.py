"""Colours of diagrams and plots in both schemes. Each picture has its own background, so it is readable on any page."""

from typing import Final

LIGHT: Final = {
    "paper": "#ffffff",
    "edge": "#d1d9e0",
    "ink": "#1f2328",
    "muted": "#59636e",
    "grey": "#f6f8fa",
    "blue": "#0969da",
    "pale-blue": "#ddf4ff",
    "orange": "#bc4c00",
    "pale-orange": "#fff1e5",
    "green": "#1a7f37",
    "pale-green": "#dafbe1",
    "red": "#cf222e",
    "pale-red": "#ffebe9",
}
DARK: Final = {
    "paper": "#0d1117",
    "edge": "#3d444d",
    "ink": "#f0f6fc",
    "muted": "#9198a1",
    "grey": "#1b222c",
    "blue": "#4493f8",
    "pale-blue": "#12233d",
    "orange": "#f0883e",
    "pale-orange": "#331f11",
    "green": "#3fb950",
    "pale-green": "#10301d",
    "red": "#f85149",
    "pale-red": "#3c1618",
}
IN_THE_DARK: Final = "@media (prefers-color-scheme: dark)"
"""In Chromium and Firefox a picture has the scheme of the element that shows it, elsewhere that of the system."""
