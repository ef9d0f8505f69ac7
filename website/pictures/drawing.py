"""A small layout helper for SVG diagrams: boxes, arrows and texts at places that the caller names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import hypot
from typing import Final

from website.colours import DARK, IN_THE_DARK, LIGHT

Point = tuple[float, float]

_SMALL_LINE: Final = 16
"""From one line of small text to the next."""
_HEAD: Final = 8
"""The length of an arrow's head."""
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "plain": ("grey", "muted"),
    "database": ("pale-blue", "blue"),
    "broker": ("pale-orange", "orange"),
    "good": ("pale-green", "green"),
    "bad": ("pale-red", "red"),
}
"""The colours of each kind of box: inside and edge."""
_FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
_MONOSPACE: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"


@dataclass(frozen=True)
class Box:
    """Where a box is."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> Point:
        """Its middle."""
        return self.x + self.width / 2, self.y + self.height / 2


class Picture:
    """A diagram. `title` and `text` describe it for readers who do not see it; they are also written into the file."""

    def __init__(self, title: str, text: str, width: int, height: int) -> None:
        self.title = title
        self.text = text
        self._width, self._height = width, height
        self._behind: list[str] = []
        self._parts: list[str] = []

    def box(
        self,
        place: tuple[float, float, float, float],
        name: str,
        *texts: str,
        kind: str = "plain",
        shape: str = "box",
        code: bool = False,
    ) -> Box:
        """A box with its name and smaller texts below it.

        Args:
            place: x, y, width and height.
            name: the first line.
            texts: further lines, smaller.
            kind: plain, database, broker, good or bad.
            shape: box; store, a cylinder; exchange, with round ends; queue, with bars at its right end.
            code: whether the name is written as code.

        Returns:
            Where it is.

        """
        made = Box(*place)
        self._parts.append("<g>" + self._shape(made, kind, shape))
        x, y = made.middle
        x -= 9 if shape == "queue" else 0
        y += 5 if shape == "store" else 0
        top = y - len(texts) * _SMALL_LINE / 2
        self._parts.append(_text((x, top + 5), name, f"name {'code' if code else ''}".strip(), "middle"))
        for number, text in enumerate(texts, 1):
            self._parts.append(_text((x, top + 5 + number * _SMALL_LINE + 1), text, "small", "middle"))
        self._parts.append("</g>")
        return made

    def frame(self, place: tuple[float, float, float, float], name: str, kind: str = "plain") -> None:
        """A dashed frame around other parts, with its name at the upper left."""
        x, y, width, height = place
        self._behind.append(
            f'<rect class="frame edge-{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10"/>'
        )
        self._behind.append(_text((x + 12, y + 19), name, f"small ink-{kind}"))

    def arrow(self, *points: Point, kind: str = "plain", dashed: bool = False) -> None:
        """A line through the points, with a head at the last one."""
        (x1, y1), (x2, y2) = points[-2:]
        length = hypot(x2 - x1, y2 - y1)
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        foot = x2 - dx * _HEAD, y2 - dy * _HEAD
        line = " ".join(f"{x:.4g},{y:.4g}" for x, y in (*points[:-1], foot))
        wing = _HEAD / 2
        corners = [(x2, y2), (foot[0] - dy * wing, foot[1] + dx * wing), (foot[0] + dy * wing, foot[1] - dx * wing)]
        head = " ".join(f"{x:.4g},{y:.4g}" for x, y in corners)
        self._parts.append(f'<polyline class="line edge-{kind}{" dashed" if dashed else ""}" points="{line}"/>')
        self._parts.append(f'<polygon class="head-{kind}" points="{head}"/>')

    def label(self, at: Point, *lines: str, kind: str = "muted", anchor: str = "middle") -> None:
        """Small lines of text, the first one at `at`."""
        for number, line in enumerate(lines):
            place = at[0], at[1] + number * _SMALL_LINE
            self._parts.append(_text(place, line, f"small ink-{kind}", anchor))

    def heading(self, at: Point, text: str, kind: str = "ink", anchor: str = "start") -> None:
        """A line of text in bold."""
        self._parts.append(_text(at, text, f"name ink-{kind}", anchor))

    def mark(self, at: Point, text: str, kind: str) -> None:
        """A small filled disc with a number or letter."""
        x, y = at
        self._parts.append(f'<g><circle class="head-{kind}" cx="{x:g}" cy="{y:g}" r="11"/>')
        self._parts.append(_text((x, y + 4.5), text, "mark", "middle") + "</g>")

    def bar(self, place: tuple[float, float, float, float], text: str, kind: str, *, dashed: bool = False) -> None:
        """A bar of a timeline with its text inside; `dashed`: it is uncertain."""
        x, y, width, height = place
        style = f"fill-{kind} edge-{kind}{' dashed' if dashed else ''}"
        self._parts.append(
            f'<g><rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
        )
        self._parts.append(_text((x + width / 2, y + height / 2 + 4.5), text, "small ink-ink", "middle") + "</g>")

    def rule(self, start: Point, end: Point) -> None:
        """A thin dotted line behind all other parts."""
        (x1, y1), (x2, y2) = start, end
        self._behind.append(f'<line class="rule" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def svg(self) -> str:
        """The file's text."""
        size = f'viewBox="0 0 {self._width} {self._height}" width="{self._width}" height="{self._height}"'
        paper = f'<rect class="paper" x=".5" y=".5" width="{self._width - 1}" height="{self._height - 1}" rx="8"/>'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title text">',
            f'<title id="title">{escape(self.title)}</title>',
            f'<desc id="text">{escape(self.text)}</desc>',
            f"<style>\n{_style()}\n</style>",
            paper,
            *self._behind,
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _shape(self, box: Box, kind: str, shape: str) -> str:
        style = f'class="fill-{kind} edge-{kind}"'
        if shape == "store":
            bend, half = 7, box.width / 2
            side = box.height - 2 * bend
            body = f"M{box.x:g},{box.y + bend:g} a{half:g},{bend} 0 0 1 {box.width:g},0 v{side:g}"
            body += f" a{half:g},{bend} 0 0 1 {-box.width:g},0 z"
            lid = f"M{box.x:g},{box.y + bend:g} a{half:g},{bend} 0 0 0 {box.width:g},0"
            return f'<path {style} d="{body}"/><path class="line edge-{kind}" d="{lid}"/>'
        radius = box.height / 2 if shape == "exchange" else 6
        rect = f'<rect {style} x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'
        drawn = f'{rect} rx="{radius:g}"/>'
        if shape == "queue":
            bars = " ".join(f"M{box.right - 8 * each:g},{box.y:g} v{box.height:g}" for each in (1, 2, 3))
            drawn += f'<path class="line edge-{kind}" d="{bars}"/>'
        return drawn


