"""A process that holds a source and hides its rows, made to be killed: URL, batch size, and how often it is to die.

With a number, it has so many children one after the other, each of which kills itself one statement later than the
one before; none where the number is 0.
"""

import os
import signal
import sys
from typing import Any

from sqlalchemy import Engine, event

from delaystore.migrations.abc import RunParameters
from tests.integration.migrating import source_of


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def hide(url: str, batch_size: int, statements: int = 0) -> None:
    """Hide all rows, or die before so many statements are sent."""
    with source_of(url) as source, source.lock("sales", "the killed one"):
        say("locked")
        run = source.run("sales")
        run = run or source.begin(RunParameters(endpoint="sales", target="a test", batch_size=batch_size))
        if statements:
            die_before_statement(statements)
        for _ in source.prepare(run):
            say("batch")
        say("prepared")
        sys.stdin.readline()


def die_before_statement(number: int) -> None:
    left = number

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)


def main(url: str, batch_size: str, deaths: str) -> None:
    for number in range(int(deaths)):
        if not (child := os.fork()):
            hide(url, int(batch_size), number + 1)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if deaths == "0":
        hide(url, int(batch_size))
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
