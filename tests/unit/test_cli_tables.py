"""How tables fit a terminal."""

import pytest
from rich.cells import cell_len

from delaystore.cli._output import SHORTEST_CUT, TableText, cut_middle, table_text

COLUMNS = ("id", "destination", "due", "failures", "bytes")
ID = "0198a1f2-7c3b-7d11-8f00-112233449c3e"
LONG = "/exchanges/orders/of.everything.that.there.is.and.of.some.that.is.not"


def laid_out(
    destination: str, width: int | None, id_: str = ID, *, encoding: str = "utf-8", styled: bool = False
) -> TableText:
    row = (id_, destination, "2026-11-24 05:52:18Z", "0", "12")
    right, given = ("failures", "bytes"), {"width": width, "encoding": encoding, "styled": styled}
    return table_text(COLUMNS, [row], right=right, unbroken=("due",), cut=("id",), **given)  # type: ignore[arg-type]


def widest(table: TableText) -> int:
    return max(map(cell_len, table.text.splitlines()))


def test_what_fits_is_not_cut() -> None:
    table = laid_out("billing", 100)
    assert ID in table.text
    assert not table.cut


def test_in_80_columns_an_id_is_cut_in_the_middle_no_more_than_need_be() -> None:
    table = laid_out("billing", 80)
    assert widest(table) <= 80
    assert table.cut == ["id"]
    assert "0198a1f2-7c3b-7d1…33449c3e " in table.text


@pytest.mark.parametrize("destination", [LONG, "请求队列" * 20, "x" * 255])
def test_a_destination_is_never_cut(destination: str) -> None:
    table = laid_out(destination, 80)
    assert widest(table) <= 80
    assert "0198a1f2…9c3e" in table.text
    destinations = [line[16:].split("  ")[0].strip() for line in table.text.splitlines()[3:]]
    assert "".join(destinations) == destination


@pytest.mark.parametrize("width", [1, 20, 40, 60])
def test_what_does_not_fit_even_so_is_written_in_blocks(width: int) -> None:
    table = laid_out(LONG, width)
    assert f"id           {ID}\ndestination  {LONG}\n" in table.text
    assert not table.cut


def test_without_a_width_everything_is_whole_on_one_line() -> None:
    assert any(ID in line and LONG in line for line in laid_out(LONG, None).text.splitlines())


@pytest.mark.parametrize("width", range(75, 140, 5))
@pytest.mark.parametrize("id_", [ID, "消息" * 20, "a", "é" * 60])
def test_a_table_is_never_wider_than_its_terminal(width: int, id_: str) -> None:
    assert widest(laid_out(LONG, width, id_)) <= width


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        (ID, SHORTEST_CUT, "0198a1f2…9c3e"),
        (ID, 36, ID),
        ("消息消息消息消息", 9, "消息消…息"),
        ("", 5, ""),
        ("abcdef", 5, "abc…f"),
    ],
)
def test_a_cut_text_shows_its_beginning_and_its_end(text: str, width: int, cut: str) -> None:
    assert cut_middle(text, width) == cut
    assert cell_len(cut) <= width


def test_there_are_no_colours_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in laid_out("billing", 80, styled=True).text


def test_what_the_encoding_lacks_comes_as_an_escape() -> None:
    assert "\\u2026" in laid_out("billing", 80, encoding="latin-1").text


def test_an_empty_table_has_its_names() -> None:
    assert "destination" in table_text(COLUMNS, [], width=80, encoding="utf-8", styled=False).text
