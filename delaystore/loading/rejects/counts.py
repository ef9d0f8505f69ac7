"""Rejected rows, counted by reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion.encodings import Plain

MAX_EXAMPLES: Final = 3
"""Rows shown for each reason."""
_SHOWN: Final = 60
"""Characters of each value in an example."""
LENIENT: Final = Plain(lenient=True)
"""How rejected rows are written."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why rows were rejected: how many, and some of them as JSON, shortened."""

    count: int
    examples: tuple[str, ...] = ()

    def __add__(self, other: "Reason") -> "Reason":
        return Reason(self.count + other.count, (self.examples + other.examples)[:MAX_EXAMPLES])


@dataclass(frozen=True, slots=True)
class Rejects:
    """Rejected rows by the reason's text (such as "due_time is null"). Travels from the tasks to the driver."""

    reasons: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows."""
        return sum(reason.count for reason in self.reasons.values())

    def __add__(self, other: "Rejects") -> "Rejects":
        reasons = dict(self.reasons)
        for text, reason in other.reasons.items():
            reasons[text] = reasons.get(text, Reason(0)) + reason
        return Rejects(reasons)

    def __str__(self) -> str:
        """One line: "3 rows cannot be messages: 2 x due_time is null (such as {...}); 1 x ..."."""
        ordered = sorted(self.reasons.items(), key=lambda item: (-item[1].count, item[0]))
        texts = [f"{reason.count} x {text}{_such_as(reason.examples)}" for text, reason in ordered]
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        return f"{rows} cannot be messages: {'; '.join(texts)}"


def count_rejects(rejected: pa.RecordBatch | None) -> Rejects:
    """Count rejected rows, whose last column is the reason. None: there are none."""
    if rejected is None:
        return Rejects()
    reasons = rejected.column(rejected.num_columns - 1)
    found = {}
    for entry in pc.value_counts(reasons).to_pylist():
        of_reason = pc.indices_nonzero(pc.equal(reasons, entry["values"])).slice(0, MAX_EXAMPLES)
        found[entry["values"]] = Reason(entry["counts"], _examples(rejected.take(of_reason)))
    return Rejects(found)


def _such_as(examples: tuple[str, ...]) -> str:
    return f" (such as {examples[0]})" if examples else ""


def _examples(rows: pa.RecordBatch) -> tuple[str, ...]:
    """JSON objects of the original columns, with long values cut."""
    names = rows.schema.names[:-1]
    columns = [LENIENT.texts(rows.column(index))[0].to_pylist() for index in range(len(names))]
    return tuple(example(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def example(columns: Iterable[tuple[str, str | None]]) -> str:
    """A row as a JSON object with long values cut, of its columns' names and the JSON of their values."""
    return "{" + ",".join(f"{LENIENT.quoted(name)}:{_cut(text)}" for name, text in columns) + "}"


def _cut(text: str | None) -> str:
    if text is None:
        return "null"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
