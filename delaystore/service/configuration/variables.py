"""Environment variables in texts of the configuration: ${NAME}."""

import re
from collections.abc import Mapping
from typing import Final

from delaystore.errors import ConfigurationError

_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")


def with_variables(text: str, environment: Mapping[str, str]) -> str:
    """`text` with the values of the variables that it names; raises ConfigurationError for one that is not set."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environment:
            raise ConfigurationError(f"names the environment variable {name!r}, which is not set")
        return environment[name]

    return _VARIABLE.sub(value, text)
