"""Check the words of documents, docstrings and `--help` against the rules of style.

    .venv/bin/python scripts/check_prose.py [PATH ...] [--figures]

Without a path: README, docs, ARCHITECTURE, CHANGELOG, CONTRIBUTING, SECURITY, all docstrings of `delaystore`, and the
help of every command. Exit code 1: something was found. `--figures` prints how many of each 100 sentences break a rule.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENTS: Final = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
CODE: Final = "CODE"
"""Stands in a sentence for what is written as code, which is no prose."""


@dataclass(frozen=True)
class Rule:
    """A pattern that no sentence should have, and the advice for one that has it."""

    name: str
    pattern: re.Pattern[str]
    advice: str


def _rule(name: str, pattern: str, advice: str) -> Rule:
    return Rule(name, re.compile(pattern, re.IGNORECASE), advice)


_VERB: Final = (
    r"(?:is|are|was|were|has|have|had|does|do|did|can|could|cannot|may|might|must|will|would|should|needs?|goes|went|"
    r"comes?|came|waits?|fails?|failed|falls?|fell|remains?|becomes?|became|belongs?|happens?|happened|follows?|"
    r"stands?|says?|takes?|gives?|makes?|holds?|reads?|runs?|sends?|gets?|uses?|counts?|changes?|arrives?|[a-z]+(?:ed|es)"
    r"|it|they|he|we|a|an|the|this|that|each|every|one|there|others?|only|no|to|you|your|its|their|programs?|CODE)"
)
NOUNLESS: Final = _rule(
    "nounless",
    rf"\bwhat (?!to do\b){_VERB}\b|\bthat which\b|\bthose (?:that|which|who)\b|\bthat of\b",
    "name the thing",
)
INDEFINITE: Final = _rule(
    "indefinite",
    r"\b(?:whoever|whomever|whatever|whichever|some(?:body|one)|nobody|no one|any(?:body|one))\b",
    "name the actor",
)
RULES: Final = (
    NOUNLESS,
    INDEFINITE,
    _rule("word", r"\bgives? way\b|\bgave way\b", "is deferred"),
    _rule("word", r"\bset(?:s|ting)? aside\b", "suspended (a destination), rejected (a row)"),
    _rule("word", r"\bk(?:ee|e)pt back\b|\bkeeps? back\b", "unacknowledged, retrying"),
    _rule("word", r"\btakes? nothing\b", "is unavailable"),
    _rule("word", r"\bfates?\b", "result"),
    _rule("word", r"\bshel(?:f|ves)\b", "bulk partition"),
    _rule("word", r"\btid(?:y|ies|ied|ying) up\b", "clean up"),
    _rule("word", r"\bobey(?:s|ed|ing)?\b", "apply"),
    _rule("word", r"\blast words\b", "final heartbeat"),
    _rule("word", r"\bmend(?:s|ed|ing)?\b", "fix"),
    _rule("word", r"\banew\b", "again"),
    _rule("word", r"\bas ever\b", "as usual"),
    _rule("word", r"\ball the same\b", "anyway"),
    _rule("word", r"\bso many\b(?! (?:that|as))", "N, or the number"),
    _rule("word", r"\bat no \w+'s cost\b", "without using"),
    _rule("word", r"\bfor want of\b", "because there is no"),
    _rule("word", r"\bbut for\b", "except"),
    _rule("word", r"\blikewise\b", "also"),
    _rule("word", r"\breckon(?:s|ed|ing)?\b", "compute"),
    _rule("word", r"\bnor\b", "and ... not"),
    _rule("word", r"\blets? in\b", "accepts"),
    _rule("word", r"\b(?:is|are) at hand\b", "is in progress"),
    _rule("word", r"\bof (?:yours|your own|its own|their own|ours)\b", "your, its own ..."),
    _rule("word", r"\bby itself\b", "on its own, automatically"),
    _rule("word", r"\bis told\b|\bare told\b|\bwas told\b", "shows, reports, receives"),
    _rule("word", r"\blook(?:s|ed|ing)? into\b", "inspect"),
    _rule("word", r"\bfor ever\b", "forever"),
    _rule("word", r"\bof which\b|\bin which case\b", "start a second sentence"),
    _rule("word", r"\bdo(?:es)? so\b", "repeat the verb"),
)
YOU: Final = re.compile(r"\byour?s?\b", re.IGNORECASE)
LONGEST_CELL: Final = 12
LONGEST_CHANGE: Final = 25

EXCEPTIONS: Final[Sequence[tuple[str, str, str]]] = (("scripts/check_prose.py", "", "the rules themselves"),)
"""A path, a part of a sentence in it, and why that sentence may stay."""


@dataclass(frozen=True)
class Prose:
    """A paragraph, heading, cell or docstring. `line`: its first line; `kind`: text, heading, cell, column, change."""

    path: str
    line: int
    kind: str
    text: str

    @property
    def sentences(self) -> list[str]:
        """Its sentences."""
        return [each for each in re.split(r"(?<=[.!?])[)\"']?\s+(?=[A-Z\"'(*])", self.text.strip()) if each]


@dataclass(frozen=True)
class Finding:
    """What is wrong, and where."""

    where: Prose
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.where.path}:{self.where.line}: {self.rule}: {self.text}"


def of_markdown(path: str, text: str) -> Iterator[Prose]:
    """The prose of a document, without its code."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    table = items = 0
    for before, token in pairwise(tokens):
        items += (token.type == "list_item_open") - (token.type == "list_item_close")
        if token.map is not None:
            table = token.map[0] + 1
        if token.type == "inline":
            kinds = {"heading_open": "heading", "td_open": "cell", "th_open": "column"}
            kind = "change" if items and path == "CHANGELOG.md" else kinds.get(before.type, "text")
            yield Prose(path, table, kind, _plain(token.children or []))


