"""An operation that is killed: URL OPERATION STEPS. It kills its process after so many steps, committed."""

import os
import signal
import sys

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.stores.records import Operation


def main(url: str, operation_id: str, steps: str) -> None:
    left = int(steps)

    def die(operation: Operation) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    delivery = DelayedDelivery("sales", SqlDelayedMessageStore(url))
    sys.stdout.write("running\n")
    sys.stdout.flush()
    delivery.operations.run(operation_id, die)


if __name__ == "__main__":
    main(*sys.argv[1:])
