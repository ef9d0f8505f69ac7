"""The plots of docs/benchmarks.md. `python -m website.plots` draws them from the files of benchmarks/measured."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from website.house import HOUSE
from website.plots import axes
from website.plots.figures import dispatch, lateness, memory, stalls, throughput
from website.plots.measured import Measured, read

MEASURED: Final = HOUSE / "benchmarks" / "measured"
PLOTS: Final[Mapping[str, Callable[[Any, Measured], str]]] = {
    "dispatch": dispatch,
    "lateness": lateness,
    "throughput": throughput,
    "memory": memory,
    "stalls": stalls,
}
"""By the name of the figure. Each draws on axes, and returns a description for readers who do not see it."""


def write_plots(folder: Path, measured: Path = MEASURED) -> list[Path]:
    """Draw a plot for each file of `measured`.

    Args:
        folder: Where the plots are written, as `plot-NAME.svg`.
        measured: The folder with the JSON files.

    Returns:
        The plots.

    """
    paths = []
    for name, draw in PLOTS.items():
        source = measured / f"{name}.json"
        if source.exists():
            paths.append(folder / f"plot-{name}.svg")
            paths[-1].write_text(axes.svg(draw, read(source)))
    return paths
