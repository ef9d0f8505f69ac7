"""What `--help` of a command ends with: calls that work as they are, given a store, a transport and an endpoint.

Those about an ingress: given a broker and its management API.
"""

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "send": (
        "send billing 'pay me' --delay 3d --header kind=reminder",
        "send billing 'pay me' --at 2027-01-31T09:00:00+01:00 --message-id invoice-7",
    ),
    "serve": (
        "serve --config delaystore.toml --check",
        "serve --check --web 127.0.0.1:8080 --metrics 127.0.0.1:9464",
        "serve --print-config",
    ),
    "list": ("list --destination billing --until 2027-02-01T00:00:00Z", "list --failing"),
    "count": ("count --by hour",),
    "cancel": ("cancel invoice-7", "cancel --header campaign=spring --dry-run"),
    "reschedule": ("reschedule invoice-7 --delay 2h30m", "reschedule --destination billing --failing --delay 0"),
    "export": ("export spring.jsonl --header campaign=spring",),
    "pause": ("pause billing --for 2h",),
    "limit": ("limit billing --max-rate 200/s", "limit billing --max-rate none"),
    "health": ("health --max-overdue 10m --require-dispatcher",),
    "errors list": ("errors list", "errors list --messages --destination billing"),
    "errors replay": ("errors replay --destination bilng --to billing --dry-run", "errors replay --kind Unroutable"),
    "ingest create": (
        "ingest create orders --type topic",
        "ingest create reminders --definitions before.json --dry-run",
    ),
    "ingest verify": ("ingest verify orders",),
    "ingest status": ("ingest status orders",),
    "ingest retry": (
        "ingest retry orders.ingress.rejected --dry-run",
        "ingest retry orders.ingress.rejected invoice-7",
    ),
    "ingest delete": ("ingest delete orders --dry-run",),
    "errors discard": ("errors discard --destination bilng --until 2027-01-01T00:00:00Z",),
}


def epilog(command: str) -> str | None:
    """The examples of a command as the end of its help; None: it has none."""
    if command not in EXAMPLES:
        return None
    lines = [f"  delaystore {example}" for example in EXAMPLES[command]]
    return "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *lines])
