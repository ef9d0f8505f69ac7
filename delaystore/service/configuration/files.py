"""The configuration in a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delaystore.errors import ConfigurationError
from delaystore.service.configuration.names import NamesInFile
from delaystore.service.configuration.reading import Reader
from delaystore.service.configuration.regular import check_regular
from delaystore.service.configuration.tree import ServiceConfiguration


def configuration_in(path: Path) -> ServiceConfiguration:
    """The configuration that the file holds, with the variables of the environment.

    Raises ConfigurationError: with line and column for what is no TOML, and with table and key for the rest.
    """
    return Reader(ServiceConfiguration, NamesInFile(path.name), os.environ).read(ServiceConfiguration, parsed(path))


def parsed(path: Path) -> Mapping[str, Any]:
    """The tables of the file, unchecked. Raises ConfigurationError, for what is no TOML with line and column."""
    check_regular(path, str(path))
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no UTF-8 text, at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from None
    except ValueError:  # Python reads no whole number of more than 4,300 digits
        raise ConfigurationError(
            f"{path} is no TOML that can be read: it has a number of thousands of digits"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{path} is nested too deeply") from None
