"""Published, confirmed and stored by `delaystore ingress run`, against what an exchange of the plugin accepted."""

from typing import Final

from benchmarks.arena import Arena
from benchmarks.ingress import entrance, intake_rate
from benchmarks.results import Measurement, Question, Rounds, per_second

PLUGIN: Final = 27_000
"""Messages a second that an x-delayed-message exchange accepted on such a machine, persistent and confirmed."""


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (3_000, 1) if quick else (100_000, 5)
    rounds = Rounds()
    with arena.bench() as bench:
        for _ in range(rounds_wanted):
            with entrance(bench) as made:
                rounds.add("delaystore", intake_rate(made, made.ours, count))
                made.ours.clear(bench)
    rate = rounds.median("delaystore")
    return Measurement(
        figure=rate / PLUGIN,
        ours=per_second(rate),
        peer=per_second(PLUGIN),
        numbers=rounds.numbers,
        notes=[
            f"{count:,} messages, from the first publish to the last commit; the plugin's figure was measured before"
        ],
    )


QUESTION = Question(
    name="ingress-plugin",
    title="published, confirmed and stored through an ingress, against the plugin's exchange",
    limit=0.5,
    measure=measure,
)
