"""The page of all errors: their classes, from their docstrings, and the messages that name a remedy, from the code.

`python -m website.errors` writes it again, into docs/troubleshooting/errors.md.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Final

from delaystore import errors
from delaystore.errors import DelaystoreError
from delaystore.server.web.errors import status_of
from website.house import HOUSE

PAGE: Final = "docs/troubleshooting/errors.md"
_PACKAGE: Final = HOUSE / "delaystore"
_ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "Messages, settings and sending": (
        *("message", "settings", "registry", "text", "filters", "delivery", "clock", "breakers", "processes", "calls"),
        "errors",
    ),
    "Recurring schedules": ("schedules",),
    "Command line": ("cli",),
    "Stores and databases": ("stores",),
    "RabbitMQ and other transports": ("transports",),
    "Dispatching": ("dispatcher",),
    "Error queue and operations": ("operations",),
    "Ingress and control queue": ("ingress",),
    "Cascades and native delays": ("cascades",),
    "Loading files and Spark": ("bulk",),
    "Migrating from other stores": ("migrations",),
    "Service, web page and JSON API": ("server",),
    "Celery, Django, Dramatiq and taskiq": ("integrations",),
    "Testing kit": ("testing",),
}
"""The headings of the page, and the modules and packages of delaystore below each."""
_RAISED: Final = re.compile(r"(?:Error|Refusal|BadParameter|ImproperlyConfigured|_failure)$")
"""Names of functions and classes whose argument is a message for a user."""
_NO_REMEDY: Final = 500
"""The status of errors that the JSON API does not expect."""
_OTHER_STATUS: Final[Mapping[type[DelaystoreError], str]] = {
    errors.DuplicateMessageError: (
        " One call differs: `POST /messages` with your own message_id answers 200, with `stored: false`."
    ),
}
"""Further statuses of the JSON API for an error."""
_IN_FULL: Final[Mapping[str, str]] = {
    "'EXCHANGE' delays its messages, so it cannot be the output exchange": (
        "Name another output exchange with `--output-exchange`."
    ),
    "'NAME' has no native delay": "Name a native delay in the URL, as in `?delays=NAME`.",
    "AMQP does not show the plugin's exchanges": "Pass the URL of the management API: `--management URL`.",
    "NAME is given twice": "Give this parameter or field once.",
    "NAME is the ingress queue itself, so messages would loop": "Name another destination.",
    "NAME must be a timedelta, a number of seconds, or None": "Pass one of these, in place of 'SPAN'.",
    "Spark runs here already, with the master MASTER": "Leave your option for the master out, or name the same master.",
    "WHAT cannot be written": "Name another folder for rejected rows.",
    "WHAT is a file, or in one": "Name another folder for rejected rows.",
    "a delay of SPAN is beyond the maximum of this cascade, MAXIMUM": (
        "Use a shorter delay, or let a store keep the message until it is due."
    ),
    "batch BATCH brings NUMBER messages, and the store has batch OTHER_BATCH of this stream, of NUMBER: the checkpoint "
    "is older than the store": (
        "Use the newest checkpoint of the stream, or begin a new stream with `onDuplicate=ignore`."
    ),
    "destination 'DESTINATION' leads back to the ingress queue: messages would loop": "Name another destination.",
    "header 'CC' would deliver copies at once": (
        "Use no native delay for this message: a store keeps it until it is due."
    ),
    "its headers declare a document type, which is refused for safety": (
        "Remove the document type (`<!DOCTYPE ...>`) from the headers."
    ),
    "queue 'QUEUE' does not answer: REASON": "Nothing was deleted. Try again when the node of the queue answers.",
    "retry_later needs the channel of a BlockingConnection": "With another channel or client, call `next_step`.",
    "the folder for rejects, LOCATION, cannot be made": "Name another folder for rejected rows.",
    "the load id 'LOAD_ID' belongs to KIND": "Choose another load id.",
    "the message does not name its destination": "Let the publisher name a destination.",
    "the message_id 'MESSAGE_ID' appears and disappears": "Do nothing: the ingress retries the message.",
    "the poison queue 'QUEUE' is a part of the cascade NAME": "Name another queue with `--poison-queue`.",
    "--OPTION does not go with --config": "Write the key of this option into the file.",
    "RabbitMQ refused the message WHERE": (
        "Check whether a queue is full. The text ends with the result for the message."
    ),
    "it has the trigger FOUND": "Move this job by hand: only a job with a date trigger runs once, as a message does.",
    "no messages are chosen": (
        "Pass an ID, a filter such as `--destination NAME`, or `--all`. Commands for waiting messages also take "
        "`--key KEY`."
    ),
    "queue 'NAME' has a message whose headers cannot be read: HEADERS": (
        "Remove this message with another program, for example RabbitMQ's management page."
    ),
    "stopped: MANY rejected, and at most MAX_REJECTS may be": (
        "The text ends with the last rejected row. To continue, run it again with `--allow-rejected` or a larger "
        "`--max-rejected`. Otherwise abort it."
    ),
    "the KIND for 'NAME' cannot be loaded: OTHER_NAME: ERROR": "Correct the plug-in that the text names.",
    "the KIND for 'NAME' is a OTHER_NAME, and no function that opens a URL": "Correct the plug-in that the text names.",
    "the in-memory store can be enlisted only in an object with on_commit and on_rollback, such as a test's own "
    "transaction, not in a NAME": "Enlist in a SQL store.",
    "there is no queue 'QUEUE'": "Create it with `delaystore setup --queue QUEUE`, or in Python with `declare()`.",
    "this load was not begun": "Call `begin` or `join` first.",
    "the queue for rejected requests is missing": "Do nothing: delaystore declares it again.",
    "the web page's process was ended": "Nothing needs to be done again: its changes stay.",
    "unexpected NAME": "The request failed by an error of this Python class. The log of the process has the details.",
    "unknown field NAME": "In the request `ping` of the control queue, remove this field: `ping` has no fields.",
}
"""Remedies that need a noun where they stand alone, by the cause before them."""
_INTRODUCTION: Final = """# Error messages

