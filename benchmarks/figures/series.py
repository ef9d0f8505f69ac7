"""The numbers of a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

Series = Sequence[Mapping[str, Any]]
"""An object for each line, row or bar of the figure: its name, the number of each round, and what else it has."""
