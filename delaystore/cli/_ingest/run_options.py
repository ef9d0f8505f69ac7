"""The options of `delaystore ingest` itself: what it reads, and how. Each is an environment variable as well."""

from typing import Annotated

import typer

from delaystore.cli._options import environment_option, error_queue_option
from delaystore.ingress.settings import OnDuplicate

_GROUP = "ingest"

Exchange = Annotated[
    str | None,
    environment_option(
        "--exchange",
        "The exchange that programs publish to: reads E.ingress, and forwards to E.out by the same routing keys.",
        metavar="E",
        group=_GROUP,
    ),
]
Queue = Annotated[
    str | None,
    environment_option("--queue", "The ingress queue, in place of E.ingress.", metavar="NAME", group=_GROUP),
]
Destination = Annotated[
    str | None,
    environment_option(
        "--destination",
        "Where messages go that do not say it: /exchanges/NAME, by their own routing keys; header, or header:NAME; "
        "or one queue or address. Default: /exchanges/E.out, or header for a queue NAME.Timeouts.",
        metavar="RULE",
        group=_GROUP,
    ),
]
Forms = Annotated[
    str | None,
    environment_option(
        "--forms",
        "How messages say when they are due, the first that fits: x-delay, amqp1, due-time, nservicebus. Default: all "
        "but nservicebus, whose messages name any queue and cancel others; all for a queue NAME.Timeouts.",
        metavar="NAMES",
        group=_GROUP,
    ),
]
AllowedDestinations = Annotated[
    list[str] | None,
    environment_option(
        "--allow-destination",
        "A queue or an address that messages may name, with the wildcards * and ?; may be repeated. Default: all but "
        "delaystore's own queues.",
        metavar="PATTERN",
        group=_GROUP,
    ),
]
CountsFrom = Annotated[
    str,
    environment_option(
        "--count-from",
        "When a delay begins: received by the broker, if it says so; sent, by the property timestamp; taken from the "
        "queue.",
        metavar="WHEN",
        group=_GROUP,
    ),
]
Duplicates = Annotated[
    OnDuplicate,
    environment_option(
        "--on-duplicate",
        "Another message with an id that waits: both are delivered; keep the first; replace it.",
        metavar="both|keep|replace",
        group=_GROUP,
    ),
]
DirectBelow = Annotated[
    str,
    environment_option(
        "--direct-below",
        "What is due within less goes to its destination at once, without the store. Default: nothing does.",
        metavar="DURATION",
        group=_GROUP,
    ),
]
RejectedQueue = Annotated[
    str | None,
    environment_option(
        "--rejected-queue",
        "Where messages go that cannot be stored. Default: QUEUE.rejected.",
        metavar="NAME",
        group=_GROUP,
    ),
]
ErrorQueue = Annotated[
    str,
    error_queue_option("The endpoint's error queue, which messages may not name unless it is allowed in full.", _GROUP),
]
BatchSize = Annotated[
    int, environment_option("--batch-size", "The most messages stored at once.", metavar="NUMBER", group=_GROUP)
]
Prefetch = Annotated[
    int,
    environment_option(
        "--prefetch", "The most messages that the broker gives in advance.", metavar="NUMBER", group=_GROUP
    ),
]
Memory = Annotated[
    int,
    environment_option(
        "--memory-bytes",
        "Nothing is read while bodies of as many bytes are in memory.",
        metavar="NUMBER",
        group=_GROUP,
    ),
]
MostBody = Annotated[
    int,
    environment_option("--max-body-bytes", "A longer body is rejected.", metavar="NUMBER", group=_GROUP),
]
MetricsAddress = Annotated[
    str | None,
    environment_option(
        "--metrics", "Serve metrics to Prometheus there, as at 127.0.0.1:9465.", metavar="HOST:PORT", group=_GROUP
    ),
]
FailFast = Annotated[
    bool, typer.Option("--fail-fast", help="End where store or broker cannot be reached at the start.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on standard error.")]
