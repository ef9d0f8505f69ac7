"""The reference of an endpoint's settings, written from the class that has them."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Final

from delaystore.settings import MOST, DelayedDeliverySettings

_INTRODUCTION: Final = """# Settings

For programmers: each setting of an endpoint (the program that the messages belong to), with its unit, default and
maximum.

Pass a `DelayedDeliverySettings(...)` to `DelayedDelivery`. The object is frozen. An invalid value raises
`ConfigurationError`, which names the setting. Give durations as timedeltas or in seconds.

```python
from datetime import timedelta

from delaystore import DelayedDeliverySettings

settings = DelayedDeliverySettings(number_of_retries=7, retry_span=timedelta(hours=1), dispatch_timeout=10)
assert settings.dispatch_timeout == timedelta(seconds=10)
```

Options of `delaystore dispatch` and keys of `delaystore.toml` have the names of the settings. One differs:
`--exactly-once` is `transaction_mode="transaction_scope"`.

| setting | default | maximum |
|---|---|---|
"""


def page() -> str:
    """The reference, as a page."""
    rows = [f"| [`{name}`](#{name}) | {default} | {most} |\n" for name, default, most in _values()]
    sections = [f"\n## {name}\n\n{text}\n" for name, text in _texts()]
    end = "\nSee also the class itself, [`DelayedDeliverySettings`](delivery.md).\n"
    return _INTRODUCTION + "".join(rows) + "".join(sections) + end


def _values() -> Iterator[tuple[str, str, str]]:
    for field in fields(DelayedDeliverySettings):
        most = MOST.get(field.name)
        show = _size if field.name.endswith("_bytes") else _shown
        yield field.name, f"`{show(getattr(DelayedDeliverySettings(), field.name))}`", show(most) if most else ""


def _texts() -> Iterator[tuple[str, str]]:
    """The name and the docstring of each field of the class."""
    (definition,) = ast.parse(inspect.getsource(DelayedDeliverySettings)).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            written = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            yield field.target.id, inspect.cleandoc(str(text.value.value)) if written else ""


def _shown(value: object) -> str:
    if isinstance(value, timedelta):
        return _duration(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _size(value: object) -> str:
    """A number of bytes in the largest unit that divides it."""
    number = int(str(value))
    for unit, length in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if not number % length:
            return f"{number // length} {unit}"
    return f"{number:,} bytes"


def _duration(value: timedelta) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if value and not value.total_seconds() % length:
            return f"{value.total_seconds() / length:g} {unit}"
    return f"{value.total_seconds():g} s"
