"""One run: a topology, a workload, a nemesis, a history."""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import Fault, of_processes
from tests.chaos.history import Event, Recorder, merged, merged_logs, write
from tests.chaos.ingress_workload import IngressWorkload
from tests.chaos.nemesis import Nemesis
from tests.chaos.program import Load
from tests.chaos.topology import Topology
from tests.chaos.workload import SETTLE, Workload


class UnknownFaultError(ValueError):
    """A fault that the topology does not have."""


@dataclass(frozen=True)
class Plan:
    """What a run does. `history`: where to keep the events, as JSON lines, and beside it, as `.log`, what the processes
    have logged; None: nowhere.

    `strokes`: what happens to the running workload, as lists of (fault's kind, target, seconds) that begin together;
    None: the nemesis with `seed`, for `seconds`.
    `only`: the faults that it takes, by their names' beginnings; none: all.
    `messages`: how many are to be sent at least; the workload goes on for them when all faults have ended.
    """

    topology: Callable[[], Topology]
    seed: int = 0
    seconds: float = 60.0
    load: Load = field(default_factory=Load)
    history: Path | None = None
    only: Sequence[str] = ()
    messages: int = 0
    strokes: Sequence[Sequence[tuple[str, str, float]]] | None = None
    settle: float = SETTLE


def run(plan: Plan, say: Callable[[str], None] = lambda text: None) -> list[Event]:
    """Run it; the history, which is also written where the plan says, even if the run is interrupted."""
    with tempfile.TemporaryDirectory(prefix="delaystore-chaos-") as name:
        folder = Path(name)
        try:
            _run(plan, folder, say)
        finally:
            events = merged(folder)
            if plan.history is not None:
                write(events, plan.history)
                plan.history.with_suffix(".log").write_text(merged_logs(folder))
    return events


def _run(plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
    topology = plan.topology()
    with ExitStack() as stack:
        recorder = stack.enter_context(closing(Recorder(folder, "run")))
        stack.callback(topology.close)
        say(f"starting {topology.name}")
        topology.start()
        kind = IngressWorkload if topology.through_ingress else Workload
        workload = stack.enter_context(closing(kind(topology, folder, plan.seed, plan.load, recorder)))
        workload.set_up()
        recorder.note(
            "run",
            topology=topology.name,
            mode=topology.mode,
            asynchronous=topology.database.asynchronous,
            seed=plan.seed,
            seconds=plan.seconds,
            dispatchers=plan.load.dispatchers,
        )
        recorder.note("primary", offset=topology.database.clock_offset)
        with workload.processes as processes:
            processes.start()
            workload.await_begun()
            faults = [*topology.faults(), *of_processes(processes)]
            _strike(plan, faults, recorder, say)
            workload.await_sent(plan.messages)
            say("settling")
            workload.settle(plan.settle)
        workload.note_tracebacks()


def _strike(plan: Plan, faults: Sequence[Fault], recorder: Recorder, say: Callable[[str], None]) -> None:
    nemesis = Nemesis(_chosen(faults, plan.only), plan.seed, recorder, say)
    if plan.strokes is None:
        say(f"faults of seed {plan.seed} for {plan.seconds:g} s")
        nemesis.run(time.monotonic() + plan.seconds)
        return
    known = {(fault.kind, fault.target): fault for fault in faults}
    for stroke in plan.strokes:
        time.sleep(1)
        nemesis.strike([(known[kind, target], seconds) for kind, target, seconds in stroke])


def _chosen(faults: Sequence[Fault], only: Sequence[str]) -> Sequence[Fault]:
    chosen = [fault for fault in faults if not only or any(fault.name.startswith(each) for each in only)]
    if not chosen:
        known = ", ".join(sorted({fault.name for fault in faults}))
        raise UnknownFaultError(f"no fault is called {', '.join(only)}; there are {known}")
    return chosen
