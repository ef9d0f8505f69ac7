"""How long and how large the campaigns are, read before the tests' clean environment hides it."""

import os
from typing import Final

MINUTES: Final = float(os.environ.get("DELAYSTORE_SOAK_MINUTES", "60"))
"""How long traffic goes on."""
CURVE: Final = [round(float(each) * 1e6) for each in os.environ.get("DELAYSTORE_SOAK_CURVE", "1,3,10,30").split(",")]
"""How many wait, each in its turn; given in millions."""
MOST: Final = round(float(os.environ.get("DELAYSTORE_SOAK_MOST", "100")) * 1e6)
"""How many small messages wait; given in millions."""
