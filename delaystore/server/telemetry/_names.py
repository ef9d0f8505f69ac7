"""Names of metrics and attributes: the messaging conventions' own where they have one, and `delaystore.*` else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

SCOPE: Final = "delaystore"
"""The instrumentation scope of meters and tracers."""
SYSTEM: Final = "delaystore"
"""The value of `messaging.system`: of the store that `send` sends to, and of the transport that forwards."""
SEND: Final = "send"
FORWARD: Final = "forward"
"""Values of `messaging.operation.name`."""

MESSAGING_SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION_NAME: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_MESSAGE_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

ENDPOINT: Final = "delaystore.endpoint"
OUTCOME: Final = "delaystore.outcome"
PHASE: Final = "delaystore.pass.phase"
BREAKER: Final = "delaystore.breaker.name"
INGRESS_QUEUE: Final = "delaystore.ingress.queue"
RESULT: Final = "delaystore.ingress.result"
DUE_TIME: Final = "delaystore.due_time"
FAILURE_COUNT: Final = "delaystore.failure_count"

OTHER: Final = "other"
"""Stands for every destination beyond the limit."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as it is created, and as docs/reference/metrics.md describes it.

    An observable counter is counted elsewhere, and read. `bounds`: of a histogram's buckets.
    """

    name: str
    kind: Literal["counter", "histogram", "gauge", "observable counter"]
    unit: str
    description: str
    bounds: Sequence[float] = ()


_DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_CONVENTIONAL: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_LATENESS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0),
)
_AMOUNTS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)

MESSAGES: Final = Metric(
    "delaystore.messages", "counter", "{message}", "Messages that dispatch passes handled, by outcome."
)
LATENESS: Final = Metric(
    "delaystore.lateness", "histogram", "s", "Time from the due time to the broker's confirm.", _LATENESS
)
PASS_DURATION: Final = Metric(
    "delaystore.pass.duration",
    "histogram",
    "s",
    "Duration of each phase of a pass that found due messages or failed.",
    _DURATIONS,
)
PASS_MESSAGES: Final = Metric(
    "delaystore.pass.messages", "histogram", "{message}", "Messages that a pass claimed, if any.", _AMOUNTS
)
PASSES_UNDONE: Final = Metric("delaystore.passes.undone", "counter", "{pass}", "Passes that were undone, by error.")
SENT_MESSAGES: Final = Metric(
    "messaging.client.sent.messages",
    "counter",
    "{message}",
    "Number of messages producer attempted to send to the broker.",
)
OPERATION_DURATION: Final = Metric(
    "messaging.client.operation.duration",
    "histogram",
    "s",
    "Duration of messaging operation initiated by a producer or consumer client.",
    _CONVENTIONAL,
)
BREAKER_STATE: Final = Metric(
    "delaystore.breaker.state", "gauge", "1", "0: disarmed, 1: armed, 2: triggered; of this process."
)
STORE_AVAILABLE: Final = Metric("delaystore.store.available", "gauge", "1", "Whether the store answers: 1, or 0.")
BACKLOG: Final = Metric("delaystore.backlog", "gauge", "{message}", "Waiting messages; estimated above 100,000.")
OLDEST_OVERDUE: Final = Metric("delaystore.oldest_overdue", "gauge", "s", "Age of the oldest overdue message; 0: none.")
FAILING: Final = Metric(
    "delaystore.failing", "gauge", "{message}", "Waiting messages that have failed before; counted up to 10,000."
)
PARKED: Final = Metric(
    "delaystore.parked",
    "gauge",
    "{message}",
    "Due messages of paused destinations; counted up to 10,000.",
)
PAUSED: Final = Metric("delaystore.paused", "gauge", "{destination}", "Paused destinations.")
ERROR_QUEUE_DEPTH: Final = Metric("delaystore.error_queue.depth", "gauge", "{message}", "Messages in the error queue.")
DISPATCHERS: Final = Metric("delaystore.dispatchers", "gauge", "{dispatcher}", "Live dispatchers.")
HISTORY_ENTRIES: Final = Metric(
    "delaystore.history.entries", "gauge", "{entry}", "Entries of the history, about as many as the database knows of."
)
HISTORY_SIZE: Final = Metric(
    "delaystore.history.size", "gauge", "By", "Size of the history with its indexes; not on SQLite."
)
HISTORY_KEPT: Final = Metric(
    "delaystore.history.kept", "gauge", "s", "Time for which the history keeps entries; 0: not at all."
)

INGRESS_MESSAGES: Final = Metric(
    "delaystore.ingress.messages", "observable counter", "{message}", "Messages that an ingress took, by result."
)
INGRESS_CONSUMING: Final = Metric(
    "delaystore.ingress.consuming", "gauge", "1", "Whether an ingress of this process consumes its queue: 1, or 0."
)
INGRESS_UNACKNOWLEDGED: Final = Metric(
    "delaystore.ingress.unacknowledged",
    "gauge",
    "{message}",
    "Messages of the ingress queue that stay unacknowledged and are retried.",
)

METRICS: Final[Sequence[Metric]] = (
    MESSAGES,
    LATENESS,
    PASS_DURATION,
    PASS_MESSAGES,
    PASSES_UNDONE,
    SENT_MESSAGES,
    OPERATION_DURATION,
    BREAKER_STATE,
    STORE_AVAILABLE,
    BACKLOG,
    OLDEST_OVERDUE,
    FAILING,
    PARKED,
    PAUSED,
    ERROR_QUEUE_DEPTH,
    DISPATCHERS,
    HISTORY_ENTRIES,
    HISTORY_SIZE,
    HISTORY_KEPT,
    INGRESS_MESSAGES,
    INGRESS_CONSUMING,
    INGRESS_UNACKNOWLEDGED,
)
