"""The form of `--help`: sections, summaries, examples, exit codes and topics."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from delaystore.cli import _help_texts as texts
from delaystore.cli._help import command_name, commands_below, is_common, option_name, section_of, summary, variables
from delaystore.cli.main import command, main

WIDTH: Final = 80
LONGEST_SUMMARY: Final = 50


def root() -> Any:
    """The context of all commands."""
    return command().make_context("delaystore", ["demo"], resilient_parsing=True)


def groups(context: Any) -> Iterator[Any]:
    """The contexts of all groups."""
    yield context
    for name, below in context.command.commands.items():
        if hasattr(below, "commands"):
            yield from groups(type(context)(below, parent=context, info_name=name))


COMMANDS: Final = {command_name(context): (context, found) for context, found in commands_below(root())}


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The output of `delaystore help`."""
    with pytest.raises(SystemExit) as ended:
        main(["help", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_each_summary_fits_its_list() -> None:
    for context in groups(root()):
        shown = context.get_help()
        for name, found in context.command.commands.items():
            text = summary(found)
            assert len(text) <= LONGEST_SUMMARY, (name, text)
            assert text[0].isupper()
            assert text.split()[0] not in ("Say", "What", "The"), (name, text)
            if not found.hidden and (context.parent is not None or name != "help"):
                assert any(line.split() == [name, *text.split()] for line in shown.splitlines()), name


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_no_line_of_a_help_is_longer_than_the_terminal(name: str) -> None:
    context = COMMANDS[name][0] if name else root()
    lines = [line for line in context.get_help().splitlines() if not line.startswith("  delaystore ")]
    assert [line for line in lines if len(line) > WIDTH] == []


def test_each_command_is_in_one_section() -> None:
    listed = [name for names in texts.COMMANDS.values() for name in names.split()]
    assert sorted([*listed, "help"]) == sorted(root().command.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_examples_and_exit_codes(name: str) -> None:
    shown = COMMANDS[name][0].get_help()
    for example in texts.EXAMPLES[name]:
        assert f"\n  delaystore {example}\n" in shown
        assert example.startswith(name)
    assert "\nExit codes:\n  0  " in shown
    assert "\n  2  " in shown


@pytest.mark.parametrize("table", ["EXAMPLES", "EXIT_CODES", "SECTIONS", "OWN", "REFERENCES"])
def test_the_tables_are_about_commands_that_there_are(table: str) -> None:
    assert set(getattr(texts, table)) - {"", *COMMANDS} == set()


def test_the_sections_name_all_options_and_no_others() -> None:
    for name, titles in texts.SECTIONS.items():
        _, found = COMMANDS[name]
        options = {option_name(each) for each in found.params if each.param_type_name == "option"}
        own = {option for option in options if not is_common(name, option)}
        named = {option for names in titles.values() for option in names.split()}
        referred = set(texts.REFERENCES[name][1].split()) if name in texts.REFERENCES else set()
        assert named | referred == own, name
        assert not named & referred
        assert {section_of(name, each) for each in found.params if option_name(each) in named} == set(titles)


def test_the_help_of_send_fits_two_screens() -> None:
    assert len(COMMANDS["send"][0].get_help().splitlines()) <= 60


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_names_variables_by_their_rule_only(name: str) -> None:
    shown = COMMANDS[name][0].get_help()
    assert "env var" not in shown
    if any(each.param_type_name == "option" and each.envvar is None for each in COMMANDS[name][1].params):
        rule = f"DELAYSTORE_{name.replace(' ', '_').upper()}_<OPTION>"
        assert f" {rule} see: delaystore help environment" in " ".join(shown.split())


def test_common_options_are_named_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    shown = COMMANDS["cancel"][0].get_help()
    assert "\nCommon options:\n  --store --endpoint --schema --table --json --help\n" in shown
    assert "--store URL" not in shown
    in_full = explained(capsys, "common")
    for option in texts.COMMON:
        assert option in in_full
    assert "--store URL" in in_full


@pytest.mark.parametrize("topic", texts.TOPICS)
def test_each_topic_is_explained(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = explained(capsys, topic)
    assert "{" not in shown
    assert len(shown.splitlines()) > 10
    assert [line for line in shown.splitlines() if len(line) > WIDTH] == []
    assert topic in COMMANDS["help"][0].get_help()


def test_topics_name_what_the_commands_have(capsys: pytest.CaptureFixture[str]) -> None:
    environment = explained(capsys, "environment")
    common = {
        variable
        for context, found in COMMANDS.values()
        for each in found.params
        for variable in variables(each, context)
        if variable == "_".join(["DELAYSTORE", *option_name(each).removeprefix("--").upper().split("-")])
    }
    assert "DELAYSTORE_TRANSPORT" in common
    assert [variable for variable in common if variable not in environment] == []
    assert "  3    " in explained(capsys, "exit-codes")
    assert "2h30m" in explained(capsys, "times")
    filters = explained(capsys, "filters")
    assert [option for option in texts.FILTERS if option not in filters] == []


def test_help_without_a_topic_is_that_of_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained(capsys) == f"{root().get_help()}\n"


def test_an_unknown_topic_is_refused_with_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "colours"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is no topic 'colours'; topics: environment, exit-codes, times, ")


def test_an_option_of_a_group_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["errors", "--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("List, replay or discard failed messages.\n\nUsage: delaystore errors ")
    assert "\nCommands:\n  list     List failed messages in groups\n" in shown
