"""A store of your own: five methods and `initialize`. This one keeps each message in a file.

Run it with `python examples/custom_store.py`. To open it by URL everywhere, on the command line too, register a
function of the URL as an entry point in the group `delaystore.stores`.
"""

import pickle
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from delaystore import DelayedDelivery, DelayedMessage, DelayedMessageStore, TransactionMode
from delaystore.errors import DuplicateMessageError, UnsupportedModeError
from delaystore.message import marked
from delaystore.transports import InMemoryTransport

LEASE = timedelta(seconds=60)


class DirectoryStore(DelayedMessageStore):
    """Messages as files of one directory, for one process at a time; a claim shows the message again after a minute."""

    def __init__(self, directory: Path) -> None:
        self._root = self._directory = directory
        self._lock = threading.Lock()

    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """Use the endpoint's own directory; may be called again."""
        if mode is TransactionMode.TRANSACTION_SCOPE:
            raise UnsupportedModeError("files know no transactions; use another transaction_mode")
        self._directory = self._root / endpoint
        self._directory.mkdir(parents=True, exist_ok=True)

    def store(self, message: DelayedMessage) -> None:
        """Write the file; one that is there is marked, so that its message is forwarded after this."""
        with self._lock:
            path = self._path(message)
            if path.exists():
                waiting: DelayedMessage = pickle.loads(path.read_bytes())
                self._write(replace(waiting, due_time=marked(waiting.due_time)))
                raise DuplicateMessageError([message.message_id])
            self._write(message)

    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        """Find the oldest, and hide it for the length of the lease."""
        with self._lock:
            due = [message for message in self._all() if message.next_attempt <= at]
            if not due:
                return None
            oldest = min(due, key=lambda message: message.next_attempt)
            self._write(replace(oldest, next_attempt=self.now() + LEASE))
            return oldest

    def remove(self, message: DelayedMessage) -> bool:
        """Delete the file."""
        with self._lock:
            existed = self._path(message).exists()
            self._path(message).unlink(missing_ok=True)
            return existed

    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        """Rewrite the file."""
        with self._lock:
            if not self._path(message).exists():
                return False
            shown = next_attempt or message.due_time
            self._write(replace(message, failure_count=message.failure_count + 1, next_attempt=shown))
            return True

    def next(self) -> datetime | None:
        """Look at every file."""
        with self._lock:
            return min((message.next_attempt for message in self._all()), default=None)

    def _path(self, message: DelayedMessage) -> Path:
        return self._directory / sha256(message.message_id.encode()).hexdigest()

    def _all(self) -> Iterator[DelayedMessage]:
        for path in self._directory.iterdir():
            if path.suffix != ".new":
                yield pickle.loads(path.read_bytes())

    def _write(self, message: DelayedMessage) -> None:
        """Whole or not at all, should the process die meanwhile."""
        path = self._path(message)
        new = path.with_suffix(".new")
        new.write_bytes(
            pickle.dumps(replace(message, headers=dict(message.headers), properties=dict(message.properties)))
        )
        new.replace(path)


def main() -> None:
    """Let a message wait in a file."""
    transport = InMemoryTransport()
    transport.declare("billing")
    with tempfile.TemporaryDirectory() as directory:
        with DelayedDelivery("sales", DirectoryStore(Path(directory)), transport) as delivery:
            delivery.send("billing", b"hello", delay=0.3)
            print("files:", len(list(Path(directory).glob("sales/*"))))
            with transport.receive("billing", timeout=30) as (message,):
                print("received:", message.body.decode())
        print("files:", len(list(Path(directory).glob("sales/*"))))


if __name__ == "__main__":
    main()
