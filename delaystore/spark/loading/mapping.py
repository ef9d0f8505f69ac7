"""Which of the files' columns is which of a message's."""

from collections.abc import Mapping, Sequence

from delaystore.errors import ConfigurationError
from delaystore.spark.conversion.columns import MESSAGE_COLUMNS


def parse_mapping(pairs: Sequence[str]) -> dict[str, str]:
    """From texts such as `due_time=send_at` to the file's column of each message column.

    Raises ConfigurationError for what is no such text, names no column of a message, or one twice.
    """
    mapping: dict[str, str] = {}
    for pair in pairs:
        name, mark, column = (part.strip() for part in pair.partition("="))
        if not mark or not column:
            raise ConfigurationError(f"--map {pair!r} is not of the form due_time=COLUMN")
        if name.lower() not in MESSAGE_COLUMNS:
            raise ConfigurationError(f"--map {pair!r}: a message has no {name!r}; it has {', '.join(MESSAGE_COLUMNS)}")
        if name.lower() in mapping:
            raise ConfigurationError(f"--map gives {name.lower()} twice")
        mapping[name.lower()] = column
    return mapping


def renamed(columns: Sequence[str], mapping: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each column to be read, and its name from then on; letters' case does not matter.

    A column that is mapped to no field stays as it is, unless a mapped one takes its name.
    Raises ConfigurationError for a mapped column that is not there.
    """
    present = {column.lower(): column for column in columns}
    for field, column in mapping.items():
        if column.lower() not in present:
            raise ConfigurationError(
                f"--map {field}={column}: the files have no column {column!r}; they have {', '.join(columns)}"
            )
    chosen = [(present[column.lower()], field) for field, column in mapping.items()]
    used = {column for column, _ in chosen}
    return chosen + [(name, name) for name in columns if name not in used and name.lower() not in mapping]


def check_columns(
    columns: Sequence[str], *, destination: str | None, load_id: str | None, key_columns: Sequence[str]
) -> None:
    """ConfigurationError where the columns, by their new names, cannot make messages."""
    present = {column.lower() for column in columns}
    have = f"the columns are {', '.join(columns)}"
    if "due_time" not in present and "delay" not in present:
        raise ConfigurationError(f"no column says when messages are due; pass --map due_time=COLUMN ({have})")
    if "destination" not in present and destination is None:
        raise ConfigurationError(
            f"no column says where messages go; pass --destination, or --map destination=COLUMN ({have})"
        )
    if "message_id" in present:
        return
    if not key_columns:
        raise ConfigurationError(
            f"no column has ids; pass --map message_id=COLUMN, or --key-columns to derive them ({have})"
        )
    if load_id is None:
        raise ConfigurationError("ids are derived from the load's id and --key-columns; pass --load-id as well")
