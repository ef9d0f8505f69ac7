"""Plain data is read out of pickles, of any protocol; nothing else in them is imported or called."""

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.errors import InvalidMessageError
from delaystore.records.pickles import Foreign, read_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(10**400)
KEYS = st.text() | st.integers()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.tuples(inner, inner, inner, inner) | st.dictionaries(KEYS, inner)
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
        b"}(]K\x01u.",
        b"P17\n.",
        b"\x82\x01.",
        b"L" + b"9" * 5000 + b"L\n.",
    ],
)
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError, match="pickle"):
        read_pickle(data)


@pytest.mark.parametrize(
    "deep", [b")" + b"\x85" * 300_000, b")" + b"2\x86" * 100], ids=["in itself", "named again and again"]
)
def test_a_tuple_is_no_name_in_a_dict(deep: bytes) -> None:
    """It is not hashed. In a process of its own: hashing would end that, or never come to an end."""
    program = "import sys; from delaystore.records.pickles import read_pickle; read_pickle(sys.stdin.buffer.read())"
    data = b"\x80\x04}" + deep + b"Ns."
    subprocess.run([sys.executable, "-c", program], input=data, check=True, timeout=60)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(InvalidMessageError):
        read_pickle(data)
