"""Axes in our colours, and matplotlib's SVG made light and dark."""

import io
import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from website.colours import DARK, IN_THE_DARK, LIGHT
from website.plots.measured import Measured

_WIDTH, _HEIGHT = 8.2, 4.1
"""Inches, of 72 units of the picture each."""
_SCALE: Final = 1.5
"""Pixels for a unit, where the page has room."""
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # text stays text: small, and it can be selected
    "svg.hashsalt": "delaystore",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": LIGHT["edge"],
    "axes.facecolor": LIGHT["paper"],
    "axes.labelcolor": LIGHT["muted"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": LIGHT["ink"],
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 10,
    "axes.axisbelow": True,
    "grid.color": LIGHT["edge"],
    "grid.linewidth": 0.6,
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "figure.facecolor": LIGHT["paper"],
    "legend.frameon": False,
}
DRAWN_BY: Final = f"matplotlib {mpl.__version__}"
"""Another release may draw the same plot in other words."""
_FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
_HEAD: Final = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA: Final = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_ROOT: Final = re.compile(r"<svg[^>]*>")


def svg(draw: Callable[[Any, Measured], str], measured: Measured) -> str:
    """Draw on new axes.

    Args:
        draw: Draws the numbers, sets the title, and returns a description.
        measured: The numbers.

    Returns:
        The file's text.

    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout=ConstrainedLayoutEngine(rect=(0.01, 0.05, 0.98, 0.93)))
        axes = figure.add_subplot()
        text = draw(axes, measured)
        figure.text(0.01, 0.01, measured.caption, fontsize=8, color=LIGHT["muted"])
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        return _adapted(drawn.getvalue(), axes.get_title(loc="left"), f"{text} Measured with {measured.caption}.")


def _adapted(drawn: str, title: str, text: str) -> str:
    """Matplotlib's file with a title, a description, and colours for both schemes."""
    width, height = _WIDTH * 72, _HEIGHT * 72
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width:g} {height:g}" width="{width * _SCALE:.0f}" height="{height * _SCALE:.0f}" role="img" '
        f'aria-labelledby="title text">\n<!-- {DRAWN_BY} -->\n<title id="title">{escape(title)}</title>\n'
        f'<desc id="text">{escape(text)}</desc>\n<style>\n{_dark()}\n</style>'
    )
    drawn = _METADATA.sub("", _HEAD.sub("", drawn))
    drawn = drawn.replace("'DejaVu Sans', sans-serif", _FONT.replace('"', "'")).replace(
        "'DejaVu Sans'", _FONT.replace('"', "'")
    )
    lines = (line.rstrip() for line in _ROOT.sub(lambda _: head, drawn, count=1).splitlines())
    return "\n".join(lines) + "\n"


def _dark() -> str:
    return "\n".join([f"text{{fill:{LIGHT['ink']}}}", f"{IN_THE_DARK} {{", *_replacements(), "}"])


def _replacements() -> Iterator[str]:
    """Rules for elements whose own style has a light colour: the style's words find them."""
    yield f"  text{{fill:{DARK['ink']}}}"
    for name, light in LIGHT.items():
        for what in ("fill", "stroke"):
            yield f'  [style*="{what}: {light}"]{{{what}:{DARK[name]}!important}}'
