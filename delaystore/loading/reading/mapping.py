"""Which column of a file is which of a message's."""

from collections.abc import Mapping, Sequence

from delaystore.errors import ConfigurationError


def renamed(columns: Sequence[str], mapping: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each column to be read, and its name from then on; letters' case does not matter.

    `mapping`: the file's column of a message's column. A column that is mapped to no field stays as it is, unless a
    mapped one takes its name. Raises ConfigurationError for no columns at all, and for a mapped one that is not there.
    """
    if not columns:
        raise ConfigurationError("the files have no rows")
    present = {column.lower(): column for column in columns}
    for field, column in mapping.items():
        if column.lower() not in present:
            raise ConfigurationError(
                f"{field} cannot be read: the files have no column {column!r}; they have {', '.join(columns)}"
            )
    chosen = [(present[column.lower()], field) for field, column in mapping.items()]
    used = {column for column, _ in chosen}
    return chosen + [(name, name) for name in columns if name not in used and name.lower() not in mapping]
