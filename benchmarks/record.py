"""Measures the figures of docs/benchmarks.md, and writes each with all its rounds into a JSON file.

Run it on a quiet machine: two hours, 40 GB of disk. `--quick` shows that everything still runs, and writes elsewhere.
"""

import argparse
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.arena import Arena
from benchmarks.conditions import conditions
from benchmarks.figures import FIGURES
from benchmarks.programs import ROOT

MEASURED: Final = ROOT / "benchmarks" / "measured"
QUICKLY: Final = ROOT / "build" / "measured"
_NUMBERS: Final = re.compile(r"\[[-\d.,\s]*\]")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(FIGURES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="little data, one round")
    parser.add_argument("--to", type=Path, help="the folder; default: benchmarks/measured, with --quick build/measured")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(FIGURES):
        parser.error(f"no figure is called {', '.join(sorted(unknown))}; see --help")
    folder = arguments.to or (QUICKLY if arguments.quick else MEASURED)
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or FIGURES:
        began = time.monotonic()
        path = folder / f"{name}.json"
        path.write_text(as_text(record(name, quick=arguments.quick)))
        print(f"{path} after {time.monotonic() - began:.0f} s", flush=True)


def record(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure a figure; its document."""
    with Arena() as arena:
        found = dict(conditions(arena))
        series = FIGURES[name](arena, quick)
    if name == "stalls":
        found |= {
            "fsync": "off",
            "queue": "quorum, three nodes, pause_minority",
            "postgresql standbys": "1, synchronous",
        }
    return {
        "figure": name,
        "source": f"measured by `python -m benchmarks.record {name}{' --quick' if quick else ''}`",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "quick": quick,
        "conditions": found,
        "series": series,
    }


def as_text(document: dict[str, Any]) -> str:
    """As JSON, with each list of numbers in one line."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _NUMBERS.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text) + "\n"


if __name__ == "__main__":
    main()
