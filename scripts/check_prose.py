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
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from proselint.checks import __register__ as checks_of_proselint
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check
from proselint.registry.checks.engine import Fancy
from proselint.registry.checks.types import ExistenceSimple
from proselint.tools import LintFile

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENTS: Final = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
CODE: Final = "CODE"
"""Stands in a sentence for code, which is no prose."""


_NOUNLESS: Final = "name the thing, in place of {!r}"
_VERB: Final = (
    r"(?:is|are|was|were|has|have|had|does|do|did|can|could|cannot|may|might|must|will|would|should|needs?|goes|went|"
    r"comes?|came|waits?|fails?|failed|falls?|fell|remains?|becomes?|became|belongs?|happens?|happened|follows?|"
    r"stands?|says?|takes?|gives?|makes?|holds?|reads?|runs?|sends?|gets?|uses?|counts?|changes?|arrives?|[a-z]+(?:ed|es)"
    r"|it|they|he|we|a|an|the|this|that|each|every|one|there|others?|only|no|to|you|your|its|their|programs?|CODE)"
)
NOUNLESS: Final = rf"\bwhat (?!to do\b){_VERB}\b|\bthat which\b|\bthose (?:that|which|who)\b|\bthat of\b"
INDEFINITE: Final = r"\b(?:who|whom|what|which)ever\b|\b(?:some|any)(?:body|one)\b|\bnobody\b|\bno one\b"
YOU: Final = r"\byour?s?\b"
_WORDS: Final = {
    r"g(?:ives?|ave) way": "is deferred",
    r"set(?:s|ting)? aside": "suspended (a destination), rejected (a row)",
    r"k(?:ept|eeps?) back": "unacknowledged, retrying",
    r"takes? nothing": "is unavailable",
    r"fates?": "result",
    r"shel(?:f|ves)": "bulk partition",
    r"tid(?:y|ies|ied|ying) up": "clean up",
    r"obey(?:s|ed|ing)?": "apply",
    r"last words": "final heartbeat",
    r"mend(?:s|ed|ing)?": "fix",
    r"anew": "again",
    r"as ever": "as usual",
    r"all the same": "anyway",
    r"so many(?! (?:that|as))": "N, or the number",
    r"at no \w+'s cost": "without using",
    r"for want of": "because there is no",
    r"but for": "except",
    r"likewise": "also",
    r"reckon(?:s|ed|ing)?": "compute",
    r"lets? in": "accept",
    r"(?:is|are) at hand": "is in progress",
    r"of (?:yours|your own|ours)": "your, our",
    r"by itself": "on its own, automatically",
    r"(?:is|are|was) told": "shows, reports, receives",
    r"look(?:s|ed|ing)? into": "inspect",
    r"for ever": "forever",
    r"of which|in which case": "begin a second sentence",
    r"do(?:es)? so": "repeat the verb",
}
_OF_PROSELINT: Final = (
    "archaism",
    "cliches",
    "malapropisms",
    "misc.illogic",
    "misc.many_a",
    "mondegreens",
    "nonwords",
    "redundancy",
)
"""Proselint's own checks that suit technical prose. The others are about typography, and about novels."""


def _rules() -> tuple[Check, ...]:
    found = [("nounless", NOUNLESS, _NOUNLESS), ("indefinite", INDEFINITE, "name the actor, in place of {!r}")]
    found += [("word", rf"\b(?:{words})\b", f"{better}, in place of {{!r}}") for words, better in _WORDS.items()]
    found.append(("nor", r"\bnor\b", "and ... not, in place of nor"))
    return tuple(
        Check(check_type=ExistenceSimple(pattern), engine=Fancy(), path=f"delaystore.{name}", message=message)
        for name, pattern, message in found
    )


LONGEST_CELL: Final = 12
"""Words of a cell of a table."""
LONGEST_CHANGE: Final = 25
"""Words of an item of the newest version in CHANGELOG.md."""

EXCEPTIONS: Final[Sequence[tuple[str, str, str]]] = (
    ("delaystore/*/migrations/versions/v000[1-5]*.py", "", "released schema versions are never edited"),
    ("delaystore/integrations/django/migrations/*.py", "", "released schema versions are never edited"),
    ("docs/how-to/backup.md", "point in time", "PostgreSQL's own name: point-in-time recovery"),
)
"""A path, a part of a sentence in it, and why that sentence may stay."""


