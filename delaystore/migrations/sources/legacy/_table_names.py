"""Names of tables that hold the name of an endpoint."""

from collections.abc import Iterable, Mapping
from typing import Final

from delaystore.errors import ConfigurationError

ENDPOINT: Final = "{endpoint}"


class TableNames:
    """Tables named by a `template`: `{endpoint}` in it stands for the endpoint's name, everything else for itself.

    A template without `{endpoint}` names one table, whatever the endpoint. Raises ConfigurationError for a template
    that is empty, or has two endpoints.
    """

    def __init__(self, template: str) -> None:
        if not template.strip() or template.count(ENDPOINT) > 1:
            raise ConfigurationError(f"table={template!r} is no table's name; write one, with {ENDPOINT} at most once")
        self._template = template
        self._prefix, self._mark, self._suffix = template.partition(ENDPOINT)

    def table(self, endpoint: str) -> str:
        """The table of `endpoint`."""
        return self._template.replace(ENDPOINT, endpoint)

    def endpoints(self, tables: Iterable[str]) -> Mapping[str, str]:
        """The endpoints that `tables` are named after, and the table of each."""
        found = ((self._endpoint(table), table) for table in tables)
        return {endpoint: table for endpoint, table in sorted(found) if endpoint}

    def _endpoint(self, table: str) -> str:
        """The endpoint that `table` is named after. Empty: none."""
        if not self._mark:
            return table if table == self._template else ""
        if not (table.startswith(self._prefix) and table.endswith(self._suffix)):
            return ""
        return table[len(self._prefix) : len(table) - len(self._suffix)]
