"""Runs the workload under faults, and checks the history: nothing lost, nothing early, nothing twice without a reason.

`python -m tests.chaos check FILE...` checks histories that were written before.
"""

import argparse
import math
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.chaos import history, report
from tests.chaos.checker import check
from tests.chaos.findings import Findings
from tests.chaos.history import LAST, Event
from tests.chaos.program import Load
from tests.chaos.run import Plan, UnknownFaultError, run
from tests.chaos.topologies import TOPOLOGIES
from tests.servers import ServerError

GOOD, BAD, MISTAKE, INTERRUPTED = 0, 1, 2, 130


class UnreadableError(Exception):
    """A file is no history."""


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if something happened that must not."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return _check_files(_files(arguments[1:])) if arguments[:1] == ["check"] else _run_all(_options(arguments))
    except (UnknownFaultError, ServerError, UnreadableError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return MISTAKE
    except KeyboardInterrupt:
        print("interrupted; every process and server was ended", file=sys.stderr)  # noqa: T201 - a command
        return INTERRUPTED


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), default="single", help="default: %(default)s")
    parser.add_argument("--seed", type=int, help="of the schedule of faults, and of the load; default: a random one")
    parser.add_argument("--minutes", type=_above_0, default=3.0, help="how long faults go on; default: %(default)s")
    parser.add_argument("--runs", type=_from_1, default=1, help="with seeds one after the other; default: %(default)s")
    parser.add_argument("--rate", type=_above_0, default=Load.rate, help="messages/s of a sender; default: %(default)s")
    parser.add_argument("--senders", type=_from_1, default=Load.senders, help="default: %(default)s")
    parser.add_argument("--dispatchers", type=_from_1, default=Load.dispatchers, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", default=[], metavar="FAULT", help='such as "kill rabbitmq" or pause')
    parser.add_argument("--history", type=_new_file, metavar="FILE", help="default: chaos-TOPOLOGY-SEED.jsonl")
    return parser.parse_args(arguments)


def _files(arguments: Sequence[str]) -> Sequence[Path]:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos check", description="Checks histories of runs.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="that a run has written")
    files: Sequence[Path] = parser.parse_args(arguments).files
    return files


def _above_0(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _from_1(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _new_file(text: str) -> Path:
    """Refused before the run, which would be lost."""
    path = Path(text)
    if path.suffix == ".log":
        raise argparse.ArgumentTypeError(f"{text} is where the log would go; write {path.with_suffix('.jsonl')}")
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} cannot be written: no such folder, or a folder itself")
    return path


def _run_all(options: argparse.Namespace) -> int:
    first = random.randrange(10_000) if options.seed is None else options.seed
    load = Load(senders=options.senders, dispatchers=options.dispatchers, rate=options.rate)
    total = Findings()
    for seed in range(first, first + options.runs):
        file = _file(options, seed)
        plan = Plan(TOPOLOGIES[options.topology], seed, options.minutes * 60, load, history=file, only=options.only)
        total.merge(_told(run(plan, _say), f"{options.topology}, seed {seed}, history in {file}"))
    if options.runs > 1:
        _say("\n" + report.table(f"all {options.runs} runs", total))
    return GOOD if total.good else BAD


def _check_files(files: Sequence[Path]) -> int:
    total = Findings()
    for file in files:
        total.merge(_told(_events(file), str(file)))
    return GOOD if total.good else BAD


def _events(file: Path) -> Sequence[Event]:
    try:
        events = list(history.read(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UnreadableError(f"{file} cannot be read: {reason}") from None
    if not events:
        raise UnreadableError(f"{file} is no history: it has no event")
    return events


def _told(events: Sequence[Event], title: str) -> Findings:
    findings = check(events)
    _say("\n" + report.table(title, findings))
    if not any(event.kind == LAST for event in events):
        _say("\nThe run did not come to its end: what was still to arrive counts as lost.")
    if not findings.good:
        _say("\n" + report.violations(findings))
    return findings


def _file(options: argparse.Namespace, seed: int) -> Path:
    if options.history is None:
        return Path(f"chaos-{options.topology}-{seed}.jsonl")
    path: Path = options.history
    return path if options.runs == 1 else path.with_stem(f"{path.stem}-{seed}")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # once is enough: what follows ends processes and servers
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
