"""The form of `--help`, and `delaystore help TOPIC`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from textwrap import wrap
from typing import Annotated, Any, Final

import typer
import typer.core
from typing_extensions import override

from delaystore.errors import ConfigurationError

_COLUMN: Final = 24
"""Characters of an option that leave its text on the same line."""
_OWN: Final = "Options"
_COMMON: Final = "Common options"


class HelpedCommand(typer.core.TyperCommand):
    """A command whose help has a summary, examples, options in sections, and exit codes."""

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write_head(self, ctx, formatter)
        name = command_name(ctx)
        _write_examples(formatter, examples_of(name))
        self.format_options(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in exit_codes_of(name).items()])
        prefixes = variable_prefixes(self, ctx)
        if prefixes:
            formatter.write_paragraph()
            names = " or ".join(f"{prefix}_<OPTION>" for prefix in prefixes)
            _write_reference(formatter, f"Variables: {names}", "delaystore help environment")

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        common: list[str] = []
        name = command_name(ctx)
        referred = _referred(name)
        for parameter in self.get_params(ctx):
            option, shown = option_name(parameter), record(parameter, ctx)
            if is_common(name, option):
                common.append(option)
            elif shown is not None and option not in referred:
                sections.setdefault(section_of(name, parameter), []).append(shown)
        _write_sections(formatter, [(title, sections[title]) for title in _order(name, sections)])
        if referred:
            _, names, place = _references()[name]
            with formatter.indentation():
                _write_names(formatter, names.split(), place)
        if common != ["--help"]:
            with formatter.section(_COMMON):
                _write_names(formatter, _common_in_order(common), "delaystore help common")


class HelpedGroup(typer.core.TyperGroup):
    """A group of commands whose help lists them with whole summaries."""

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write_head(self, ctx, formatter)
        self.format_commands(ctx, formatter)
        self.format_options(ctx, formatter)
        _write_examples(formatter, examples_of(command_name(ctx)))
        self.format_epilog(ctx, formatter)

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        records = [record(parameter, ctx) for parameter in self.get_params(ctx)]
        _write_sections(formatter, [(_OWN, [each for each in records if each is not None])])

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        _write_sections(formatter, [("Commands", [(name, summary(each)) for name, each in self.commands.items()])])


class HelpedRoot(HelpedGroup):
    """All commands: the help lists them by what users want to do."""

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        from delaystore.cli._help_texts import COMMANDS

        listed = {title: [name for name in names.split() if name in self.commands] for title, names in COMMANDS.items()}
        _write_sections(
            formatter,
            [(title, [(name, summary(self.commands[name])) for name in names]) for title, names in listed.items()],
        )

    @override
    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from delaystore.cli._help_texts import LEARN_MORE

        with formatter.section("Learn more"):
            formatter.write_dl(LEARN_MORE)


def summary(command: Any) -> str:
    """The first line of a command's help, as lists of commands show it."""
    return str(command.help or "").partition("\n")[0].rstrip(".")


def description(command: Any) -> str:
    """The help of a command without its first line."""
    return str(command.help or "").partition("\n")[2].strip()


def command_name(context: Any) -> str:
    """The words of a command after `delaystore`, as in `errors list`."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(names)


def examples_of(command: str) -> Sequence[str]:
    """Calls of a command that work as they are, without the word `delaystore`."""
    from delaystore.cli._help_texts import EXAMPLES

    return EXAMPLES.get(command, ())


def exit_codes_of(command: str) -> Mapping[int, str]:
    """The exit codes of a command, and their meanings."""
    from delaystore.cli._help_texts import DEFAULT_EXIT_CODES, EXIT_CODES

    return dict(sorted({**DEFAULT_EXIT_CODES, **EXIT_CODES.get(command, {})}.items()))


def option_name(parameter: Any) -> str:
    """An option with its dashes, or the name of an argument."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    return str(max(parameter.opts, key=len))


def record(parameter: Any, context: Any) -> tuple[str, str] | None:
    """A parameter as it is written, and its text, without variables; None: it is hidden."""
    shown = copy(parameter)
    shown.show_envvar = False
    found: tuple[str, str] | None = shown.get_help_record(context)
    if found is None or parameter.param_type_name == "option":
        return found
    return option_name(parameter), found[1]


def variables(parameter: Any, context: Any) -> Sequence[str]:
    """The environment variables of a parameter, the one for a single command first."""
    given = parameter.envvar
    if given is not None:
        return [given] if isinstance(given, str) else list(given)
    if getattr(parameter, "allow_from_autoenv", False) and context.auto_envvar_prefix is not None:
        return [f"{context.auto_envvar_prefix}_{parameter.name.upper()}"]
    return []


def variable_prefixes(command: Any, context: Any) -> Sequence[str]:
    """The beginnings of the variables of a command's own options, the shortest first, without the common ones."""
    name = command_name(context)
    found: set[str] = set()
    for parameter in command.params:
        option = option_name(parameter)
        if option.startswith("--") and not is_common(name, option):
            ending = "_" + option.removeprefix("--").replace("-", "_").upper()
            beginnings = [each.removesuffix(ending) for each in variables(parameter, context)]
            found.update(beginnings if "DELAYSTORE" not in beginnings else [])
    return sorted(found, key=len)


def is_common(command: str, option: str) -> bool:
    """Whether `delaystore help common` explains an option of a command."""
    from delaystore.cli._help_texts import COMMON, OWN

    return option in COMMON and option not in OWN.get(command, "").split()