_END_OF_SENTENCE: Final = re.compile(r"(?<=[.!?])[)\"']?\s+(?=[A-Z\"'(*])")


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
        return [each for each in _END_OF_SENTENCE.split(self.text) if each]

    def sentence_at(self, position: int) -> str:
        """The sentence with the character at `position`."""
        begins = [0, *(found.end() for found in _END_OF_SENTENCE.finditer(self.text)), len(self.text)]
        return next((self.text[a:b].strip() for a, b in pairwise(begins) if position < b), self.text)


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
    line, versions = 0, 0
    kinds = {"heading_open": "heading", "td_open": "cell", "th_open": "column"}
    for before, token in pairwise(tokens):
        line = line if token.map is None else token.map[0] + 1
        versions += token.type == "heading_open" and token.tag == "h2"
        if token.type == "inline":
            kind = kinds.get(before.type, "text")
            if kind == "cell" and all(child.type == "image" for child in token.children or []):
                kind = "text"
            elif kind == "text" and token.level > 1 and path == "CHANGELOG.md" and versions == 1:
                kind = "change"
            yield Prose(path, line, kind, " ".join(_plain(token.children or []).split()))


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
    """The help of every command, option, exit code and topic."""
    sys.path.insert(0, str(ROOT))
    from delaystore.cli._help_texts import TOPICS
    from website.commands import all_commands

    texts = {f"`delaystore help {topic}`": [text] for topic, text in TOPICS.items()}
    for command in all_commands():
        codes = [text for _, text in command.exit_codes]
        texts[f"`{command.name} --help`"] = [command.text, *(option.text for option in command.options), *codes]
    for place, found in texts.items():
        for text in found:
            yield Prose(place, 0, "text", " ".join(re.sub(r"`[^`]+`", CODE, text).split()))


def register_rules() -> None:
    """Make the rules known to the engine; call it once, before `findings`."""
    CheckRegistry().register_many((*_rules(), *checks_of_proselint))


def findings(prose: Sequence[Prose]) -> Iterator[Finding]:
    """Each place in the prose of one file that breaks a rule."""
    enabled = {"delaystore": True, **dict.fromkeys(_OF_PROSELINT, True)}
    text = "\n".join(each.text for each in prose)
    for result in LintFile(prose[0].path, text).lint(Config(max_errors=100_000, checks=enabled)):
        line, column = result.pos
        where = prose[line - 1]
        sentence = where.sentence_at(column - 1)
        if not _is_allowed(where, sentence, result.check_result.check_path):
            rule = result.check_result.check_path.removeprefix("delaystore.")
            yield Finding(where, rule, f"{result.check_result.message}: {sentence[:140]}")
    for each in prose:
        words = len(each.text.split())
        if each.kind == "cell" and words > LONGEST_CELL:
            yield Finding(each, "cell", f"{words} words (at most {LONGEST_CELL}; use a list): {each.text[:100]}")
        if each.kind == "change" and words > LONGEST_CHANGE:
            yield Finding(each, "change", f"{words} words (at most {LONGEST_CHANGE}): {each.text[:100]}")
        if each.kind == "column" and not each.text.strip():
            yield Finding(each, "column", "a column without a heading")


def _is_allowed(where: Prose, sentence: str, rule: str) -> bool:
    is_question = rule == "delaystore.nounless" and sentence.endswith("?")
    is_plain = rule == "delaystore.nor" and "neither" in sentence.lower()
    return (
        is_question or is_plain or any(fnmatch(where.path, path) and part in sentence for path, part, _ in EXCEPTIONS)
    )


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

    def per_100(pattern: str) -> str:
        found = sum(bool(re.search(pattern, each, re.IGNORECASE)) and not each.endswith("?") for each in sentences)
        return f"{100 * found / len(sentences):.2f}"

    print(f"sentences {len(sentences)}, words in each {words / len(sentences):.1f}")
    print(f"words in tables {in_tables / words:.0%}")
    print(f"nounless {per_100(NOUNLESS)}, indefinite {per_100(INDEFINITE)}")
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
    register_rules()
    found = [finding for _, file in groupby(prose, lambda each: each.path) for finding in findings(list(file))]
    for finding in found:
        print(finding)
    if found:
        print(", ".join(f"{name} {number}" for name, number in Counter(each.rule for each in found).most_common()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