def _plain(children: Iterable[Token]) -> str:
    parts = {"softbreak": " ", "hardbreak": " ", "code_inline": CODE, "html_inline": ""}
    return "".join(parts.get(child.type, child.content) for child in children)


def of_python(path: str, text: str) -> Iterator[Prose]:
    """The docstrings of a module, texts below fields too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _of_docstring(path, node.lineno, node.value.value)


_SECTION: Final = re.compile(r"\s*(Args|Returns|Raises|Yields|Attributes):")
_EXAMPLE: Final = re.compile(r"[=(]|^\s+(from|import) ")


def _of_docstring(path: str, line: int, text: str) -> Iterator[Prose]:
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        plain = re.sub(r"``?[^`]+``?", CODE, paragraph)
        indent = len(paragraph) - len(paragraph.lstrip())
        if number and indent >= 8 and not _SECTION.match(plain) and _EXAMPLE.search(paragraph):
            continue  # code, or a drawing
        yield Prose(path, line, "text", " ".join(plain.split()))


def of_help() -> Iterator[Prose]:
    """The help of every command and option."""
    sys.path.insert(0, str(ROOT))
    from website.commands import all_commands

    for command in all_commands():
        texts = [command.text, *(option.text for option in command.options)]
        for text in texts:
            yield Prose(f"`{command.name} --help`", 0, "text", " ".join(re.sub(r"`[^`]+`", CODE, text).split()))


def findings(prose: Prose) -> Iterator[Finding]:
    """What breaks a rule in `prose`."""
    for sentence in prose.sentences:
        if any(fnmatch(prose.path, path) and part in sentence for path, part, _ in EXCEPTIONS):
            continue
        for rule in RULES:
            found = rule.pattern.search(sentence)
            if found is not None and not (rule is NOUNLESS and sentence.endswith("?")):
                yield Finding(prose, rule.name, f"{found[0]!r} ({rule.advice}): {sentence[:140]}")
    words = len(prose.text.split())
    if prose.kind == "cell" and words > LONGEST_CELL:
        yield Finding(prose, "cell", f"{words} words (at most {LONGEST_CELL}; use a list): {prose.text[:100]}")
    if prose.kind == "change" and words > LONGEST_CHANGE:
        yield Finding(prose, "change", f"{words} words (at most {LONGEST_CHANGE}): {prose.text[:100]}")
    if prose.kind == "column" and not prose.text.strip():
        yield Finding(prose, "column", "a column without a heading")


def gather(paths: Sequence[str]) -> Iterator[Prose]:
    """The prose of the files at `paths`, and of all if there are none."""
    named = [ROOT / path for path in paths] or [
        *(ROOT / name for name in DOCUMENTS),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "delaystore").rglob("*.py")),
    ]
    for path in named:
        for each in sorted([*path.rglob("*.md"), *path.rglob("*.py")]) if path.is_dir() else [path]:
            read = of_markdown if each.suffix == ".md" else of_python
            yield from read(each.resolve().relative_to(ROOT).as_posix(), each.read_text())
    if not paths:
        yield from of_help()


def print_figures(prose: Sequence[Prose]) -> None:
    """For documents: how many of 100 sentences break a rule, and say `you`."""
    documents = [each for each in prose if each.path == "README.md" or each.path.startswith("docs/")]
    sentences = [sentence for each in documents if each.kind in ("text", "cell") for sentence in each.sentences]
    words = sum(len(sentence.split()) for sentence in sentences)
    in_tables = sum(len(each.text.split()) for each in documents if each.kind in ("cell", "column"))

    def per_100(pattern: re.Pattern[str]) -> str:
        found = sum(bool(pattern.search(each)) and not each.endswith("?") for each in sentences)
        return f"{100 * found / len(sentences):.2f}"

    print(f"sentences {len(sentences)}, words in each {words / len(sentences):.1f}")
    print(f"words in tables {in_tables / words:.0%}")
    print(f"nounless {per_100(NOUNLESS.pattern)}, indefinite {per_100(INDEFINITE.pattern)}")
    print(f"you {per_100(YOU)}")
    columns = [each for each in documents if each.kind == "column"]
    print(f"columns {len(columns)}, without a heading {sum(not each.text.strip() for each in columns)}")


def main() -> int:
    """Print what was found; the exit code."""
    parser = argparse.ArgumentParser(
        prog="check_prose.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--figures", action="store_true", help="print figures in place of findings")
    arguments = parser.parse_args()
    prose = list(gather(arguments.paths))
    if arguments.figures:
        print_figures(prose)
        return 0
    found = [finding for each in prose for finding in findings(each)]
    for finding in found:
        print(finding)
    if found:
        print(", ".join(f"{name} {number}" for name, number in Counter(each.rule for each in found).most_common()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
