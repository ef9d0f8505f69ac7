"""Plain data out of a pickle, without unpickling: nothing is imported, and nothing is called.

A pickle is a program for a machine with a stack. The standard library's pickletools names its steps; steps that
would find a class or call a function leave a note of the object that they would have made.

A small pickle can ask for much: so steps, its size and names are limited, the memo is numbered without gaps, and only
text is hashed, because Python's hashes of text cannot be predicted.
"""

import pickletools  # nosec B403
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from delaystore.errors import InvalidMessageError

_LARGEST: Final = 32 * 2**20
"""Bytes of a pickle."""
_MOST_STEPS: Final = 200_000
"""Steps of a pickle; each value takes one to three."""
_LONGEST_NAME: Final = 1000
"""Characters of a module's or a class's name."""


@dataclass(slots=True, eq=False)
class Foreign:
    """An object of a pickle besides plain data.

    Attributes:
        name: Its class or function, such as `datetime.datetime`.
        arguments: The arguments with which the pickle would call that.
        state: The state that the pickle would set in it, mostly a dict of its attributes.

    """

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None


def read_pickle(data: bytes) -> Any:
    """The content of `data`: None, bools, numbers, text, bytes, lists, tuples, dicts, and Foreign for everything else.

    A dict's keys that are not text are Foreign, too.
    Raises InvalidMessageError for bytes that are no pickle, and for one that is too large.
    """
    if len(data) > _LARGEST:
        raise InvalidMessageError(f"it is a pickle of more than {_LARGEST:,} bytes")
    machine = _Machine()
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if number >= _MOST_STEPS:
                raise InvalidMessageError(f"it is a pickle of more than {_MOST_STEPS:,} steps")
            machine.step(opcode.name, argument)
        return machine.stack.pop()
    except InvalidMessageError:
        raise
    except Exception as error:  # pickletools and a bad program fail in many ways
        raise InvalidMessageError(f"it is no pickle that can be read ({type(error).__name__})") from None


class _Machine:
    """The stack, the marks in it, and the memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Carry out one step; raises any error of a bad program."""
        if name in _VALUES:
            self.push(argument)
        elif name in _CONSTANTS:
            self.push(_CONSTANTS[name]())
        elif name not in _IGNORED:
            step = _STEPS.get(name)
            if step is None:
                raise InvalidMessageError(f"it is a pickle with the step {name}, which plain data does not need")
            step(self, argument)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        self._marked.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[Any]:
        """The items above the last mark, taken off."""
        found, self.stack = self.stack, self._marked.pop()
        return found

    def last(self, count: int) -> list[Any]:
        """The last `count` values, taken off."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def pop(self, _: Any) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.stack = self._marked.pop()

    def put(self, key: int | None) -> None:
        if key is not None and key > len(self._memo) + 1:  # Python 2 counted from 1
            raise InvalidMessageError("it is a pickle that numbers its parts with gaps")
        self._memo[len(self._memo) if key is None else key] = self.stack[-1]

    def get(self, key: int) -> None:
        self.push(self._memo[key])

    def extend(self, values: list[Any]) -> None:
        """Append to the list on top; a Foreign one keeps nothing."""
        if not isinstance(self.stack[-1], Foreign):
            self.stack[-1].extend(values)

    def update(self, values: list[Any]) -> None:
        """Set pairs in the dict on top; a Foreign one keeps nothing."""
        if not isinstance(self.stack[-1], Foreign):
            self.stack[-1].update(_pairs(values))

    def foreign(self, *parts: Any, arguments: Any = ()) -> None:
        """Push the object with the name of these parts, which may be anything in a pickle."""
        if not all(isinstance(part, str) and len(part) <= _LONGEST_NAME for part in parts):
            raise InvalidMessageError("it is a pickle with a name that is no name")
        self.push(Foreign(".".join(parts), arguments if isinstance(arguments, tuple) else ()))

    def build(self, _: Any) -> None:
        """Set the state of the object below it."""
        state = self.stack.pop()
        if self.stack and isinstance(self.stack[-1], Foreign):
            self.stack[-1].state = state

    def call(self, count: int) -> None:
        """Call a function, or make an object of a class, with this number of values after it: a Foreign of its name."""
        called, *arguments = self.last(1 + count)
        name: str = called.name
        if name.endswith("._reconstructor"):  # protocols 0 and 1: of the class that comes first among its arguments
            name = arguments[0][0].name
        self.foreign(name, arguments=arguments[0])

    def make(self, name: str | None) -> None:
        """As `call`, of the items above the last mark; the class comes first there, unless it is named."""
        values = self.to_mark()
        self.foreign(values[0].name if name is None else name)


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(map(_key, values[::2]), values[1::2], strict=True))


def _key(value: Any) -> Any:
    """Numbers can be chosen to have one hash; a tuple is hashed part by part, as often as each is named."""
    return value if isinstance(value, str | Foreign) else Foreign(f"builtins.{type(value).__name__}")


_VALUES: Final = frozenset(
    {
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
    }
)
"""Steps whose argument is the value."""
_IGNORED: Final = frozenset({"PROTO", "FRAME", "STOP"})
_CONSTANTS: Final[dict[str, Callable[[], Any]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": lambda: Foreign("builtins.set"),
}
_STEPS: Final[dict[str, Callable[[_Machine, Any], object]]] = {
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": lambda machine, _: machine.to_mark(),
    "DUP": lambda machine, _: machine.push(machine.stack[-1]),
    "LIST": lambda machine, _: machine.push(machine.to_mark()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.to_mark())),
    "DICT": lambda machine, _: machine.push(_pairs(machine.to_mark())),
    "FROZENSET": lambda machine, _: machine.make("builtins.frozenset"),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.last(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.last(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.last(3))),
    "APPEND": lambda machine, _: machine.extend(machine.last(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.to_mark()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.to_mark()),
    "SETITEM": lambda machine, _: machine.update(machine.last(2)),
    "SETITEMS": lambda machine, _: machine.update(machine.to_mark()),
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": lambda machine, name: machine.foreign(name.replace(" ", ".")),
    "STACK_GLOBAL": lambda machine, _: machine.foreign(*machine.last(2)),
    "REDUCE": lambda machine, _: machine.call(1),
    "NEWOBJ": lambda machine, _: machine.call(1),
    "NEWOBJ_EX": lambda machine, _: machine.call(2),
    "BUILD": _Machine.build,
    "OBJ": _Machine.make,
    "INST": lambda machine, name: machine.make(name.replace(" ", ".")),
}
