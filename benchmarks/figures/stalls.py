"""How long deliveries stall for each kind of fault, on a cluster with a standby."""

import logging
import re

from benchmarks.arena import Arena
from benchmarks.figures.series import Series
from tests.chaos.figures.experiments import EXPERIMENTS, QUICK, Scale
from tests.chaos.figures.ground import ground


def measure(_arena: Arena, quick: bool) -> Series:
    """Seconds, one round of each fault, with its aim and the number of lost messages."""
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    faults = ("kill-node",) if quick else tuple(EXPERIMENTS)
    found = []
    for name in faults:
        experiment = EXPERIMENTS[name]
        with ground() as made:
            figure = experiment(made, QUICK if quick else Scale())
        aim = re.search(r"under (\d+) s", figure.aim)
        found.append(
            {
                "name": (experiment.__doc__ or name).strip().rstrip("."),
                "rounds": [round(figure.seconds, 2)],
                "aim": float(aim[1]) if aim else None,
                "lost": figure.lost,
                "remark": figure.remark,
            }
        )
    return found
