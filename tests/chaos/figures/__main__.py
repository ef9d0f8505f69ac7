"""Measures how long deliveries stall for each kind of fault, and prints a table for docs/reliability.md."""

import argparse
import logging
import sys
from collections.abc import Sequence

from tests.chaos.figures.experiments import EXPERIMENTS, QUICK, Figure, Scale
from tests.chaos.figures.ground import ground

HEAD = "| fault | measured | aim | not arrived | copies | error queue | remark |\n|---|---|---|---|---|---|---|"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if something was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.figures", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(EXPERIMENTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="shorter faults, fewer messages")
    options = parser.parse_args(arguments)
    if unknown := set(options.faults) - set(EXPERIMENTS):
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    _say(HEAD)
    figures = [_measured(name, QUICK if options.quick else Scale()) for name in options.faults or EXPERIMENTS]
    return 1 if any(figure.lost for figure in figures) else 0


def _measured(name: str, scale: Scale) -> Figure:
    experiment = EXPERIMENTS[name]
    with ground() as found:
        figure = experiment(found, scale)
    fault = (experiment.__doc__ or name).strip().rstrip(".")
    numbers = f"{figure.lost} | {figure.copies} | {figure.errors}"
    _say(f"| {fault} | {figure.seconds:.1f} s | {figure.aim} | {numbers} | {figure.remark} |")
    return figure


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
