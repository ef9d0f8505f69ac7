"""Each page of the site as Markdown, beside its HTML, and `llms.txt`, which lists them in the order of the menu.

`how-to/keys.html` is also `how-to/keys.md`. Language models, and readers without a browser, read these. See
https://llmstxt.org.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import griffe

from website.awaited import Awaited
from website.house import HOUSE

_REFERENCE: Final = re.compile(r"^::: ([\w.]+)\n((?:    .*\n)*)", re.MULTILINE)
"""Where mkdocstrings puts the documentation of a name."""
_PARAGRAPH: Final = re.compile(r"^(?![#!<`|:\-])\S.*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MOST_CHARACTERS: Final = 200


def write_plain_pages(pages: Path, site: Path, configuration: Path) -> None:
    """Write the Markdown of `pages`, the builder's input, and `llms.txt` into `site`, the builder's output."""
    package = griffe.load("delaystore", search_paths=[HOUSE], extensions=griffe.load_extensions(Awaited))
    for page in pages.rglob("*.md"):
        place = site / page.relative_to(pages)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_REFERENCE.sub(lambda found: _described(package, found[1]), page.read_text()))
    project = tomllib.loads(configuration.read_text())["project"]
    (site / "llms.txt").write_text(
        llms_text(project, {path: (site / path).read_text() for path in _paths(project["nav"])})
    )


def llms_text(project: Mapping[str, Any], pages: Mapping[str, str]) -> str:
    """The list of pages. `pages`: the text of each page of the menu by its path."""
    parts = [f"# {project['site_name']}\n\n> {project['site_description']}\n"]
    for entry in project["nav"]:
        for section, below in entry.items():
            entries = [{section: below}] if isinstance(below, str) else below
            lines = [f"- [{title}]({path}): {_summary(pages[path])}" for title, path in _titled(entries)]
            parts.append("\n".join([f"## {section}\n", *lines, ""]))
    return "\n".join(parts)


def _titled(entries: Sequence[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, str]]:
    for entry in entries:
        for title, below in entry.items():
            if isinstance(below, str):
                yield f"{above}{title}", below
            else:
                yield from _titled(below, f"{above}{title}: ")


def _paths(nav: Sequence[Mapping[str, Any]]) -> list[str]:
    return [path for _, path in _titled(nav)]


def _summary(text: str) -> str:
    """The first paragraph of a page, without links, cut at a sentence."""
    found = _PARAGRAPH.search(text.partition("\n")[2])
    plain = " ".join(_LINK.sub(r"\1", found[0]).split()) if found is not None else ""
    if len(plain) <= _MOST_CHARACTERS:
        return plain
    return plain[: plain.rfind(". ", 0, _MOST_CHARACTERS) + 1] or f"{plain[:_MOST_CHARACTERS]} ..."


def _described(package: Any, path: str) -> str:
    """The documentation of the object at `path` as Markdown, with its public methods."""
    found = package
    for name in path.split(".")[1:]:
        found = found.members[name]
        found = found.final_target if found.is_alias else found
    return "\n".join([*_object(found, 2), *(line for each in _public(found) for line in _object(each, 3))])


def _public(owner: Any) -> Iterator[Any]:
    for name, member in owner.all_members.items():
        try:
            target = member.final_target if member.is_alias else member
        except griffe.AliasResolutionError:  # of another package, such as a base class
            continue
        if not name.startswith("_") and target.docstring is not None and not target.is_module:
            yield target


def _object(found: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{found.name}{_signature(found)}`\n"
    if found.docstring is not None:
        yield f"{found.docstring.value.strip()}\n"


def _signature(found: Any) -> str:
    if not (found.is_function or found.is_class):
        return ""
    written = [_parameter(each) for each in found.parameters if each.name not in ("self", "cls")]
    returns = f" -> {found.returns}" if found.is_function and found.returns is not None else ""
    return f"({', '.join(written)}){returns}"


def _parameter(parameter: Any) -> str:
    annotated = f"{parameter.name}: {parameter.annotation}" if parameter.annotation is not None else parameter.name
    is_given = parameter.default is not None and str(parameter.default) not in ("()", "{}")
    return f"{annotated} = {parameter.default}" if is_given else annotated
