"""The check of words, `make prose`, finds what it should find, and nothing else."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECK = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "check_prose.py"))


@pytest.fixture(scope="module")
def rules_broken() -> Callable[[str], list[str]]:
    """The names of the rules that a Markdown text breaks, in their order."""
    CHECK["register_rules"]()

    def found(text: str, path: str = "docs/page.md") -> list[str]:
        return [each.rule for each in CHECK["findings"](list(CHECK["of_markdown"](path, text)))]

    return found


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("List waiting messages.", []),
        ("List what waits.", ["nounless"]),
        ("What is an endpoint?", []),
        ("Those that fail are retried.", ["nounless"]),
        ("The error says what to do.", []),
        ("Whoever may publish can cancel.", ["indefinite"]),
        ("The destination is set aside, and tried anew.", ["word", "word"]),
        ("It neither waits nor fails.", []),
        ("It does not wait, nor does it fail.", ["nor"]),
        ("`what waits` is code.", []),
        ("Run this:\n\n```text\nwhat waits\n```", []),
        ("| name | |\n|---|---|\n| a | b |", ["column"]),
        ("| name |\n|---|\n| one two three four five six seven eight nine ten eleven twelve thirteen |", ["cell"]),
        ("It stays for ever.", ["archaism", "word"]),
    ],
)
def test_a_text_breaks_these_rules(rules_broken: Callable[[str], list[str]], text: str, rules: list[str]) -> None:
    assert sorted(rules_broken(text)) == rules


def test_items_of_the_newest_version_are_short(rules_broken: Callable[..., list[str]]) -> None:
    long, text = " ".join(["word"] * 26), "# Changes\n\n## 0.2.0\n\n- {}\n\n## 0.1.0\n\n- {}\n"
    assert rules_broken(text.format(long, "short"), path="CHANGELOG.md") == ["change"]
    assert rules_broken(text.format("short", long), path="CHANGELOG.md") == []


def test_a_finding_has_its_line_and_its_sentence(rules_broken: Callable[[str], list[str]]) -> None:
    assert rules_broken("Fine.") == []
    prose: list[Any] = list(CHECK["of_markdown"]("page.md", "# Title\n\nFirst sentence. It lists what waits.\n"))
    (found,) = CHECK["findings"](prose)
    assert str(found).startswith("page.md:3: nounless: ")
    assert str(found).endswith("It lists what waits.")


def test_docstrings_are_read_without_their_examples(rules_broken: Callable[[str], list[str]]) -> None:
    assert rules_broken("Fine.") == []
    text = (
        'def f() -> None:\n    """Return what waits.\n\n    Example:\n        ::\n\n            what_is = 1\n    """\n'
    )
    assert [each.rule for each in CHECK["findings"](list(CHECK["of_python"]("module.py", text)))] == ["nounless"]
