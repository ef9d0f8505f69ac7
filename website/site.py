"""The site: pages, and what the builder makes of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from website.house import HOUSE
from website.plain import write_plain_pages
from website.tree import write_pages

CONFIGURATION: Final = HOUSE / "website" / "zensical.toml"


def build(folder: Path) -> int:
    """Write pages and site into `folder`, in place of what was there; the builder's exit code, 0: nothing is wrong."""
    for name in ("docs", "site", ".cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
    pages = write_pages(folder / "docs")
    shutil.copy(CONFIGURATION, folder)
    # the reference is that of the package here, whatever is installed
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOUSE), os.environ.get("PYTHONPATH", "")])}
    command = [Path(sys.executable).parent / "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, env=environment, check=False)
    if done.returncode == 0:
        write_plain_pages(folder / "docs", folder / "site", CONFIGURATION)
        print(f"{pages} pages: open {folder / 'site' / 'index.html'}")
    return done.returncode