def section_of(command: str, parameter: Any) -> str:
    """The heading under which the help of a command shows a parameter."""
    from delaystore.cli._help_texts import SECTIONS

    if parameter.param_type_name == "argument":
        return "Arguments"
    titles = SECTIONS.get(command, {})
    return next((title for title, names in titles.items() if option_name(parameter) in names.split()), _OWN)


def _order(command: str, sections: Iterable[str]) -> list[str]:
    from delaystore.cli._help_texts import SECTIONS

    last = _references()[command][0] if command in _references() else None
    known = ["Arguments", *(title for title in SECTIONS.get(command, ()) if title != last), _OWN, last]
    return sorted(sections, key=known.index)


def _common_in_order(options: Sequence[str]) -> list[str]:
    from delaystore.cli._help_texts import COMMON

    return sorted(options, key=COMMON.index)


def _references() -> Mapping[str, tuple[str, str, str]]:
    from delaystore.cli._help_texts import REFERENCES

    return REFERENCES


def _referred(command: str) -> Sequence[str]:
    """Options that the help of a command only names, since another place explains them."""
    found = _references().get(command)
    return [] if found is None else found[1].split()


def _write_head(command: Any, context: Any, formatter: Any) -> None:
    """The summary, the usage, and the description."""
    formatter.write_text(f"{summary(command)}.")
    formatter.write_paragraph()
    command.format_usage(context, formatter)
    text = description(command)
    if text:
        formatter.write_paragraph()
        formatter.write_text(text)


def _write_examples(formatter: Any, examples: Sequence[str]) -> None:
    """Whole lines, so that they can be copied."""
    if examples:
        with formatter.section("Examples" if len(examples) > 1 else "Example"):
            formatter.write("".join(f"  delaystore {example}\n" for example in examples))


def _write_sections(formatter: Any, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Sections whose texts begin in one column."""
    lengths = [len(name) for _, rows in sections for name, _ in rows]
    width = max((length for length in lengths if length <= _COLUMN), default=0)
    for title, rows in sections:
        if rows:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=width)


def _write_names(formatter: Any, names: Sequence[str], place: str) -> None:
    """Options that another place explains, in as few lines as they take."""
    *lines, last = wrap(" ".join(names), formatter.width - formatter.current_indent, break_on_hyphens=False)
    for line in lines:
        formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
    _write_reference(formatter, last, place)


def _write_reference(formatter: Any, line: str, place: str) -> None:
    """A line, and the place that explains it: behind it, or below."""
    indent, see = " " * formatter.current_indent, f"see: {place}"
    together = f"{indent}{line}  {see}"
    formatter.write(f"{together}\n" if len(together) <= formatter.width else f"{indent}{line}\n{indent}{see}\n")


def explain(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Topic: environment, exit-codes, times, filters or common.")
    ] = None,
) -> None:
    """Explain a topic, such as exit codes.

    Without a topic, print the help of delaystore.
    """
    root = context.find_root()
    if topic is None:
        typer.echo(root.get_help())
        return
    from delaystore.cli._help_texts import TOPICS

    if topic not in TOPICS:
        raise ConfigurationError(
            f"there is no topic {topic!r}; topics: {', '.join(TOPICS)} (`delaystore COMMAND --help` explains a command)"
        )
    formatter = context.make_formatter()
    title, *paragraphs = TOPICS[topic].strip().split("\n\n")
    formatter.write_text(title)
    for paragraph in paragraphs:
        formatter.write_paragraph()
        _write_paragraph(formatter, paragraph, root)
    typer.echo(formatter.getvalue().rstrip("\n"))


def _write_paragraph(formatter: Any, paragraph: str, root: Any) -> None:
    """A paragraph of a topic: text, a heading with rows `NAME  TEXT` below, or a list that `_rows` makes."""
    heading, _, below = paragraph.partition(":\n")
    if not below:
        formatter.write_text(" ".join(paragraph.split()))
        return
    rows: list[tuple[str, str]] = []
    for line in below.splitlines():
        name, _, text = line.strip().partition("  ")
        rows += _rows(name, root) if name.startswith("{") else [(name, text.strip())]
    formatter.write_text(f"{' '.join(heading.split())}:")
    with formatter.indentation():
        formatter.write_dl(rows, col_max=30)


def _rows(which: str, root: Any) -> Iterator[tuple[str, str]]:
    """Options, each once: `{common}` ones, `{variables}` of these, or `{filters}`."""
    from delaystore.cli._help_texts import COMMON, FILTERS

    found = _options(root, FILTERS, of="cancel") if which == "{filters}" else _options(root, COMMON)
    for parameter, context in found:
        shown = record(parameter, context)
        if shown is not None and which != "{variables}":
            yield shown
        elif shown is not None and parameter.envvar is not None:
            yield parameter.envvar, option_name(parameter)


def _options(root: Any, names: Sequence[str], of: str | None = None) -> Iterator[tuple[Any, Any]]:
    """The options `names` with a context, as the command `of` has them; None: the first command that has each."""
    found: dict[str, tuple[Any, Any]] = {}
    for context, command in commands_below(root):
        name = command_name(context)
        for parameter in command.get_params(context):
            option = option_name(parameter)
            if of in (None, name) and (of is not None or is_common(name, option)):
                found.setdefault(option, (parameter, context))
    return (found[name] for name in names if name in found)


def commands_below(context: Any) -> Iterator[tuple[Any, Any]]:
    """The context and command of each command that is no group, in their order."""
    for name, command in context.command.commands.items():
        own = type(context)(command, parent=context, info_name=name)
        if hasattr(command, "commands"):
            yield from commands_below(own)
        elif not command.hidden:
            yield own, command
