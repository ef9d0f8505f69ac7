"""Processes that send, change and dispatch messages with keys are killed; what they wrote down is compared."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql import SqlDelayedMessageStore
from tests.faults.backlog import open_store
from tests.faults.keys_program import BOUNDED, KEPT, MAX_WAIT, ROLLED_BACK
from tests.faults.patience import PATIENCE, wait_until
from tests.faults.process import ROOT
from tests.soak.amounts import MINUTES

SENDERS = 4
SECONDS = 60 * min(MINUTES, 10)
ENDED = {0, -signal.SIGTERM}
"""Exit codes in good order; the latter of a program that has just been started again."""
LONGEST = 5 + 15
"""Seconds that a call may take: what is documented, and the machine's load."""


@dataclass(frozen=True)
class Call:
    """One call by key; `answer` None: its process was killed first."""

    name: str
    key: str
    id: str
    began: float
    ended: float
    answer: str | None

    @property
    def is_stored(self) -> bool:
        """Whether it has surely stored its message."""
        return self.answer == self.id

    @property
    def may_store(self) -> bool:
        return self.answer in (self.id, None) or self.is_unknown

    @property
    def is_unknown(self) -> bool:
        return self.answer is None or self.answer.startswith("error")

    @property
    def kind_of_answer(self) -> str:
        """The answer, but for message_ids."""
        if self.answer is None:
            return "killed"
        if self.is_stored:
            return "stored"
        return "kept" if self.answer.count("-") == 4 else self.answer

    @property
    def may_take(self) -> bool:
        """Whether it may have taken another's message away."""
        if self.answer == ROLLED_BACK:
            return False
        return self.may_store or self.answer == ManagementOutcome.DONE


class Program:
    """A process of `keys_program`, started again when it is killed."""

    def __init__(self, role: str, url: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.faults.keys_program", role]
        self._command.append(json.dumps({"url": url, "folder": str(folder)}))
        self._diary, self._log = folder / role, folder / "log"
        self.start()

    @property
    def is_at_work(self) -> bool:
        """Whether it has come so far as to write."""
        return Path(f"{self._diary}-{self.process.pid}").exists()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 1800)
def test_processes_are_killed_while_they_use_keys(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(database_url)
    senders = [Program("send", database_url, tmp_path) for _ in range(SENDERS)]
    dispatcher = Program("dispatch", database_url, tmp_path)
    programs, deadline = [*senders, dispatcher], time.monotonic() + SECONDS
    try:
        next_kill = time.monotonic() + 5
        while time.monotonic() < deadline:
            keys = Counter(message.key for message in store.list(limit=1000).messages)
            assert max(keys.values(), default=1) == 1, keys
            if time.monotonic() > next_kill and all(program.is_at_work for program in programs):
                killed = random.choice(programs)
                killed.kill()
                killed.start()
                next_kill = time.monotonic() + random.uniform(0.5, 4)
            time.sleep(0.05)
        for sender in senders:
            sender.process.terminate()
        assert {sender.process.wait(PATIENCE) for sender in senders} <= ENDED
        wait_until(lambda: not due(store), "all that is due was dispatched")
        dispatcher.process.terminate()
        assert dispatcher.process.wait(PATIENCE) in ENDED
    finally:
        for program in programs:
            program.kill()
    waiting = {message.message_id for message in store.list(limit=100_000).messages}
    store.close()
    calls, arrivals = calls_in(tmp_path), arrivals_in(tmp_path)
    with capsys.disabled():
        print(f"\n{summary(calls)}\n{len(arrivals)} arrived, {len(waiting)} wait")  # noqa: T201 - for a campaign's log
    check(calls, arrivals, waiting)
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log, log[-3000:]


def due(store: SqlDelayedMessageStore) -> bool:
    first = store.next()
    return first is not None and first <= store.now()


def lines(folder: Path, role: str) -> Iterable[dict[str, Any]]:
    for path in folder.glob(f"{role}-*"):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def calls_in(folder: Path) -> Sequence[Call]:
    begun: dict[str, dict[str, Any]] = {}
    for line in lines(folder, "send"):
        begun.setdefault(line.pop("call"), {"ended": float("inf"), "answer": None}).update(line)
    return [Call(**fields) for fields in begun.values()]


def arrivals_in(folder: Path) -> Mapping[str, Sequence[tuple[float, float]]]:
    """When each arrived, and its due time."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in lines(folder, "dispatch"):
        found.setdefault(line["id"], []).append((line["at"], line["due"]))
    return found


def summary(calls: Sequence[Call]) -> str:
    """How often each call was answered how, and how long the longest took."""
    answers = Counter(f"{call.name.strip('_')}: {call.kind_of_answer}" for call in calls)
    longest = max(call.ended - call.began for call in calls if call.answer is not None)
    return "\n".join(
        [*(f"{count:7} {answer}" for answer, count in sorted(answers.items())), f"longest {longest:.2f} s"]
    )


def check(calls: Sequence[Call], arrivals: Mapping[str, Sequence[tuple[float, float]]], waiting: set[str]) -> None:
    by_key: dict[str, list[Call]] = {}
    for call in calls:
        by_key.setdefault(call.key, []).append(call)
    gone = set(arrivals) | waiting
    lost = [
        call for call in calls if call.is_stored and call.id not in gone and not may_be_taken(call, by_key[call.key])
    ]
    assert not lost, [sorted(by_key[call.key], key=lambda call: call.began) for call in lost[:3]]
    never = gone - {call.id for call in calls if call.may_store}
    assert not never, "what was refused, or rolled back, arrived"
    late = [(call, arrivals[call.id]) for call in calls if call.key.startswith(BOUNDED) and call.id in arrivals]
    for call, seen in late:
        assert_bounded(call, seen, by_key[call.key], arrivals)
    slow = [call for call in calls if call.answer is not None and call.ended - call.began > LONGEST]
    assert not slow, slow
    errors = [call for call in calls if (call.answer or "").startswith("error")]
    assert len(errors) <= len(calls) / 100, errors[:5]


def may_be_taken(lost: Call, calls: Sequence[Call]) -> bool:
    """Whether another call may have taken away the message of `lost`."""
    if lost.key.startswith(KEPT):
        return False
    return any(call.may_take and call is not lost and call.ended > lost.began for call in calls)


def assert_bounded(
    call: Call, seen: Sequence[tuple[float, float]], calls: Sequence[Call], arrivals: Mapping[str, Any]
) -> None:
    """It is due no later than so long after the first send since the last one of its key arrived."""
    at, due_time = seen[0]
    before = [first for other in calls if other.id in arrivals and (first := arrivals[other.id][0][0]) < at]
    since = max(before, default=0.0)
    firsts = [other.ended for other in calls if other.is_stored and other.began > since and other.ended < at]
    assert due_time <= min(firsts, default=call.ended) + MAX_WAIT + 0.01, (call, seen, firsts)
