"""One `send`, five minutes ahead, with millions waiting, against with none."""

from benchmarks.arena import Arena
from benchmarks.millions import millions
from benchmarks.results import Measurement, Question
from benchmarks.sending import NEAR, compare_sends


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (100, 1) if quick else (200, 45)
    return compare_sends(arena, millions(quick), NEAR, count, rounds_wanted)


QUESTION = Question(
    name="send-near-millions",
    title="one send, five minutes ahead, with 10,000,000 waiting, against with none",
    limit=0.9,
    measure=measure,
)