For everyone who sees an error of delaystore. Search this page for a part of the text, and read its remedy in a minute.
Entries are for searching, not for reading from top to bottom.

- **Placeholders:** words in capitals, such as `PATH`, stand for values. Search for the words around them. In a remedy,
  they stand for the values that the text of your error shows. `OTHER_NAME` is another value than `NAME`.
- **Beginnings:** some texts follow words that name a message or a row, so they begin with `it` or `its`, as in
  `row 7: its delay 'x' is no whole number`.
- **Command line:** an error of a command is one line on standard error, and the exit code is 2.
- **Python:** the error is an exception of the class in brackets behind the remedy. [Error classes](#error-classes)
  explains the classes.
- **No class in brackets:** the text is no exception. It is the reason why a message, a row or a job was rejected, an
  answer of the HTTP API or the control queue, or a line of the web page.

If you have a symptom but no error text, such as late messages, read [Symptoms](symptoms.md) instead.
"""
_CLASSES: Final = """## Error classes

All classes are in `delaystore.errors`. If you catch a class, you also catch its subclasses: the classes that name it as
*Base*.
"""


@dataclass(frozen=True, order=True)
class Message:
    """What a user reads: the cause, the remedy, and the class of the error."""

    cause: str
    remedy: str
    kind: str


def page() -> str:
    """The page. Raises ValueError for a remedy in full whose error has another text by now."""
    sections: dict[str, str] = {}
    stale = set(_IN_FULL)
    for heading, rooms in _ROOMS.items():
        found = sorted(set(_messages(rooms)))
        if found:
            sections[heading] = f"## {heading}\n\n" + "\n".join(_line(each) for each in found) + "\n"
            stale -= {each.cause for each in found}
    if stale:
        raise ValueError(f"no error has the text {min(stale)!r} any more: correct _IN_FULL")
    contents = "Sections:\n\n" + "".join(f"- [{each}](#{_anchor(each)})\n" for each in (*sections, "Error classes"))
    classes = (_class(each) for each in _classes())
    return "\n".join([_INTRODUCTION, contents, *sections.values(), _CLASSES, *classes])


def _anchor(heading: str) -> str:
    """The anchor of a heading, as the site and GitHub make it."""
    return re.sub(r"[^a-z -]", "", heading.lower()).replace(" ", "-")


def _classes() -> list[type[DelaystoreError]]:
    """All error classes, as their module defines them."""
    return [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DelaystoreError)]


def _class(kind: type[DelaystoreError]) -> str:
    text = (getdoc(kind) or "").partition("\nArgs:")[0].strip()
    text = text.replace("\nRemedy: ", "\n**Remedy:** ")
    base = f"Base: `{kind.__bases__[0].__name__}`." if kind is not DelaystoreError else "Base: `Exception`."
    status = status_of(kind)
    api = f" The JSON API answers with status {status}." if status != _NO_REMEDY else ""
    return f"### {kind.__name__}\n\n{text}\n\n{base}{api}{_OTHER_STATUS.get(kind, '')}\n"


def _line(message: Message) -> str:
    fence = "``" if "`" in message.cause else "`"
    edge = " " if fence == "``" else ""
    kind = f" (`{message.kind}`)" if hasattr(errors, message.kind) else ""
    return f"- {fence}{edge}{message.cause}{edge}{fence}\\\n  {message.remedy}{kind}"


def _messages(rooms: tuple[str, ...]) -> Iterator[Message]:
    for room in rooms:
        module = _PACKAGE / f"{room}.py"
        for path in [module] if module.exists() else sorted((_PACKAGE / room).rglob("*.py")):
            yield from _of_module(path)


def _of_module(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text())
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Constant)
        for target in ([node.target] if isinstance(node, ast.AnnAssign) else node.targets)
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if _RAISED.search(name):
                for argument in node.args[:2]:
                    yield from _parsed(_text(argument, constants), name)


def _parsed(text: str | None, kind: str) -> Iterator[Message]:
    """The message, if it has a remedy that consists of words, not of a value alone."""
    cause, found, remedy = (text or "").partition("; ")
    if not found:
        cause, found, remedy = (text or "").partition(". ")
    words = re.sub(r"`[^`]*`|\b[A-Z_]+\b", "", remedy)
    if not found or not re.search(r"[a-z]{2,}", words) or not re.search(r"[a-z]{4,}", cause):
        return
    cause = " ".join(cause.split())
    cause = f"VALUE {cause}" if _NO_SUBJECT.match(cause) else cause
    yield Message(cause, _remedy(cause, remedy), kind.lstrip("_"))


_NO_SUBJECT: Final = re.compile(r"(?:has|is|cannot)\b")
"""The beginning of a message to which its caller adds what was given."""
_LISTED: Final = re.compile(r"(?:known (?:is|are)|there are|they have|the columns are|it has) [A-Z_]+")
"""A remedy that names what there is: it depends on what was given."""
_NO_COLUMN: Final = re.compile(r"\bno column\b|\bis not there$")
"""The cause of a remedy that names the columns that there are."""
_CODE: Final = re.compile(
    r"""(?<![\w`])(?:
    \{"[^{}]*\}                                              # JSON
    |delaystore\ (?:cascade\ create|ingress\ create|web)(?:\ --[a-z-]+(?:\ [A-Z]+)?)?  # a command of ours
    |rabbitmqctl\ [a-z_]+\ [A-Z]+|openssl\ rand\ -hex\ 32|iconv\ -t\ UTF-8  # a command of others
    |--[a-z][\w-]*(?:[ =][A-Z][\w:]*)?                       # an option
    |[\w.+]+://[^\s;)']*[^\s;)',.]|[\w.+]+://               # a URL
    |(?:\.?[A-Za-z_]+(?:\.[A-Za-z_]+)*\((?:[^()]|\([^)]*\))*\))+  # a call
    |\??[a-z_]+=[^\s,;)]*[^\s,;).]                            # an argument
    |(?!OTHER_)[A-Z]+(?:_[A-Z]+)+|[a-z]+(?:_[a-z]+)+         # a name
    |(?:/[\w.]+)+(?<!\.)                                    # an address
    |[^\s`]*[\[\\*<{][^\s`]*[^\s`,.;:)]                      # anything that Markdown would read
    )""",
    re.VERBOSE,
)


_NAME: Final = re.compile(r"\w+[_=(]|delaystore ")
"""The beginning of a sentence whose first word is a name, which keeps its small letter."""


def _remedy(cause: str, text: str) -> str:
    """The remedy as a reader understands it without the code around it."""
    if cause in _IN_FULL:
        return _IN_FULL[cause]
    if not _LISTED.fullmatch(text.rstrip(".")):
        return _prose(text)
    if _NO_COLUMN.search(cause):
        return "Correct the name, or add the column. The error text lists the columns that delaystore found."
    return "Use one of the values that the error text lists."


def _prose(text: str) -> str:
    """The remedy as sentences of Markdown, with code for what a user types."""
    text = " ".join(text.rstrip(".").split())
    sentences = [each if _NAME.match(each) else f"{each[:1].upper()}{each[1:]}" for each in text.split("; ")]
    text = "".join(f"{each} " if each.endswith("?") else f"{each}. " for each in sentences).rstrip()
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _CODE.sub(r"`\g<0>`", part) for part in parts)


def _text(node: ast.expr, constants: Mapping[str, str]) -> str | None:
    """Return a string, with names in capitals for its values; None: the code here does not have it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, constants), _text(node.right, constants)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        return _JOINED.sub(r"\1 \2", "".join(_values(node, constants)))
    return None


def _values(node: ast.JoinedStr, constants: Mapping[str, str]) -> Iterator[str]:
    """The parts of a string; a placeholder for another value than the one that has its name begins with OTHER_."""
    named: dict[str, str] = {}
    for part in node.values:
        text = _value(part, constants)
        if isinstance(part, ast.FormattedValue) and _NAMED.fullmatch(text):
            value = ast.dump(part.value)
            if named.setdefault(text.strip("'"), value) != value:
                text = _FIRST.sub("OTHER_", text, count=1)
        yield text


_NAMED: Final = re.compile(r"'?(?!NUMBER\b|VALUE\b)[A-Z_]{3,}'?")
"""A placeholder for one value, with its quotes."""
_FIRST: Final = re.compile(r"(?=[A-Z_])")
"""The place before a name in capitals."""


_JOINED: Final = re.compile(r"([a-z]|\w')([A-Z]{4,}\b)")
"""A word and the optional value behind it, which begins with a space."""


def _value(part: ast.expr, constants: Mapping[str, str]) -> str:
    if not isinstance(part, ast.FormattedValue):
        return _text(part, constants) or ""
    known = _text(part.value, constants)
    if known is not None:
        return known
    name = _placeholder(part.value)
    return f"'{name}'" if part.conversion == ord("r") else name


_PLACEHOLDERS: Final[Mapping[str, str]] = {
    "self": "NAME",
    "again": "NUMBER",
    "brought": "NUMBER",
    "typed": "OPTION",
    "fullname": "TABLE",
    "silent": "QUEUE",
    "others": "NAME",
    "strangers": "COLUMNS",
    "they": "NUMBER messages are waiting",
}
"""Placeholders of values whose names in the code would not explain them."""


def _placeholder(node: ast.expr) -> str:
    """A name in capitals for a value."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _PLACEHOLDERS.get(name, name.strip("_").upper())
        case ast.Constant(value=str(written)):
            return written
        case ast.Subscript(value=value) | ast.Await(value=value) | ast.Starred(value=value):
            return _placeholder(value)
        case ast.IfExp(body=body, orelse=other):
            texts = [str(each.value) for each in (body, other) if isinstance(each, ast.Constant)]
            return next(filter(None, texts), None) or _placeholder(body)
        case ast.BoolOp(values=[first, *_]) | ast.BinOp(left=first):
            return _placeholder(first)
        case ast.GeneratorExp(elt=element):
            return _placeholder(element)
        case ast.Call(func=ast.Name(id="len" | "sum")):
            return "NUMBER"
        case ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=str(noun)), *_]):
            return f"NUMBER {noun}s"
        case ast.Call(func=ast.Name(id="installing"), args=[ast.Constant(value=str(extra))]):
            return f"install the extra {extra} of delaystore"
        case ast.Call(func=ast.Name(id="installing")):
            return "install the extra EXTRA of delaystore"
        case ast.Call(func=ast.Attribute(value=value, attr="partition" | "replace" | "lower" | "get" | "strip")):
            return _placeholder(value)
        case ast.Call(func=ast.Name(id="type")):
            return "TYPE"
        case ast.Call(func=ast.Attribute(attr="join"), args=[first, *_]):
            return _placeholder(first)
        case ast.Call(func=ast.Name(id=name)) if name.endswith("_of"):
            return name.removesuffix("_of").strip("_").upper()
        case ast.Call(func=ast.Attribute(value=value), args=[]):
            return _placeholder(value)
        case ast.Call(args=[first, *_]):
            return _placeholder(first)
        case _:
            return "VALUE"


def main() -> None:
    """Write the page into the documents."""
    path = HOUSE / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page())


if __name__ == "__main__":
    main()
