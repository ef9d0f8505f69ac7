"""The rows of a file of JSON lines, as Spark reads them."""

from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

from delaystore.loading.reading.csv_files import open_file
from delaystore.loading.reading.json_lines import RAW, WHY, Line, names_of, read_line
from delaystore.loading.reading.text_rows import TextRow


def json_names(path: Path) -> list[str]:
    """The keys of all lines, sorted. ConfigurationError where no line can be read, or two keys differ but in case."""
    keys: set[str] = set()
    reasons: set[str] = set()
    for line in _lines(path):
        if line.why is None:
            keys.update(line.fields)
        else:
            reasons.add(line.why)
    return [name for name in names_of(keys, reasons) if name.lower() not in (RAW, WHY)]


def json_rows(path: Path, names: Sequence[str]) -> Iterator[TextRow]:
    """A row of each line that is not blank."""
    for line in _lines(path):
        yield TextRow([line.fields.get(name) for name in names], line.raw, line.why)


def _lines(path: Path) -> Iterator[Line]:
    """Lines end with LF, CR LF or CR."""
    with open_file(path) as binary, TextIOWrapper(binary, "latin-1") as stream:
        for text in stream:
            if (line := read_line(text.removesuffix("\n").encode("latin-1"))) is not None:
                yield line