def _text(at: Point, text: str, style: str, anchor: str = "start") -> str:
    x, y = at
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _style() -> str:
    fixed = (
        f"text{{font-family:{_FONT};font-size:14px}}",
        f".code{{font-family:{_MONOSPACE};font-size:12.5px}}",
        ".name{font-weight:600}",
        ".small{font-size:13px}",
        ".mark{font-size:12px;font-weight:700}",
        ".line,.frame,.rule{fill:none}",
        ".frame,.rule{stroke-dasharray:2 4}",
        ".dashed{stroke-dasharray:5 4}",
        "[class*=edge]{stroke-width:1.5}",
    )
    dark = "\n".join(f"  {line}" for line in _colours(DARK))
    return "\n".join([*fixed, *_colours(LIGHT), f"{IN_THE_DARK} {{\n{dark}\n}}"])


def _colours(colours: Mapping[str, str]) -> Sequence[str]:
    rules = [
        f".paper{{fill:{colours['paper']};stroke:{colours['edge']}}}",
        f"text{{fill:{colours['ink']}}}",
        f".mark{{fill:{colours['paper']}}}",
        f".rule{{stroke:{colours['edge']}}}",
        f".ink-muted{{fill:{colours['muted']}}}",
        f".ink-ink{{fill:{colours['ink']}}}",
    ]
    for kind, (inside, edge) in _KINDS.items():
        rules.append(f".fill-{kind}{{fill:{colours[inside]}}}")
        rules.append(f".edge-{kind}{{stroke:{colours[edge]}}}")
        rules.append(f".head-{kind},.ink-{kind}{{fill:{colours[edge]}}}")
    return rules
