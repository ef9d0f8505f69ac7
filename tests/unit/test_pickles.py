"""Plain data is read out of pickles, of any protocol; nothing else in them is imported or called."""

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.errors import InvalidMessageError
from delaystore.migrations.records.pickles import Foreign, read_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(10**400)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.tuples(inner, inner, inner, inner) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=20,
)


class Dangerous:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


class Slotted:
    __slots__ = ("value",)


class Words(list[str]):
    """A list of somebody's own."""


class Numbers(dict[str, int]):
    """A dict of somebody's own."""


@given(PLAIN, st.sampled_from(PROTOCOLS))
def test_plain_data_comes_as_it_was(value: object, protocol: int) -> None:
    found = read_pickle(pickle.dumps(value, protocol))
    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_there_twice_is_read_twice(protocol: int) -> None:
    shared = ["shared"]
    assert read_pickle(pickle.dumps({"a": shared, "b": (shared, shared)}, protocol)) == {
        "a": shared,
        "b": (shared, shared),
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (datetime.now(UTC), "datetime.datetime"),
        (Decimal("1.5"), "decimal.Decimal"),
        (Path("/"), f"{type(Path('/')).__module__}.PosixPath"),
        (Words(["a"]), "tests.unit.test_pickles.Words"),
        (Numbers(a=1), "tests.unit.test_pickles.Numbers"),
        (os.path.join, "posixpath.join"),
    ],
)
def test_everything_else_is_only_named(value: object, name: str, protocol: int) -> None:
    before, (found, after) = ["before"], read_pickle(pickle.dumps([value, "after"], protocol))
    assert (type(found), found.name, after, before) == (Foreign, name, "after", ["before"])


@pytest.mark.parametrize("value", [{1, 2}, frozenset({1}), b"bytes", bytearray(b"b"), 1j, Slotted])
def test_nothing_is_mistaken_for_plain_data(value: object) -> None:
    (found,) = read_pickle(pickle.dumps([value], 4))
    assert type(found) in (Foreign, bytes, bytearray)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_called(tmp_path: Path, protocol: int) -> None:
    folder = tmp_path / "made"
    found = read_pickle(pickle.dumps({"value": Dangerous(folder)}, protocol))
    assert found["value"].name.endswith(".mkdir")
    assert not folder.exists()


def test_nothing_is_imported() -> None:
    (found,) = read_pickle(b"(cantigravity\nfly\n(tRl.")
    assert found.name == "antigravity.fly"
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"no pickle",
        b"\x80\x04]\x94(",
        b"(lp0\n0.",
        b"K\x01R.",
        b"]r\xff\xff\xff\xffh\x07.",
        b"P17\n.",
        b"\x82\x01.",
        b"L" + b"9" * 5000 + b"L\n.",
        b"N" * 200_001 + b".",
        b"\x8e" + (32 * 2**20).to_bytes(8, "little") + bytes(32 * 2**20) + b".",
        b"N\x94Nr\xff\xff\xff\x7f.",
        b"]q\x00](h\x00h\x00e\x93.",
        b"c" + b"m" * 1001 + b"\nname\n.",
    ],
)
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError, match="pickle"):
        read_pickle(data)


@pytest.mark.parametrize(
    "deep", [b")" + b"\x85" * 150_000, b")" + b"2\x86" * 100], ids=["in itself", "named again and again"]
)
def test_a_tuple_is_no_name_in_a_dict(deep: bytes) -> None:
    """It is not hashed. In a process of its own: hashing would end that, or never come to an end."""
    reading = "from delaystore.migrations.records.pickles import read_pickle; read_pickle(sys.stdin.buffer.read())"
    program = f"import sys; {reading}"
    data = b"\x80\x04}" + deep + b"Ns."
    subprocess.run([sys.executable, "-c", program], input=data, check=True, timeout=60)


@pytest.mark.parametrize("key", [b"K\x01", b"G?\xf8\0\0\0\0\0\0", b"N", b"\x88", b"C\x01a", b"]"])
def test_only_text_is_a_name_in_a_dict(key: bytes) -> None:
    (found,) = read_pickle(b"\x80\x04}" + key + b"Ns.")
    assert isinstance(found, Foreign)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(InvalidMessageError):
        read_pickle(data)


def job(arguments: bytes) -> bytes:
    """The pickle of a job with a date trigger and these `args`."""
    trigger = b"capscheduler.triggers.date\nDateTrigger\n)\x81"
    return b"\x80\x02}(U\x04funcU\x03m:fU\x07trigger" + trigger + b"U\x04args" + arguments + b"u."


def colliding(count: int) -> Iterator[bytes]:
    """Numbers with the same hash."""
    for number in range(1, count):
        digits = (number * (2**61 - 1)).to_bytes(11, "little")
        yield b"\x8a\x0b" + digits


MANY = 60_000
BOMBS = {
    "a list that holds itself many times": b"]q\x00(" + b"h\x00" * MANY + b"e",
    "a list many times in a list": b"]q\x00(" + b"N" * MANY + b"e0]q\x01(" + b"h\x00" * MANY + b"e",
    "a list twice in a list twice": b"]q\x00" + b"0](h\x00h\x00eq\x00" * 60,
    "a text many times": b"](X" + struct.pack("<I", 2**20) + b"a" * 2**20 + b"q\x00" + b"h\x00" * MANY + b"e",
    "deep lists": b"]" * MANY + b"a" * (MANY - 1),
    "names with one hash": b"}(" + b"".join(number + b"N" for number in colliding(MANY)) + b"u",
    "parts with one hash": b"](" + b"".join(b"Np%d\n" % (number * (2**61 - 1)) for number in range(MANY)) + b"e",
    "a long name many times": b"](X"
    + struct.pack("<I", 2**20)
    + b"a" * 2**20
    + b"q\x000"
    + b"h\x00h\x00\x93" * MANY
    + b"e",
    "the text of a list as a name": b"](]q\x00" + b"0](h\x00h\x00eq\x00" * 60 + b"h\x00\x93e",
    "marks": b"(" * 20_000_000,
    "a long number": b"]\x8b" + struct.pack("<i", 4_000_000) + b"\x7f" * 4_000_000 + b"a",
    "digits": b"]L" + b"9" * 4_000_000 + b"L\na",
}


@pytest.mark.long
def test_a_pickle_that_asks_for_much_is_one_unreadable_row(tmp_path: Path) -> None:
    """Each with half a gigabyte of memory, and ten seconds of one processor."""
    program = dedent("""
        import os, resource, sys
        from datetime import UTC, datetime
        from pathlib import Path
        from delaystore.errors import InvalidMessageError
        from delaystore.migrations.sources.legacy import ApschedulerLayout

        def read(bomb):
            limit = 2**29 + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
            row = {"id": "bomb", "next_run_time": datetime.now(UTC), "job_state": bomb.read_bytes()}
            try:
                ApschedulerLayout("jobs").to_message(row, "app")
            except InvalidMessageError as error:
                return str(error).startswith("its ")

        for bomb in Path(sys.argv[1]).iterdir():
            if not (child := os.fork()):
                os._exit(0 if read(bomb) else 1)
            print(bomb.name, os.waitpid(child, 0)[1])
    """)
    for name, arguments in BOMBS.items():
        (tmp_path / name).write_bytes(job(arguments))
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert sorted(done.stdout.splitlines()) == sorted(f"{name} 0" for name in BOMBS), done
