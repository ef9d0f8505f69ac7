"""The rows of a sheet of an Excel workbook (.xlsx), as texts."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

from delaystore.errors import ConfigurationError
from delaystore.registry import needed_for

_EXACT: Final = 10**15
"""Excel keeps 15 digits of a number; a larger one is written as it is."""


def sheet_rows(path: Path, sheet: str | None = None) -> Iterator[tuple[int, list[str | None]]]:
    """The rows that are not empty: their numbers in the sheet, and the texts of their cells.

    Args:
        path: The workbook.
        sheet: The sheet's name; None: the first sheet.

    Raises:
        ConfigurationError: It is no workbook, or has no such sheet.
        MissingDependencyError: The extra excel is not installed.

    """
    with needed_for("reading .xlsx files"):
        import python_calamine as calamine
    try:
        book = calamine.load_workbook(path)
        found = book.get_sheet_by_index(0) if sheet is None else book.get_sheet_by_name(sheet)
        rows = found.iter_rows()
    except calamine.WorksheetNotFound:
        raise ConfigurationError(
            f"{str(path)!r} has no sheet {sheet!r}; it has {', '.join(map(repr, book.sheet_names))}"
        ) from None
    except calamine.PasswordError:
        raise ConfigurationError(f"{str(path)!r} is protected by a password; save it without one") from None
    except calamine.CalamineError as error:
        raise ConfigurationError(
            f"{str(path)!r} is no workbook of Excel ({' '.join(str(error).split())}); save it as .xlsx or CSV UTF-8"
        ) from None
    for number, cells in enumerate(rows, start=1):
        texts = [_text(cell) for cell in cells]
        if any(texts):
            yield number, texts


def _text(cell: Any) -> str | None:
    """A cell's text. An empty cell, or one whose formula failed, is None.

    Whole numbers have no fraction, as a cell shows them; times are local times in ISO 8601, durations seconds.
    """
    if isinstance(cell, str):
        return cell or None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, timedelta):
        cell = cell.total_seconds()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _EXACT:
        cell = int(cell)
    return cell.isoformat() if isinstance(cell, datetime | date | time) else str(cell)
