"""Files of schedules, which `delaystore schedules apply` and `delaystore serve` make the schedules of an endpoint."""

from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delaystore.errors import ConfigurationError, InvalidScheduleError
from delaystore.schedules.definition import Schedule
from delaystore.schedules.editing import check_together
from delaystore.text import JsonError, parse_json, toml_in


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """All schedules of an endpoint whose names begin with a prefix.

    Attributes:
        path: The file that has them.
        prefix: The prefix. Schedules below it that are not in `schedules` are deleted.
        schedules: The schedules.

    """

    path: Path
    prefix: str
    schedules: Sequence[Schedule] = field(hash=False)


def schedule_file(path: Path, prefix: str | None = None) -> ScheduleFile:
    """Read the schedules of a file.

    A TOML file has `prefix = "invoices/"`, and a table `[[schedule]]` for each schedule. A file `*.json` has an object
    with the members `prefix` and `schedules`, an array. The members of a schedule are those of `Schedule.of_document`.

    Args:
        path: The file.
        prefix: The prefix, if the file has none; or in its place.

    Raises:
        ConfigurationError: The file cannot be read, is no TOML or JSON, has no prefix or other members, or a schedule
            is invalid, occurs twice, or is not below the prefix.

    """
    is_json = path.suffix.lower() == ".json"
    document = _json_in(path) if is_json else toml_in(path)
    member = "schedules" if is_json else "schedule"
    unknown = sorted(document.keys() - {"prefix", member})
    if unknown:
        raise ConfigurationError(f"{path}: {unknown[0]!r:.80} is unknown; known are prefix and {member}")
    found = document.get(member)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        form = 'an array "schedules" of objects' if is_json else "a table [[schedule]] for each schedule"
        raise ConfigurationError(f"{path} must have {form}; {member} may be an empty array")
    prefix = document.get("prefix") if prefix is None else prefix
    if not isinstance(prefix, str) or not prefix:
        raise ConfigurationError(
            f"{path}: prefix is {'missing' if prefix is None else 'no text, or empty'}; write the beginning of all "
            "names, because other schedules below it are deleted"
        )
    try:
        schedules = [Schedule.of_document(each) for each in found]
        check_together(schedules, prefix)
    except InvalidScheduleError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return ScheduleFile(path, prefix, schedules)


def _json_in(path: Path) -> Mapping[str, Any]:
    try:
        document = parse_json(path.read_bytes().removeprefix(BOM_UTF8))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except JsonError as error:
        raise ConfigurationError(f"{path} {error}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} must have an object, with the members prefix and schedules")
    return document
