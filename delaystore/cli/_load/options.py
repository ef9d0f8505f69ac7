"""The options of `delaystore load`. Each is an environment variable as well, as DELAYSTORE_LOAD_MASTER.

`delaystore send --file` shares those of rows.
"""

from typing import Annotated, Any

import typer

from delaystore.cli._options import environment_option
from delaystore.keys import OnKey
from delaystore.loading.options import AmbiguousTime, OnDuplicate, UnknownColumns

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILES...",
        help="Parquet, CSV (with a header row) or JSON lines: files, folders, globs, or URIs that Spark knows.",
    ),
]


def map_option(group: str) -> Any:
    """--map, of the command `group`."""
    return environment_option(
        "--map",
        "Which of the files' columns is message_id, destination, due_time, delay, body, body_base64, headers or "
        "properties; repeatable.",
        metavar="NAME=COLUMN",
        group=group,
    )


def format_option(group: str) -> Any:
    """--format, of the command `group`."""
    return environment_option("--format", "csv, json or parquet, whatever the names say.", metavar="KIND", group=group)


Map = Annotated[list[str] | None, map_option("load")]
Queue = Annotated[str | None, typer.Option("--destination", metavar="QUEUE", help="For rows that say none.")]
LoadId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The load's name; run again under the same name, it loads nothing twice."),
]
KeyColumns = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Without message_id: the columns that ids are made of, with --load-id."),
]
KeyColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of keys: at most one message with each waits; see --on-key."),
]
OnKeys = Annotated[
    OnKey | None, typer.Option(help="Where one with the key waits: what becomes of the new one. Default: reject.")
]
MaxWait = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="With --on-key debounce: due no later than this after the first."),
]
Duplicates = Annotated[
    OnDuplicate, typer.Option(help="A message_id that waits already: load nothing, keep what waits, or replace it.")
]
Unknown = Annotated[
    UnknownColumns, typer.Option(help="Columns that are no message's: refuse, or make headers or the body of them.")
]
Ambiguous = Annotated[
    AmbiguousTime, typer.Option(help="A local time that comes twice when clocks change: reject its row, or choose.")
]
TimeZone = Annotated[str | None, typer.Option(metavar="NAME", help="Of times that have none, such as Europe/Berlin.")]
Rejects = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="A folder for rows that cannot be messages; the others are loaded. Without it one such row stops all.",
    ),
]
Format = Annotated[str | None, format_option("load")]
Master = Annotated[str | None, typer.Option(metavar="URL", help="Spark's master. Default: local[*].")]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark's, such as spark.driver.memory=4g; repeatable."
    ),
]
SparkLog = Annotated[str | None, typer.Option(metavar="FILE", help="Where to keep what Spark itself logs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Convert and check everything, and write nothing.")]
Cleanup = Annotated[
    bool, typer.Option("--cleanup", help="Only remove what loads that died have left behind, and say what.")
]
