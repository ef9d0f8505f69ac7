"""Tabs, written so that a document reads well without them, too.

<!-- tabs -->
**SQLite**

what the first tab has

**PostgreSQL**

what the second tab has
<!-- /tabs -->
"""

import re
from textwrap import indent
from typing import Final

_TABS: Final = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r"^\*\*([^*\n]+)\*\*$", re.MULTILINE)


def tabbed(text: str) -> str:
    """`text` with tabs as the builder writes them."""
    return _TABS.sub(_tabs, text)


def _tabs(found: re.Match[str]) -> str:
    _, *parts = _TITLE.split(found[1])
    return "".join(
        f'=== "{title}"\n\n{indent(text.strip(), "    ")}\n\n'
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    )
