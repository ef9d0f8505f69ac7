"""Builds the site, strictly: a link, an anchor or a name of the reference that leads nowhere is an error.

`python -m website [FOLDER]` writes the pages into FOLDER/docs, and the site into FOLDER/site. FOLDER
is `build` by itself.
"""

import sys
from pathlib import Path

from website.house import HOUSE
from website.site import build

if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if sys.argv[1:] else HOUSE / "build"))
