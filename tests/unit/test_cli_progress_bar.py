import re

import pytest

from delaystore.cli._progress import ProgressBar

MOVED = re.compile(r"moved .* 30/40 ")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is one, for rich."""
    monkeypatch.setenv("FORCE_COLOR", "1")


def shown(text: str) -> str:
    """Without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_nothing_is_drawn_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as bar:
        bar.show("moved", 30, 40)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
def test_each_step_has_a_bar_on_standard_error_that_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as bar:
        bar.show("moved", 0, None)
        bar.show("moved", 30, 40)
        bar.show("given back", 5, 10)
    out, err = capsys.readouterr()
    last = shown(err).splitlines()[-2:]
    assert out == ""
    assert MOVED.search(last[0])
    assert re.search(r"given back .* 5/10 ", last[1])


@pytest.mark.usefixtures("terminal")
def test_a_transient_bar_shows_the_present_step_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(transient=True) as bar:
        bar.show("starting", 0, None)
        bar.show("moved", 30, 40)
    drawn = shown(capsys.readouterr().err)
    assert MOVED.search(drawn)
    assert "starting" not in drawn[MOVED.search(drawn).start() :]  # type: ignore[union-attr]


@pytest.mark.usefixtures("terminal")
def test_nothing_is_drawn_before_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar():
        pass
    assert shown(capsys.readouterr().err).strip() == ""
