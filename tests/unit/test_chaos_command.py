"""Mistakes on the chaos suite's command line: one line, exit code 2, before anything is started."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.__main__ import main


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code = main(list(arguments))
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--minutes", "-1"], "--minutes: -1 is not above 0"),
        (["--minutes", "nan"], "--minutes: nan is not above 0"),
        (["--rate", "0"], "--rate: 0 is not above 0"),
        (["--runs", "0"], "--runs: 0 is below 1"),
        (["--dispatchers", "0"], "--dispatchers: 0 is below 1"),
        (["--history", "/no/such/folder/x.jsonl"], "cannot be written"),
        (["--history", "x.log"], "x.log is where the log would go; write x.jsonl"),
        (["check"], "required: FILE"),
        (["check", "/no/such/file"], "/no/such/file cannot be read: No such file or directory"),
        (["check", "/"], "/ cannot be read: Is a directory"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert says in said(capsys, *arguments)


@pytest.mark.parametrize("content", [b"", b"# README\n", b"\xff\xfe"])
def test_a_file_that_is_no_history_is_not_found_good(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "history"
    file.write_bytes(content)
    assert said(capsys, "check", str(file)).startswith(f"{file} ")
