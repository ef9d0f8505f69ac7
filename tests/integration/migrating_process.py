"""A process that holds a source and hides its rows, made to be killed: URL, batch size, and how often it is to die.

With a number, it has so many children one after the other, each of which kills itself one statement later than the
one before; none where the number is 0. With `abort` and a SQLite file, each child aborts the run in a copy of its own,
FILE.1 and so on, and kills itself in the same way, until one comes to the end.
"""

import os
import signal
import sys
from itertools import count
from shutil import copyfile
from typing import Any

from sqlalchemy import Engine, event

from delaystore.migrations.abc import RunParameters
from delaystore.migrations.runner import abort
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


def abort_in(file: str, statements: int) -> None:
    """Abort the run in the SQLite file, or die before so many statements are sent."""
    with source_of(f"sqlite:///{file}") as source:
        die_before_statement(statements)
        abort(source, "sales")


def abort_copies(file: str) -> None:
    for number in count(1):
        copy = copyfile(file, f"{file}.{number}")
        if not (child := os.fork()):
            abort_in(copy, number)
            os._exit(0)
        if not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            break


def die_before_statement(number: int) -> None:
    left = number

    def count_down(*_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count_down)
    event.listen(Engine, "commit", count_down)


def main(url: str, batch_size: str, deaths: str = "0") -> None:
    if url == "abort":
        abort_copies(batch_size)
        return
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
