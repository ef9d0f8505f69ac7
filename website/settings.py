"""The reference of an endpoint's settings, written from the class that has them."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Final

from delaystore.settings import MOST, DelayedDeliverySettings

_INTRODUCTION: Final = """# Settings

`DelayedDeliverySettings(...)` is what an endpoint goes by. It is frozen. A setting that cannot work raises
`ConfigurationError`, which names it.

Durations are timedeltas or seconds.

```python
from datetime import timedelta

from delaystore import DelayedDeliverySettings

settings = DelayedDeliverySettings(number_of_retries=7, retry_span=timedelta(hours=1), dispatch_timeout=10)
assert settings.dispatch_timeout == timedelta(seconds=10)
```

| setting | default | at most | what it does |
|---|---|---|---|
"""


def page() -> str:
    """The reference, as a page."""
    texts = dict(_texts())
    rows = [f"| `{name}` | {default} | {most} | {texts[name]} |" for name, default, most in _values()]
    return _INTRODUCTION + "\n".join(rows) + "\n\nThe class itself: [`DelayedDeliverySettings`](delivery.md).\n"


def _values() -> Iterator[tuple[str, str, str]]:
    for field in fields(DelayedDeliverySettings):
        most = MOST.get(field.name)
        yield field.name, f"`{_shown(getattr(DelayedDeliverySettings(), field.name))}`", _shown(most) if most else ""


def _texts() -> Iterator[tuple[str, str]]:
    """What stands below each field of the class."""
    (definition,) = ast.parse(inspect.getsource(DelayedDeliverySettings)).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            written = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            yield field.target.id, " ".join(str(text.value.value).split()) if written else ""


def _shown(value: object) -> str:
    if isinstance(value, timedelta):
        return _duration(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _duration(value: timedelta) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if value and not value.total_seconds() % length:
            return f"{value.total_seconds() / length:g} {unit}"
    return f"{value.total_seconds():g} s"
