"""Pages that show files of the repository which are no documents: examples, contracts."""

from pathlib import Path
from typing import Final

from website.house import HOUSE

_LANGUAGES: Final = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".sh": "bash"}


def shown(path: str) -> str:
    """A page with the text of the file `path`, or of all files in that folder."""
    place = HOUSE / path
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if _is_source(file))
    sections = [_section(file) for file in files]
    return "\n".join(["---", "search:", "  exclude: true", "---", "", f"# {path}", "", *sections])


def _section(file: Path) -> str:
    language = _LANGUAGES.get(file.suffix, "text")
    title = file.relative_to(HOUSE).as_posix()
    return f'````{language} title="{title}"\n{file.read_text().rstrip()}\n````\n'


def _is_source(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts and file.stat().st_size > 0
