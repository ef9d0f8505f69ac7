"""When rows get a shelf."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShelfLimits:
    """When rows that are stored at once get a shelf."""

    fewest_rows: int = 20_000
    """With few shelves. With each sixth of `most_shelves` it takes twice as many, so that places are left for more."""
    smallest_table: int = 256 * 2**20
    """Bytes; into a smaller table rows are inserted as fast."""
    most_shelves: int = 24
    """Each costs every search a look."""
    patience: float = 2.0
    """Seconds to wait for other transactions; then the rows are inserted, as without a shelf."""
