"""How tables fit a terminal."""

import pytest
from rich.cells import cell_len

from delaystore.cli._output import print_table, table_lines

COLUMNS = ("id", "destination", "due", "failures", "bytes")
ID = "0198a1f2-7c3b-7d11-8f00-112233449c3e"
LONG = "/exchanges/orders/of.everything.that.there.is.and.of.some.that.is.not"
DUE = "2026-11-24 05:52:18Z"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal of 80 columns, for what is printed; set COLUMNS for another width."""
    monkeypatch.setattr("delaystore.cli._output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    return monkeypatch


def show(destination: str, id_: str = ID, *, wide: bool | None = None) -> None:
    row = (id_, destination, DUE, "0", "12")
    print_table(COLUMNS, [row], right=("failures", "bytes"), unbroken=("due",), wide=wide)


def cells(shown: str, column: int) -> str:
    """What a column holds, of a table with one row; `column`: where it begins in the line of names."""
    names, _, *rows = [line for line in shown.splitlines() if line]
    begin = names.index(COLUMNS[column])
    return "".join(row[begin : names.index(COLUMNS[column + 1])].strip() for row in rows)


@pytest.mark.usefixtures("terminal")
def test_what_fits_is_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show("b", "order-17", wide=False)
    shown = capsys.readouterr()
    assert any("order-17" in line and DUE in line for line in shown.out.splitlines())
    assert shown.err == ""


@pytest.mark.usefixtures("terminal")
def test_in_80_columns_long_cells_go_on_in_the_next_line_and_nothing_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(LONG, wide=False)
    shown = capsys.readouterr()
    assert max(map(cell_len, shown.out.splitlines())) <= 80
    assert (cells(shown.out, 0), cells(shown.out, 1)) == (ID, LONG)
    assert any(DUE in line for line in shown.out.splitlines())
    assert shown.err == "lines are broken to fit; --wide shows them whole\n"


@pytest.mark.usefixtures("terminal")
def test_a_wide_table_is_as_wide_as_it_gets(capsys: pytest.CaptureFixture[str]) -> None:
    show(LONG, wide=True)
    shown = capsys.readouterr()
    assert any(ID in line and LONG in line for line in shown.out.splitlines())
    assert shown.err == ""


def test_in_a_pipe_everything_is_whole_on_one_line_without_a_frame(capsys: pytest.CaptureFixture[str]) -> None:
    show(LONG)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        list(COLUMNS),
        [ID, LONG, *DUE.split(), "0", "12"],
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 75, 100, 135])
@pytest.mark.parametrize("id_", [ID, "消息" * 20, "a", "é" * 60])
def test_a_table_is_never_wider_than_its_terminal(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, id_: str
) -> None:
    terminal.setenv("COLUMNS", str(width))
    show(LONG, id_)
    shown = capsys.readouterr().out
    assert max(map(cell_len, shown.splitlines())) <= width
    assert "…" not in shown
    assert sorted(set(LONG + id_ + DUE) - set(shown)) == []


@pytest.mark.usefixtures("terminal")
def test_there_are_no_colours_where_nobody_wants_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    show("billing")
    assert "\x1b[3" not in capsys.readouterr().out


def test_an_empty_table_has_its_names() -> None:
    assert table_lines(COLUMNS, []) == ["id  destination  due  failures  bytes"]
