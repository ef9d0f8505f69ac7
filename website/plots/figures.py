"""The five plots."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from website.colours import LIGHT
from website.plots.measured import Measured

_OURS: Final = "delaystore"
_COLOURS: Final = (LIGHT["blue"], LIGHT["orange"], LIGHT["green"], LIGHT["red"])
_MILLION: Final = 1_000_000
_BODY: Final = 200
"""Bytes of a body, where a plot does not say otherwise."""


def dispatch(axes: Axes, measured: Measured) -> str:
    """Messages a second by the number of waiting messages."""
    axes.set_title("Dispatch rate with 0 to 100 million messages waiting")
    amounts = sorted({point["waiting"] for series in measured.series for point in series["points"]})
    for series, colour in zip(measured.series, _COLOURS, strict=False):
        _dots_and_medians(axes, series, amounts, colour)
    small = {
        point["waiting"] for series in measured.series for point in series["points"] if point["body_bytes"] < _BODY
    }
    labels = [_amount(each) + ("\n(small bodies)" if each in small else "") for each in amounts]
    axes.set_xticks(range(len(amounts)), labels)
    axes.set_xlabel("waiting messages")
    axes.set_ylabel("messages a second")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y")
    axes.legend(loc="lower left")
    return "Messages a second by the number of waiting messages. " + " ".join(
        f"Messages {series['name']}: {_of_points(series, '/s')}." for series in measured.series
    )


def lateness(axes: Axes, measured: Measured) -> str:
    """Share of the messages that have arrived, by lateness."""
    axes.set_title("Lateness of 50,000 messages due within 10 seconds")
    told = []
    for series, colour in zip(measured.series, _COLOURS, strict=False):
        p50, p99, worst = (median(values) for values in zip(*series["rounds"], strict=True))
        told.append(f"{series['name']} {_duration(p50)}, {_duration(p99)} and {_duration(worst)}")
        label = f"{series['name']}: p99 {_duration(p99)}"
        values = [max(each, _EARLIEST) for each in series["sample"]]
        shares = [100 * number / (len(values) - 1) for number in range(len(values))]
        axes.plot(values, shares, color=colour, linewidth=1.8, label=label)
    axes.set_xscale("log")
    axes.set_xlim(right=60_000)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _duration(value)))
    axes.set_ylim(0, 104)
    axes.set_yticks((0, 25, 50, 75, 100))
    axes.set_xlabel("lateness: arrival at the consumer minus due time (log scale)")
    axes.set_ylabel("% of messages arrived")
    axes.grid(which="major")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=2)
    return f"Lateness on a log scale. Median, p99 and maximum: {'; '.join(told)}."


_EARLIEST: Final = 0.1
"""Milliseconds: where the log scale begins."""


def throughput(axes: Axes, measured: Measured) -> str:
    """A row of dots for delaystore and for each peer, by task."""
    axes.set_title("Throughput of delaystore and its peers")
    rows = list(measured.series)
    place, places, before = 0.0, [], None
    for row in rows:
        place += 1.7 if before not in (None, row["task"]) else 1
        places.append(place)
        before = row["task"]
    for at, row in zip(places, rows, strict=True):
        colour = LIGHT["blue"] if row["name"] == _OURS else LIGHT["muted"]
        axes.plot(
            row["rounds"], [at] * len(row["rounds"]), "o", color=colour, markersize=5, alpha=0.55, markeredgewidth=0
        )
        middle = median(row["rounds"])
        axes.plot([middle, middle], [at - 0.34, at + 0.34], color=colour, linewidth=2)
        axes.annotate(
            f"{middle:,.0f}/s", (max(row["rounds"]), at), (8, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    axes.set_yticks(places, [_row(row) for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(LIGHT["blue"] if row["name"] == _OURS else LIGHT["muted"])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(left=500, right=1_500_000)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("messages a second (log scale); a dot is a round, the bar is the median")
    axes.grid(axis="x")
    return "Messages a second, medians. " + " ".join(f"{_row(row)}: {median(row['rounds']):,.0f}/s." for row in rows)


def memory(axes: Axes, measured: Measured) -> str:
    """Megabytes by the number of waiting messages."""
    axes.set_title("Memory of the dispatcher's process")
    amounts = sorted({point["waiting"] for series in measured.series for point in series["points"]})
    for series, colour in zip(measured.series, _COLOURS, strict=False):
        _dots_and_medians(axes, series, amounts, colour)
    axes.axhline(_ALLOWED, color=LIGHT["muted"], linewidth=1, linestyle="--")
    axes.annotate(f"asked: at most {_ALLOWED} MB", (0, _ALLOWED), (0, 4), textcoords="offset points", fontsize=8.5)
    axes.set_xticks(range(len(amounts)), [_amount(each) for each in amounts])
    axes.set_xlim(-0.4, len(amounts) - 0.6)
    axes.set_ylim(0, 1.15 * _ALLOWED)
    axes.set_xlabel("waiting messages")
    axes.set_ylabel("resident memory, MB")
    axes.grid(axis="y")
    axes.legend(loc="lower left")
    return "Resident megabytes by the number of waiting messages. " + " ".join(
        f"{series['name'].capitalize()}: {_of_points(series, ' MB')}." for series in measured.series
    )


_ALLOWED: Final = 150
"""Megabytes."""


_NEAR: Final = 6
"""Seconds: an aim that is nearer to a bar than this would stand in the bar's text."""


