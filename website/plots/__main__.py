"""Draw the plots into docs/pictures, or into another folder, from benchmarks/measured or from another folder."""

import argparse
from pathlib import Path

from website.house import HOUSE
from website.plots import MEASURED, write_plots

parser = argparse.ArgumentParser(prog="python -m website.plots", description=__doc__)
parser.add_argument("--from", dest="measured", type=Path, default=MEASURED, help="the folder with the JSON files")
parser.add_argument("--to", dest="folder", type=Path, default=HOUSE / "docs" / "pictures", help="where plots go")
arguments = parser.parse_args()
for path in write_plots(arguments.folder, arguments.measured):
    print(path)
