"""What is asked, and what was measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.arena import Arena


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One answer: the figure that is judged, and the numbers behind it.

    `figure`: a ratio, or megabytes. `ours` and `peer`: the absolute numbers, as text for people.
    `numbers`: every round, for `--json`. `notes`: what else was measured, for scale.
    """

    figure: float
    ours: str
    peer: str
    numbers: Mapping[str, Sequence[float]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is measured, and the floor (or ceiling, where `at_most`) it is held to.

    `measure` gets the servers and whether little data will do.
    """

    name: str
    title: str
    limit: float
    measure: Callable[[Arena, bool], Measurement]
    at_most: bool = False
    unit: str = "x"
    decimals: int = 2

    @property
    def asked(self) -> str:
        """The floor or ceiling, in words."""
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g} {self.unit}"

    def shown(self, figure: float) -> str:
        """`figure` with its unit."""
        return f"{figure:.{self.decimals}f} {self.unit}"

    def met(self, figure: float) -> bool:
        """Whether `figure` is within the limit."""
        return figure <= self.limit if self.at_most else figure >= self.limit


@dataclass
class Rounds:
    """The numbers of several rounds, by who was measured."""

    numbers: dict[str, list[float]] = field(default_factory=dict)

    def add(self, who: str, number: float) -> None:
        """Note a round of `who`."""
        self.numbers.setdefault(who, []).append(number)

    def median(self, who: str) -> float:
        """The median of the rounds of `who`."""
        return median(self.numbers[who])

    def ratio(self, one: str, other: str) -> float:
        """The median of `one` over the median of `other`."""
        return self.median(one) / self.median(other)


def per_second(rate: float) -> str:
    """A rate for people."""
    return f"{rate:,.0f}/s"
