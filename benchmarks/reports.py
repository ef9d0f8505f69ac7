"""Answers as text, JSON and Markdown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.results import Measurement, Question


@dataclass(frozen=True)
class Answer:
    """A question and what was measured."""

    question: Question
    measurement: Measurement

    @property
    def met(self) -> bool:
        """Whether the figure is within what was asked."""
        return self.question.met(self.measurement.figure)

    def text(self) -> str:
        """A few lines for people."""
        question, measured = self.question, self.measurement
        lines = [
            f"{question.name}: {question.title}",
            f"  {question.shown(measured.figure)} (asked: {question.asked}{'' if self.met else ', NOT MET'})",
            f"  ours {measured.ours}; peer {measured.peer}",
            *(f"  {note}" for note in measured.notes),
        ]
        return "\n".join(lines)

    def row(self, version: str) -> str:
        """A row of the Markdown table; `version`: of delaystore."""
        question, measured = self.question, self.measurement
        figure = question.shown(measured.figure) + ("" if self.met else " (not met)")
        compared = question.asked, f"**{figure}**", measured.ours, measured.peer
        cells = f"`{question.name}`", question.title, *compared, version
        return f"| {' | '.join(cells)} |"

    def as_dict(self) -> dict[str, object]:
        """The same for JSON, with every round."""
        question, measured = self.question, self.measurement
        return {
            "name": question.name,
            "title": question.title,
            "asked": question.asked,
            "figure": measured.figure,
            "unit": question.unit,
            "met": self.met,
            "ours": measured.ours,
            "peer": measured.peer,
            "numbers": {who: list(numbers) for who, numbers in measured.numbers.items()},
            "notes": list(measured.notes),
        }


def conditions_text(conditions: Mapping[str, str]) -> str:
    """Versions and settings in one line."""
    return ", ".join(f"{name} {value}" for name, value in conditions.items())


def as_json(conditions: Mapping[str, str], answers: Sequence[Answer], *, quick: bool) -> str:
    """One JSON document."""
    document = {"quick": quick, "conditions": dict(conditions), "answers": [answer.as_dict() for answer in answers]}
    return json.dumps(document, indent=2)


def as_markdown(conditions: Mapping[str, str], answers: Sequence[Answer]) -> str:
    """A table with its conditions and notes, as in benchmarks/NOTES.md."""
    notes = [f"- `{answer.question.name}`: {note}" for answer in answers for note in answer.measurement.notes]
    lines = [
        f"Measured with {conditions_text(conditions)}.",
        "",
        "| name | question | asked | measured | delaystore | compared with | version |",
        "|---|---|---|---|---|---|---|",
        *(answer.row(conditions["delaystore"]) for answer in answers),
        "",
        *notes,
    ]
    return "\n".join(lines)
