"""A process that loads, made to be killed: URL, and which of its statements are its last.

For each number it has a child that loads and kills itself before it sends that statement; then it does the same load
again itself. It says how many died.
"""

import os
import signal
import sys
from typing import Any

from sqlalchemy import Engine, event

from delaystore.bulk.staging import LoadOwner
from tests.integration.loading import load, rows

ROWS = 30


def die_before_statement(number: int) -> None:
    left = number

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)


def main(url: str, first: int, stride: int) -> None:
    died, number = 0, first
    while True:
        load_id = f"load-{number}"
        if not (child := os.fork()):
            die_before_statement(number)
            load(url, load_id, rows(ROWS, load_id), owner=LoadOwner.of(os.getpid()))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL), code
        finished = load(url, load_id, rows(ROWS, load_id), owner=LoadOwner.of(os.getpid()))
        assert finished.stored == ROWS, finished
        if code == 0:
            break
        died += 1
        number += stride
    sys.stdout.write(f"{died}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
