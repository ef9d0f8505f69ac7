"""Throughput of delaystore and of its peers, every round of some questions."""

from typing import Final

from benchmarks.arena import Arena
from benchmarks.figures.series import Series
from benchmarks.questions import dispatch_bare, dispatch_msmq, ingress_bare, send, store_many
from benchmarks.results import Question

PAIRS: Final[tuple[tuple[str, Question, dict[str, str]], ...]] = (
    ("dispatch", dispatch_msmq.QUESTION, {"MSMQ algorithm": "MSMQ algorithm"}),
    ("dispatch", dispatch_bare.QUESTION, {"delaystore": "delaystore", "bare loop": "bare loop"}),
    ("send", send.QUESTION, {"send": "delaystore", "insert and commit": "bare insert"}),
    (
        "store_many",
        store_many.QUESTION,
        {"store_many": "delaystore", "binary COPY": "bare binary COPY", "text COPY": "bare text COPY"},
    ),
    ("ingress", ingress_bare.QUESTION, {"delaystore": "delaystore", "bare loop": "bare ingress loop"}),
)
"""The task, the question that measures it, and which of its numbers are shown by which name."""


def measure(arena: Arena, quick: bool) -> Series:
    """Messages a second of each round."""
    found = []
    for task, question, names in PAIRS:
        numbers = question.measure(arena, quick).numbers
        found += [
            {"task": task, "name": shown, "rounds": [round(rate) for rate in numbers[who]]}
            for who, shown in names.items()
        ]
    return found
