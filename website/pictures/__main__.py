"""Write the diagrams into docs/pictures, or into the folder that is named."""

import sys
from pathlib import Path

from website.house import HOUSE
from website.pictures import write_pictures

for path in write_pictures(Path(sys.argv[1]) if sys.argv[1:] else HOUSE / "docs" / "pictures"):
    print(path)