def stalls(axes: Axes, measured: Measured) -> str:
    """A bar for each fault, with its aim."""
    axes.set_title("Longest stall of deliveries for each fault")
    rows = list(measured.series)
    values = [max(row["rounds"]) for row in rows]
    places = range(len(rows))
    axes.barh(places, values, height=0.55, color=LIGHT["blue"])
    for place, row, value in zip(places, rows, values, strict=True):
        end = row["aim"] if row["aim"] is not None and 0 <= row["aim"] - value < _NEAR else value
        axes.annotate(f"{value:g} s", (end, place), (6, 0), textcoords="offset points", va="center", fontsize=8.5)
        if row["aim"] is not None:
            axes.plot([row["aim"]] * 2, [place - 0.36, place + 0.36], color=LIGHT["orange"], linewidth=2.5)
    axes.plot([], [], color=LIGHT["orange"], linewidth=2.5, label="aim: at most")
    axes.set_yticks(places, [_broken(row["name"]) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 74)
    axes.set_xlabel("seconds")
    axes.grid(axis="x")
    axes.legend(loc="lower right")
    told = []
    for row, value in zip(rows, values, strict=True):
        aim = "" if row["aim"] is None else f", aim {row['aim']:g} s"
        told.append(f"{row['name']}: {value:g} s{aim}.")
    return "Seconds without a delivery. " + " ".join(told)


def _dots_and_medians(axes: Axes, series: Mapping[str, Any], amounts: Sequence[int], colour: str) -> None:
    """A dot for each round, and a line through the medians."""
    points = series["points"]
    for point in points:
        at = amounts.index(point["waiting"])
        axes.plot(
            [at] * len(point["rounds"]), point["rounds"], "o", color=colour, markersize=5, alpha=0.45, markeredgewidth=0
        )
    axes.plot(
        [amounts.index(point["waiting"]) for point in points],
        [median(point["rounds"]) for point in points],
        color=colour,
        linewidth=1.8,
        marker="o",
        markersize=4,
        label=series["name"],
    )


def _of_points(series: Mapping[str, Any], unit: str) -> str:
    return ", ".join(
        f"{median(point['rounds']):,.0f}{unit} with {_amount(point['waiting'])}" for point in series["points"]
    )


def _amount(count: int) -> str:
    return f"{count / _MILLION:g} million" if count >= _MILLION else f"{count:,}"


def _duration(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.3g} s"
    return f"{milliseconds:.3g} ms"


def _row(row: Mapping[str, Any]) -> str:
    version = f" {row['version']}" if "version" in row else ""
    return f"{row['task']}: {row['name']}{version}"


def _broken(name: str, longest: int = 34) -> str:
    """In two lines, if it is long."""
    if len(name) <= longest:
        return name
    words = name.split()
    best = min(range(1, len(words)), key=lambda at: abs(len(" ".join(words[:at])) - len(name) / 2))
    return f"{' '.join(words[:best])}\n{' '.join(words[best:])}"
