"""Asks all questions, or the named ones. Fails on errors only, never on a figure."""

import argparse
import sys
import time
from typing import TextIO

from benchmarks.arena import Arena
from benchmarks.conditions import conditions
from benchmarks.questions import QUESTIONS
from benchmarks.reports import Answer, as_json, as_markdown, conditions_text


def main() -> None:
    parser = _parser()
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {each.name for each in QUESTIONS}
    if unknown:
        parser.error(f"no question is called {', '.join(sorted(unknown))}; see --help")
    chosen = [each for each in QUESTIONS if not arguments.names or each.name in arguments.names]
    # A document alone on standard output; what is going on goes to standard error then.
    progress = sys.stderr if arguments.json or arguments.markdown else sys.stdout
    answers: list[Answer] = []
    with Arena() as arena:
        found = conditions(arena)
        _say(progress, conditions_text(found))
        for question in chosen:
            began = time.monotonic()
            answer = Answer(question, question.measure(arena, arguments.quick))
            answers.append(answer)
            _say(progress, f"\n{answer.text()}\n  took {time.monotonic() - began:.0f} s")
    if arguments.json:
        print(as_json(found, answers, quick=arguments.quick))
    if arguments.markdown:
        print(as_markdown(found, answers))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join(each.name for each in QUESTIONS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {names}; default: all")
    parser.add_argument("--quick", action="store_true", help="little data, one round: shows that all still runs")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document with every round")
    form.add_argument("--markdown", action="store_true", help="the table of benchmarks/NOTES.md")
    return parser


def _say(stream: TextIO, text: str) -> None:
    print(text, file=stream, flush=True)


if __name__ == "__main__":
    main()
