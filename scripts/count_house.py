"""Count what the code's size and shape are: lines, files, rooms, floors, forwarding functions, and walks.

    .venv/bin/python scripts/count_house.py [--json] [--no-walks] [--cold-rounds 5]

A room is a package of `delaystore`, or its ground: the modules beside the packages. A floor is a level of the graph of
imports between rooms. A function only forwards if its body is one call of names, attributes and constants. A walk
counts the calls of delaystore's own functions that one action makes, when a process does it for the second time.
"""

import argparse
import ast
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "delaystore"
CORE = ("ground", "stores", "sql", "transports", "dispatcher", "delivery")
"""`sql` was a room of its own before it moved into `stores`; `calls` was a package of the ground."""
GROUND = "ground"
SMALL = 40


@cache
def sources() -> Mapping[Path, str]:
    return {path.relative_to(PACKAGE): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def lines_of(text: str) -> int:
    return len(text.splitlines())


def room_of(path: Path) -> str:
    if len(path.parts) > 1 and path.parts[0] != "calls":
        return path.parts[0]
    return "documents" if path.name == "documents.py" else GROUND


def public_definitions(text: str) -> int:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return sum(isinstance(node, kinds) and not node.name.startswith("_") for node in ast.parse(text).body)


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def only_forwards(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body, but for its docstring, is one call with names, attributes and constants as they are."""
    body = list(function.body)
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        del body[0]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value
    if isinstance(call, ast.Await | ast.YieldFrom):
        call = call.value
    if not isinstance(call, ast.Call):
        return False
    passed = [each.value if isinstance(each, ast.Starred) else each for each in call.args]
    passed += [each.value for each in call.keywords]
    return all(is_as_it_is(each) for each in passed)


def is_as_it_is(value: ast.expr) -> bool:
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name | ast.Constant)


def room_imports() -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    rooms = {room_of(path) for path in sources()}
    for path, text in sources().items():
        if path.name == "__main__.py" or path == Path("__init__.py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("delaystore."):
                top = str(node.module).split(".")[1]
                found[room_of(path)].add(top if top in rooms else GROUND)
    return {room: others - {room} for room, others in found.items()}


def floors() -> int:
    """The longest chain of rooms that import one another; a circle counts as endless, here 99."""
    imports = room_imports()

    def height(room: str, seen: tuple[str, ...]) -> int:
        if room in seen:
            return 99
        return 1 + max((height(other, (*seen, room)) for other in imports.get(room, ())), default=0)

    return max(height(room, ()) for room in imports)


def static_counts() -> dict[str, Any]:
    texts = sources()
    core = {path: text for path, text in texts.items() if room_of(path) in CORE}
    return {
        "lines": sum(map(lines_of, texts.values())),
        "files": len(texts),
        "core lines": sum(map(lines_of, core.values())),
        "core files": len(core),
        f"files under {SMALL} lines": sum(lines_of(text) < SMALL for text in texts.values()),
        "files with one public definition": sum(public_definitions(text) == 1 for text in texts.values()),
        "rooms": len({room_of(path) for path in texts}),
        "floors": floors(),
        "functions that only forward": sum(only_forwards(each) for text in texts.values() for each in functions(text)),
        "comment lines": sum(line.lstrip().startswith("#") for text in texts.values() for line in text.splitlines()),
        "lines by room": {
            room: sum(lines_of(text) for path, text in texts.items() if room_of(path) == room)
            for room in sorted({room_of(path) for path in texts})
        },
        "lines of tests": sum(
            lines_of(path.read_text()) for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts
        ),
    }


class Walk:
    """Counts the calls of delaystore's own functions in all threads, and how deep they go."""

    def __init__(self) -> None:
        self.calls, self.deepest = 0, 0
        self.functions: set[tuple[str, str]] = set()
        self._depths = threading.local()

    def _heard(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        depth = getattr(self._depths, "now", 0) + (1 if event == "call" else -1)
        self._depths.now = depth
        if event == "call":
            self.calls += 1
            self.functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))
            self.deepest = max(self.deepest, depth)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        threading.setprofile(self._heard)
        sys.setprofile(self._heard)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]  # None ends it, as the documentation says

    def figures(self) -> str:
        files = {file for file, _ in self.functions}
        return f"{self.calls} / {len(self.functions)} / {len(files)} / {self.deepest}"


def second(action: Callable[[int], object]) -> str:
    """The figures of an action that is done for the second time: calls / functions / files / depth."""
    action(1)
    walk = Walk()
    with walk.counted():
        action(2)
    return walk.figures()


def command_line(*arguments: str) -> None:
    from delaystore.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(arguments)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"delaystore {' '.join(arguments)}: {said.getvalue().strip()}") from end


def walks(folder: Path) -> dict[str, str]:
    from delaystore import DelayedDelivery
    from delaystore.dispatcher import Dispatcher
    from delaystore.stores import open_store
    from delaystore.transports import InMemoryTransport

    store = f"sqlite:///{folder}/walks.db"
    opened, transport = open_store(store), InMemoryTransport(auto_declare=True)
    delivery = DelayedDelivery("walks", opened, transport)
    delivery.setup_infrastructure()
    found = {"send": second(lambda number: delivery.send("queue", b"body", delay=3600, message_id=f"walk-{number}"))}
    dispatcher = Dispatcher(opened, transport, endpoint="walks")
    delivery.send("queue", b"body", delay=0)
    dispatcher.dispatch_due()
    delivery.send("queue", b"body", delay=0)
    found["dispatch_due, one message"] = second(lambda number: number > 1 and dispatcher.dispatch_due())
    delivery.send("queue", b"body", delay=0)
    found["one dispatch pass, one message"] = second(lambda number: number > 1 and dispatcher._passes.run())
    options = ("--store", store, "--endpoint", "walks")
    found["delaystore cancel ID"] = second(lambda number: command_line("cancel", *options, f"walk-{number}"))
    rows = folder / "rows.csv"
    rows.write_text("message_id,destination,body,delay\n")

    def send_file(number: int) -> None:
        rows.write_text(f"message_id,destination,body,delay\nrow-{number},queue,body,3600\n")
        command_line("send", *options, "--file", str(rows))

    found["send --file, one row"] = second(send_file)
    delivery.close()
    return found


COLD = """
import time
began = time.perf_counter()
import delaystore
from delaystore.stores import open_store
delivery = delaystore.DelayedDelivery("cold", open_store({store!r}))
delivery.setup_infrastructure()
delivery.send("queue", b"body", delay=3600)
print(time.perf_counter() - began)
"""


def cold(rounds: int) -> float:
    """Seconds of a new process for `import delaystore` and the first send on SQLite: the median."""
    taken = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            program = COLD.format(store=f"sqlite:///{folder}/cold.db")
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
            taken.append(float(done.stdout))
    return round(statistics.median(taken), 3)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    parser.add_argument("--no-walks", action="store_true", help="Count files only.")
    parser.add_argument("--cold-rounds", type=int, default=5, metavar="N", help="Processes for import and first send.")
    given = parser.parse_args()
    figures = static_counts()
    if not given.no_walks:
        with tempfile.TemporaryDirectory() as folder:
            figures["walks: calls / functions / files / depth"] = walks(Path(folder))
        figures["import and first send, seconds"] = cold(given.cold_rounds)
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for inner, each in value.items():
                print(f"    {inner:30} {each:>10}" if isinstance(each, int) else f"    {inner:30} {each}")
        else:
            print(f"{name:40} {value:>10}")


if __name__ == "__main__":
    main()
