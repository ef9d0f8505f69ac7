"""A process that holds a source and hides its rows, made to be killed: URL, batch size."""

import sys

from delaystore.migrations.abc import RunParameters
from tests.integration.migrating import source_of


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(url: str, batch_size: str) -> None:
    with source_of(url) as source, source.lock("sales", "the killed one"):
        say("locked")
        run = source.run("sales")
        run = run or source.begin(RunParameters(endpoint="sales", target="a test", batch_size=int(batch_size)))
        for _ in source.prepare(run):
            say("batch")
        say("prepared")
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
