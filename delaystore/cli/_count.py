"""`delaystore count`: how many messages wait."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from delaystore import documents
from delaystore.cli._options import Destination, Endpoint, Json, Schema, StoreUrl, Table, environment_option
from delaystore.cli._output import about, print_document, print_table, tell
from delaystore.stores.abc import Count


class Bucket(StrEnum):
    """What `count --by` counts by."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """The bucket's length."""
        return timedelta(**{f"{self.value}s": 1})


def count(
    by: Annotated[Bucket | None, typer.Option(help="Count by when they are due.")] = None,
    destination: Destination = None,
    exact: Annotated[bool, environment_option("--exact", "Count, however long it takes.", group="count")] = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Count the waiting messages. Over 100,000 are estimated, unless --exact, --by or --destination is given.

    Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        buckets = None if by is None else opened.delivery.count_by_due_time(by.length, destination=destination)
        if buckets is not None:
            total = Count(sum(buckets.values()), exact=True)
        elif exact or destination is not None:
            total = Count(opened.delivery.count(destination=destination), exact=True)
        else:
            total = opened.delivery.estimate_count()
    if as_json:
        document: dict[str, Any] = {"count": total.messages, "exact": total.exact}
        if buckets is not None:
            document["buckets"] = [{"start": documents.instant(start), "count": n} for start, n in buckets.items()]
        print_document(document)
    elif buckets is None:
        tell(str(total.messages) if total.exact else about(total, "--exact counts"))
    else:
        highest = max(buckets.values(), default=1)
        rows = [(f"{start:%Y-%m-%d %H:%M}Z", str(n), "█" * max(1, 40 * n // highest)) for start, n in buckets.items()]
        print_table((f"due ({by})", "messages", ""), rows, right=("messages",), unbroken=(f"due ({by})", "messages"))
